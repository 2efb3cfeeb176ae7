"""Which form of usual nodes is fastest, by processor: the tables from which the defaults of target "cpu" come.

`python -m benchmarks.forms --threads 1` measures on this machine and writes docs/benchmarks/forms/; with `--show` it
only writes the table of docs/benchmarks.md from these files. A test holds the defaults to the forms that are best
on average over all of them.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

import lucid
from benchmarks.attention import HEADS, WIDTH
from lucid import ops
from lucid.core.graph.graph import Graph
from lucid.export import Target
from lucid.export.tuned.tuned_file import read_table
from lucid.inspection.tuning import TunedForm, TunedTable, Tuning, in_turns
from lucid.inspection.tuning.candidates import contests
from lucid.inspection.tuning.tuning import GAIN

ROOT = Path(__file__).parents[1]
PAGE, FOLDER = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "benchmarks" / "forms"
LENGTHS = (16, 64, 128, 200, 512, 2048)
TARGET = Target("cpu")
_SECTION = re.compile(r"(?<=<!-- forms -->\n).*?(?=<!-- end -->)", re.S)


class Usual(NamedTuple):
    """A node that usual models have, and the lengths at which it is measured."""

    name: str
    graph: Graph
    lengths: tuple[int, ...]

    @property
    def key(self) -> str:
        """Its text in a table."""
        return contests(self.graph, TARGET)[-1].key

    @property
    def default(self) -> str:
        """The form that it takes."""
        return next(iter(contests(self.graph, TARGET)[-1].models(TARGET)))

    @property
    def kind(self) -> str:
        """The first word of its name, such as "causal"."""
        return self.name.split(",")[0]


def _attention(**options: Any) -> Callable[..., Any]:
    return lambda *given: ops.attention(*given[:3], None, *given[3:], **options)


def nodes() -> Iterator[Usual]:
    """What is measured: attention and norms of each length, and attention of any length."""
    for length in LENGTHS:
        for name, graph in (*_attentions(length), *_norms(length)):
            yield Usual(name, graph, (length,))
    for name, graph in _attentions("L"):
        yield Usual(f"{name}, any length", graph, LENGTHS)


def _attentions(length: int | str) -> Iterator[tuple[str, Graph]]:
    heads = [lucid.spec(1, HEADS, length, WIDTH)] * 3
    packed = [lucid.spec(1, length, HEADS * WIDTH)] * 3
    few = [lucid.spec(1, HEADS // 3, length, WIDTH)] * 2
    kept = lucid.spec(1, length, dtype="bool")
    for name, function, specs in (
        ("no mask", _attention(), heads),
        ("no mask, packed", _attention(heads=HEADS), packed),
        ("causal", _attention(is_causal=True), heads),
        ("causal, packed", _attention(is_causal=True, heads=HEADS), packed),
        ("causal, 3 heads read one", _attention(is_causal=True), [heads[0], *few]),
        ("key mask", _attention(), [*heads, kept]),
        ("causal, key mask", _attention(is_causal=True), [*heads, kept]),
        ("causal, window of 128", _attention(is_causal=True, window=128), heads),
        ("causal, softcap", _attention(is_causal=True, softcap=50.0), heads),
    ):
        yield name, lucid.trace(function, *specs)


def _norms(length: int) -> Iterator[tuple[str, Graph]]:
    row, wide = lucid.spec(1, length, HEADS * WIDTH), lucid.spec(1, length, 4 * HEADS * WIDTH)
    scale = lucid.ones(HEADS * WIDTH)
    for name, function, specs in (
        ("layer norm of a sum", lambda x, y: ops.layer_norm(x + y, scale, scale, axes=1), [row, row]),
        ("layer norm", lambda x: ops.layer_norm(x, scale, scale, axes=1), [row]),
        ("RMS norm", lambda x: ops.rms_norm(x, scale), [row]),
        ("GELU", ops.gelu, [wide]),
    ):
        yield name, lucid.trace(function, *specs)


def measured(threads: int, seconds: float) -> TunedTable:
    """All of them on this machine."""
    # With one thread the processor's time is that of the node, whatever else runs on the machine.
    clock = time.process_time if threads == 1 else time.perf_counter
    forms: list[TunedForm] = []
    for usual in nodes():
        sizes = [{"L": length} for length in usual.lengths] if len(usual.lengths) > 1 else ()
        tuning = Tuning(sizes, threads, seconds, partial(in_turns, clock=clock))
        forms += tuning(usual.graph, TARGET).forms
    return TunedTable(TARGET.provider, tuple(forms), threads)


def tables() -> list[TunedTable]:
    """Those of the processors measured so far."""
    return [read_table(path) for path in sorted(FOLDER.glob("*.json"))]


def means(found: Sequence[TunedTable], key: str) -> dict[str, float]:
    """By form of a node, its time relative to that of the fastest one at the same length: the geometric mean over all
    tables that have the node, and over its lengths. Only forms that all of these measured.
    """
    measured = [form.microseconds for table in found if (form := table.find(key)) is not None]
    common = [name for name in measured[0] if all(name in times for times in measured)] if measured else []
    columns = [[times[name][index] for name in common] for times in measured for index in range(len(times[common[0]]))]
    relative = [[time / min(column) for time in column] for column in columns]
    return {name: geometric_mean(row) for name, row in zip(common, zip(*relative, strict=True), strict=True)}


def having(found: Sequence[TunedTable], usual: Usual) -> list[TunedTable]:
    """The tables that measured the form that a node takes: older ones may not know it."""
    forms = [(table, table.find(usual.key)) for table in found]
    return [table for table, form in forms if form is not None and usual.default in form.microseconds]


def regrets(found: Sequence[TunedTable]) -> dict[tuple[str, tuple[int, ...]], float]:
    """By kind of node and lengths, what its defaults take beside the best forms on average. What a default depends on
    is the same for all nodes of a kind.
    """
    by_kind: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    for usual in nodes():
        mean = means(having(found, usual), usual.key)
        by_kind.setdefault((usual.kind, usual.lengths), []).append(mean[usual.default] / min(mean.values()))
    return {kind: geometric_mean(each) for kind, each in by_kind.items()}


def markdown(found: list[TunedTable]) -> str:
    """A row for each node and length, a column for each table: the default form's time, and what is faster."""
    titles = [f"{t.processor}, {t.threads} thread{'s' * (t.threads != 1)}" for t in found]
    lines = [["", "L", *titles, "best on average"], ["---"] * (3 + len(titles))]
    for usual in nodes():
        key, default = usual.key, usual.default
        for index, length in enumerate(usual.lengths):
            cells = [_cell(table.find(key), default, index) for table in found]
            lines.append(
                [usual.name, str(length), *cells, _best(means(having(found, usual), key), default) if not index else ""]
            )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(form: TunedForm | None, default: str, index: int) -> str:
    if form is None:
        return ""
    return _beside({name: times[index] for name, times in form.microseconds.items()}, default, "{:.0f} µs")


def _best(mean: Mapping[str, float], default: str) -> str:
    return _beside(mean, default, "{:.2f}") if default in mean else ""


def _beside(times: Mapping[str, float], default: str, shown: str) -> str:
    """The default's time, and the fastest form beside it if it takes clearly less."""
    if default not in times:
        return ""
    text = f"{default} {shown.format(times[default])}"
    name = min(times, key=lambda name: times[name])
    faster = times[name] < (1 - GAIN) * times[default]
    return f"{text}; **{name} {times[name] / times[default]:.2f}**" if faster else text


def main() -> None:
    """Measure, or write the page's table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each node and length")
    parser.add_argument("--show", action="store_true", help="only write the table")
    given = parser.parse_args()
    if not given.show:
        table = measured(given.threads, given.seconds)
        slug = re.sub(r"[^a-z0-9]+", "-", table.processor.lower()).strip("-")
        FOLDER.mkdir(exist_ok=True)
        table.save(FOLDER / f"{slug}-{given.threads}.json")
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_SECTION.sub(lambda _: f"\n{markdown(tables())}\n\n", text), encoding="utf-8")


if __name__ == "__main__":
    main()
