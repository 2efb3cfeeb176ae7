"""Which form of usual nodes is fastest, by processor: the tables behind the defaults of target "cpu".

`python -m benchmarks.forms --threads 1` measures on this machine and writes docs/benchmarks/forms/; with `--show` it
only writes the table of docs/benchmarks.md from these files.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lucid
from benchmarks.attention import HEADS, WIDTH
from lucid import ops
from lucid.export import Target
from lucid.export.tuned_file import read_table
from lucid.graph import Graph
from lucid.tuning import TunedForm, TunedTable, Tuning, in_turns
from lucid.tuning.candidates import contests

ROOT = Path(__file__).parents[1]
PAGE, FOLDER = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "benchmarks" / "forms"
LENGTHS = (16, 64, 128, 200, 512, 2048)
TARGET = Target("cpu")
_CLEAR = 0.95  # of the default's time: what takes more is as fast
_SECTION = re.compile(r"(?<=<!-- forms -->\n).*?(?=<!-- end -->)", re.S)


def _attention(**options: Any) -> Callable[..., Any]:
    return lambda *given: ops.attention(*given[:3], None, *given[3:], **options)


def nodes() -> Iterator[tuple[str, int, Graph]]:
    """What is measured: a name, a length, and the node as a graph."""
    for length in LENGTHS:
        heads = [lucid.spec(1, HEADS, length, WIDTH)] * 3
        packed = [lucid.spec(1, length, HEADS * WIDTH)] * 3
        few = [lucid.spec(1, HEADS // 3, length, WIDTH)] * 2
        kept = lucid.spec(1, length, dtype="bool")
        row, wide = lucid.spec(1, length, HEADS * WIDTH), lucid.spec(1, length, 4 * HEADS * WIDTH)
        scale = lucid.ones(HEADS * WIDTH)
        for name, function, specs in (
            ("no mask", _attention(), heads),
            ("no mask, packed", _attention(heads=HEADS), packed),
            ("causal", _attention(is_causal=True), heads),
            ("causal, packed", _attention(is_causal=True, heads=HEADS), packed),
            ("causal, 3 heads read one", _attention(is_causal=True), [heads[0], *few]),
            ("key mask", _attention(), [*heads, kept]),
            ("causal and key mask", _attention(is_causal=True), [*heads, kept]),
            ("window of 128", _attention(is_causal=True, window=128), heads),
            ("causal, softcap", _attention(is_causal=True, softcap=50.0), heads),
            ("layer norm of a sum", lambda x, y, w=scale: ops.layer_norm(x + y, w, w, axes=1), [row, row]),
            ("layer norm", lambda x, w=scale: ops.layer_norm(x, w, w, axes=1), [row]),
            ("RMS norm", lambda x, w=scale: ops.rms_norm(x, w), [row]),
            ("GELU", ops.gelu, [wide]),
        ):
            yield name, length, lucid.trace(function, *specs)


def measured(threads: int, seconds: float) -> TunedTable:
    """All of them on this machine."""
    # With one thread the processor's time is that of the node, whatever else runs on the machine.
    clock = time.process_time if threads == 1 else time.perf_counter
    tuning = Tuning((), threads, seconds, partial(in_turns, clock=clock))
    return TunedTable(
        TARGET.provider, tuple(form for *_, graph in nodes() for form in tuning(graph, TARGET).forms), threads
    )


def tables() -> list[TunedTable]:
    """Those of the processors measured so far."""
    return [read_table(path) for path in sorted(FOLDER.glob("*.json"))]


def markdown(found: list[TunedTable]) -> str:
    """A row for each node and length, a column for each table: the default form's time, and what is faster."""
    titles = [f"{t.processor}, {t.threads} thread{'s' * (t.threads != 1)}" for t in found]
    lines = [["", "L", *titles], ["---"] * (2 + len(titles))]
    for name, length, graph in nodes():
        key = contests(graph, TARGET)[-1].key
        lines.append([name, str(length), *(_cell(table.find(key)) for table in found)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(form: TunedForm | None) -> str:
    if form is None:
        return ""
    times = {name: time for name, (time,) in form.microseconds.items()}
    default = times[form.default]
    shown = f"{form.default} {default:.0f} µs"
    name = min(times, key=lambda name: times[name])
    return f"{shown}; **{name} {times[name] / default:.2f}**" if times[name] < _CLEAR * default else shown


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
