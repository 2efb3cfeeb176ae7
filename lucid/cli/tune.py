"""`lucid tune`."""

from __future__ import annotations

from pathlib import Path

from lucid.cli import calls, show
from lucid.cli.bits_options import FewBits
from lucid.cli.errors import OK, usage
from lucid.cli.few_bits import load_in_few_bits
from lucid.cli.options import Reading
from lucid.cli.source import beside
from lucid.cli.values import check_known, settings
from lucid.cli.values import sizes as read_sizes
from lucid.export import Target
from lucid.export.exporter import check_folder, lower
from lucid.inspection.tuning import Tuning
from lucid.tracing.parts import CacheKind, PartName, trace_part


def run(
    *,
    source: str,
    output: Path | None,
    weights: Path | None,
    reading: Reading,
    arguments: list[str],
    inputs: list[str],
    call: list[str],
    seed: int,
    target: str,
    sizes: list[str],
    threads: int | None,
    seconds: float,
    part: PartName | None,
    cache: CacheKind | None,
    capacity: int | None,
    dtype: str | None,
    keep_io_types: bool,
    few_bits: FewBits,
    json: bool,
) -> int:
    """Measure, write, show; returns the exit code."""
    output = output or beside(source, ".tuned.json", may_exist=True)
    show.check_apart(output, json)
    check_folder(output, "model.tuned.json")
    points = [read_sizes([text]) for text in sizes]
    model = load_in_few_bits(source, settings("--set", arguments), weights, seed, few_bits, reading)
    traced = trace_part(calls.part(model, inputs, call, part, cache, capacity))
    names = traced.graph.sizes()
    for point in points or [{}]:
        check_known(point, names)
        if missing := sorted(names - point.keys()):
            example = ",".join(f"{name}={point.get(name, 1)}" for name in sorted(names))
            raise usage(f"say at which {', '.join(missing)} the model will run, as --size {example}")
    tuning = Tuning(points, threads, seconds)
    lowered = lower(traced, Target(target), dtype, keep_io_types, tune=tuning)
    table = lowered.table
    assert table is not None, "it has just been measured"
    table.save(output)
    if json:
        show.print_json({"file": str(output), **table.data()})
    else:
        out = show.console(beside=output)
        out.lines(lowered.explain())
        changed = sum(form.form != form.default for form in table.forms)
        out.line()
        out.line(f"{changed} of {len(table.forms)} nodes take another form than by default")
        show.written(out, [output])
    return OK
