"""Write docs/published-configs.md from the goldens of published option sets.

python -m tools.make_published_page
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.published import ROOT, option_sets, sources

PAGE = Path(__file__).parents[1] / "docs" / "published-configs.md"


def page() -> str:
    """The page's text."""
    answers = json.loads((ROOT / "answers.json").read_text("utf-8"))
    sets, files, rows = option_sets(), sources(), []
    counts: Counter[str] = Counter()
    for name, answer in answers["sets"].items():
        loads = "refused" not in answer
        counts["loads" if loads else "is refused"] += 1
        ignored = ", ".join(f"`{option}`" for option in answer.get("ignored", []))
        source = f"`{files[name]}`" if name in files else "from memory"
        verdict = ("loads", ignored) if loads else ("refused", _plain(answer["refused"]))
        rows.append((f"`{name}`", f"`{sets[name]['model_type']}`", *verdict, source))
    lines = [
        "| Checkpoint | `model_type` | | Options ignored, or the reason | Source on GitHub |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    head = _HEAD.format(
        sets=len(rows),
        loads=counts["loads"],
        refused=counts["is refused"],
        files=len(files),
        memory=len(rows) - len(files),
        types=len({sets[name]["model_type"] for name in files}),
        transformers=answers["transformers"],
    )
    return head + _changes() + "\n".join([*lines, ""])


def _changes() -> str:
    """What became of one-option changes."""
    changes = json.loads((ROOT / "changes.json").read_text("utf-8"))
    verdicts = Counter[str]()
    for counts in changes["types"].values():
        verdicts.update(counts)
    return _CHANGES.format(
        tried=verdicts.total(),
        refused=verdicts["refused"] + verdicts["misfit"],
        theirs=verdicts["transformers refused"],
        wrong=verdicts["WRONG"] or "none",
        types=len(changes["types"]),
        transformers=changes["transformers"],
        equal=verdicts["equal"],
    )


def _plain(reason: str) -> str:
    return reason.replace("|", "\\|").replace("<", "&lt;")


_HEAD = """# Published option sets

This page lists {sets} option sets of published checkpoints, with the names and values of their `config.json`, and what Lucid does with
each: {loads} load and {refused} are refused.

{files} sets, of {types} model types, have the names and values of a file in a public repository, which the last column names. A name with a
colon says the repository and the model whose copy or fine-tune it holds. The other {memory} sets were written from memory, and no file
that confirms them was found. Their names that begin with `people/`, `transformers-` and `tpu-trained/` stand for what many repositories have.

Each set was made into a tiny model and held to transformers {transformers}. For a set that loads, Lucid's output is within 2e-5 of
transformers', relative to the largest number. transformers answers bit for bit the same with and without the options that Lucid
ignores. [Which options are read](models.md#options-of-configjson) explains the rule and `--ignore-option`.

The page is generated: `python -m tools.published_configs freeze` makes the answers, `python -m tools.make_published_page` the page.

"""

_CHANGES = """## One-option changes

For each of the {types} model types, each option of a tiny model was left out, set to null and set to other values, one at a time:
{tried:,} changes, compared with transformers {transformers}. Where float32 differs by more than 2e-5, both compute in float64: rounding then
vanishes, an error stays.

| Result | Changes |
| --- | --- |
| Lucid answers the same, within 2e-5 | {equal:,} |
| Lucid refuses the change or the inputs | {refused:,} |
| transformers refuses the change | {theirs:,} |
| Lucid answers something else | {wrong} |

`python -m tools.published_configs changes` tries them again.

## Option sets

"""


def main() -> None:
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
