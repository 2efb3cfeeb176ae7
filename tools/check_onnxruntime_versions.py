"""Run the attention contract in several onnxruntime releases, each in a separate environment.

    python tools/check_onnxruntime_versions.py                      # the releases in RELEASES
    python tools/check_onnxruntime_versions.py 1.23.2=1.23 1.28.0   # a release, and the floor that is exported for

Everything is exported with each release as the oldest (`Target(onnxruntime=...)`) and must be exact in it. The Attention op
is also exported as if the release had no faults, which shows what the guards are for. Fails where a guarded export is not
exact. Without arguments it writes docs/onnxruntime-versions.md. Environments are kept in .versions/ (100 MB each).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "onnxruntime-versions.md"
RELEASES = [
    "1.23.0=1.23",
    "1.23.2=1.23.1",
    "1.24.4=1.24",
    "1.25.1=1.25",
    "1.26.0=1.26",
    "1.27.0=1.27",
    "1.28.0",
    "1.31.1=1.28",
    "1.32.0=1.28",
]
NO_KERNEL = "does not load"  # said by onnxruntime
REFUSED = "refused"  # said by the export
NEEDED = ["numpy", "onnx", "ml_dtypes", "threadpoolctl", "pytest"]  # what Lucid and its tests import


def python_with(release: str, folder: Path) -> Path:
    """The interpreter of an environment with an onnxruntime release; made on first use."""
    home = folder / release
    python = home / "bin" / "python"
    done = home / ".installed"
    if not done.exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"onnxruntime=={release}", *NEEDED], check=True)
        done.touch()
    return python


def measured(release: str, floor: str, folder: Path) -> dict[str, Any]:
    """The results of tools/onnxruntime_contract.py in a release."""
    command = [str(python_with(release, folder)), str(ROOT / "tools" / "onnxruntime_contract.py"), floor]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"onnxruntime {release}: {done.stderr}")
    part: dict[str, Any] = json.loads(done.stdout)
    return part


def page(results: list[dict[str, Any]]) -> str:
    """The tables as Markdown."""
    releases = [result["onnxruntime"] for result in results]
    head = [f"| | {' | '.join(releases)} |", "|---" * (len(results) + 1) + "|"]
    lines = [INTRODUCTION, *head]
    for title in ("floor", "newest opset"):
        lines.append(f"| {title} | {' | '.join(str(result[title]) for result in results)} |")
    for name in dict.fromkeys(name for result in results for name in result["contract"]):
        parts = [result["contract"].get(name, {"exact": "", "of": ""}) for result in results]
        lines.append(f"| {name} | {' | '.join('{exact} / {of}'.format(**part).strip(' /') for part in parts)} |")
    lines += ["", OPS, *head]
    for title, words in (("exact", []), ("refused by the export", [REFUSED]), ("not loaded", [NO_KERNEL])):
        lines.append(f"| {title} | {' | '.join(_counted(result, words) for result in results)} |")
    lines += ["", *(f"- {result['onnxruntime']}: {_told(result)}" for result in results)]
    lines += ["", ATTENTION, *head]
    for name in sorted({name for result in results if result["Attention"] for name in result["Attention"]["wrong"]}):
        lines.append(f"| {name} | {' | '.join(_words(result, name) for result in results)} |")
    return "\n".join([*lines, "", OUTRO])


def _counted(result: dict[str, Any], words: list[str]) -> str:
    """How many combinations of an op and an element type had this result at every opset that was tried."""
    parts = result["ops"].values()
    named = {name for part in parts for name, outcome in part["wrong"].items() if outcome == words}
    tried = {name for part in parts for name in part["tried"]}
    wrong = {name for part in parts for name in part["wrong"]}
    return str(len(named) if words else len(tried - wrong))


def _told(result: dict[str, Any]) -> str:
    outcomes = (("refused", _named(result, REFUSED)), ("not loaded", _named(result, NO_KERNEL)))
    return "; ".join(f"{word} {names}" for word, names in outcomes if names)


def _named(result: dict[str, Any], word: str) -> str:
    """The ops and element types with this result."""
    names: dict[str, set[str]] = {}
    for part in result["ops"].values():
        for name, words in part["wrong"].items():
            op, _, dtype = name.rpartition(" ")
            if words == [word]:
                names.setdefault(dtype, set()).add(op.partition("-")[0])
    return "; ".join(f"{dtype} {', '.join(sorted(ops))}" for dtype, ops in sorted(names.items()))


def _words(result: dict[str, Any], name: str) -> str:
    wrong = result["Attention"]["wrong"] if result["Attention"] else {}
    return ", ".join(wrong.get(name, ["exact"]))


INTRODUCTION = """# onnxruntime releases

`Target(onnxruntime="1.23")` exports a model that this release and all later ones compute correctly: forms that it would
compute wrongly are not taken (`explain` gives the reason), and an opset that it cannot load is an error. The facts are
data, in [`lucid/core/targets/runtimes.py`](../lucid/core/targets/runtimes.py). The default is 1.28.

ONNX has a newer Attention at opset 25. onnxruntime 1.32 knows it and has no kernel for it: it expands the node into about 60, where
a query whose keys a floating mask hides with the lowest number gets the mean of the values. So exports for opsets 25 and 26 write
attention in primitive ops; ask for opset 24 to get the node (`explain` says so).

In the tables below, each release ran the models exported for it: every case of [the contract](attention.md), packed and
with split heads, at 32 combinations of sizes, with returned weights and caches. A result counts as exact within 2e-6 of the
float64 reference. Made by `python tools/check_onnxruntime_versions.py`, on the CPU.
"""
OPS = """## Ops by element type

Every op in every element type that it takes eagerly, exported for the same opsets with target "any". Floats must be within
a few units in the last place of the eager result, integers equal, with inputs up to 2^58. (bfloat16 models are run by the
tests, in 1.32.0 only.) Where a release has no kernel, the op is computed in a wider type or in another way; if neither is
exact, the export refuses. "Not loaded" counts the models that onnxruntime itself refuses to load.
"""
ATTENTION = """## What the guards are for

The ONNX Attention op of each release, used for everything as if the release were the newest:
"""
OUTRO = """Masks hide all keys from a third of the queries here, as padding does. "wrong" means that the result is the mean of the values
instead of zero, or, for causal attention, that a single query sees every key.
"""


def main() -> None:
    """Measure, write the page, and fail where a guarded export is not exact."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", default=RELEASES, help="release, or release=floor")
    parser.add_argument("--folder", type=Path, default=ROOT / ".versions", help="where the environments are kept")
    options = parser.parse_args()
    results = []
    for release, _, floor in (text.partition("=") for text in options.releases):
        results.append(measured(release, floor or release, options.folder))
        inexact = {name: part["wrong"] for name, part in results[-1]["contract"].items() if part["wrong"]}
        inexact |= {
            name: words
            for part in results[-1]["ops"].values()
            for name, words in part["wrong"].items()
            if words not in ([NO_KERNEL], [REFUSED])
        }
        print(f"onnxruntime {release}, exported for {floor or release}: {inexact or 'exact'}")
        if inexact:
            sys.exit(1)
    if options.releases == RELEASES:
        PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
