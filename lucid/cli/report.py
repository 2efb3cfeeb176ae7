"""`lucid report`."""

from __future__ import annotations

from pathlib import Path

from lucid.cli import calls, show
from lucid.cli.bits_options import FewBits
from lucid.cli.errors import OK, usage
from lucid.cli.few_bits import in_few_bits, text_calls
from lucid.cli.run import read_arrays
from lucid.cli.source import checkpoint_of, load_model
from lucid.cli.values import check_known, settings
from lucid.cli.values import sizes as read_sizes
from lucid.files import open_regular
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.report.report import TARGETS
from lucid.report.report import report as write_report
from lucid.tracing import trace


def run(
    *,
    source: str,
    output: Path,
    weights: Path | None,
    task: str | None,
    arguments: list[str],
    inputs: list[str],
    call: list[str],
    seed: int,
    data: Path | None,
    tokens: Path | None,
    sizes: list[str],
    targets: list[str],
    seconds: float,
    few_bits: FewBits,
    json: bool,
) -> int:
    """Collect and write; returns the exit code."""
    if not output.parent.is_dir():
        raise usage(f"--output: the folder {str(output.parent)!r} does not exist; create it first")
    show.check_apart(output, json)
    given = read_sizes(sizes)
    if given and data is not None:
        raise usage("got both --size and --data, expected one: the data determine the sizes")
    labels = _labels(tokens) if tokens is not None else []
    arrays = read_arrays(data) if data is not None else None
    model = load_model(
        source, settings("--set", arguments), weights, seed, dequantize=few_bits.bits is not None, task=task
    )
    small = in_few_bits(model, few_bits, weights or checkpoint_of(source))
    kwargs = calls.arguments(small, inputs, call)
    graph = trace(small, kwargs=kwargs)
    check_known(given, graph.sizes())
    chosen = targets or list(TARGETS)
    floating = model if isinstance(model, Module) and small is not model else None
    checkpoint, decoder = weights or checkpoint_of(source), isinstance(model, CausalDecoder)
    write_report(
        graph if floating is None else small,
        kwargs=kwargs,
        path=output,
        data=arrays,
        sizes=given,
        tokens=labels,
        targets=chosen,
        seconds=seconds,
        name=source,
        floating=floating,
        calls=None if floating is None else text_calls(few_bits.text, checkpoint, decoder),
    )
    if json:
        show.print_json({"file": str(output), "bytes": show.bytes_of(output), "targets": chosen})
    else:
        show.written(show.console(beside=output), [output])
    return OK


def _labels(path: Path) -> list[str]:
    with open_regular(path) as file:
        return file.read().decode("utf-8").splitlines()
