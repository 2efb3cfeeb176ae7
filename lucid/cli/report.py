"""`lucid report`."""

from __future__ import annotations

from pathlib import Path

from lucid.cli import calls, show
from lucid.cli.errors import OK, usage
from lucid.cli.run import read_arrays
from lucid.cli.source import load_model
from lucid.cli.values import check_known, settings
from lucid.cli.values import sizes as read_sizes
from lucid.files import open_regular
from lucid.report.report import TARGETS
from lucid.report.report import report as write_report
from lucid.tracing import trace


def run(
    *,
    source: str,
    output: Path,
    weights: Path | None,
    arguments: list[str],
    inputs: list[str],
    call: list[str],
    seed: int,
    data: Path | None,
    tokens: Path | None,
    sizes: list[str],
    targets: list[str],
    seconds: float,
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
    model = load_model(source, settings("--set", arguments), weights, seed)
    graph = trace(model, kwargs=calls.arguments(model, inputs, call))
    check_known(given, graph.sizes())
    chosen = targets or list(TARGETS)
    write_report(
        graph, path=output, data=arrays, sizes=given, tokens=labels, targets=chosen, seconds=seconds, name=source
    )
    if json:
        show.print_json({"file": str(output), "bytes": show.bytes_of(output), "targets": chosen})
    else:
        show.console(beside=output).line(f"written  {show.file_and_size(output)}")
    return OK


def _labels(path: Path) -> list[str]:
    with open_regular(path) as file:
        return file.read().decode("utf-8").splitlines()
