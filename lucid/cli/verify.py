"""`lucid verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from lucid.cli import calls, show
from lucid.cli.bits_options import FewBits
from lucid.cli.errors import FAILED, OK, usage
from lucid.cli.few_bits import load_in_few_bits
from lucid.cli.options import Reading
from lucid.cli.parity import parity_json, print_parity
from lucid.cli.preprocessing import Texts, of_images, takes_images, takes_texts
from lucid.cli.targets import target_of
from lucid.cli.values import check_known, settings
from lucid.cli.values import sizes as read_sizes
from lucid.export import Target
from lucid.export.onnx_file.assemble import TARGET
from lucid.export.target import TARGET_NAMES
from lucid.runtime import check_model_file
from lucid.testing import Divergence, bisect
from lucid.testing.part_parity import part_parity
from lucid.testing.random_inputs import THOROUGH
from lucid.testing.report import ParityReport
from lucid.testing.weights import compare_weights, export_again
from lucid.tracing.parts import CacheKind, ModelPart, PartName, trace_part
from lucid.tracing.trace import trace

_NODES = "every node agrees by itself: check the names and the order of the outputs"
_TEXTS = "the file takes texts, so its nodes are not compared one by one: export it without its tokenizer for that"


def run(
    *,
    source: str,
    model: Path,
    weights: Path | None,
    reading: Reading,
    arguments: list[str],
    inputs: list[str],
    call: list[str],
    seed: int,
    providers: list[str],
    sizes: list[str],
    rtol: float | None,
    atol: float | None,
    target: str | None,
    tuned: Path | None,
    attention: str,
    json: bool,
    part: PartName | None,
    cache: CacheKind | None,
    capacity: int | None,
    dtype: str | None,
    keep_io_types: bool,
    few_bits: FewBits,
) -> int:
    """Compare, and find the first difference if there is one; returns the exit code."""
    runs = [read_sizes([text]) for text in sizes]
    told = check_model_file(model)
    recorded = {entry.key: entry.value for entry in told.metadata_props}.get(TARGET) if target is None else target
    eager = load_in_few_bits(source, settings("--set", arguments), weights, seed, few_bits, reading)
    compared = calls.compared_part(eager, inputs, call, part, cache, capacity)
    if takes_images(told):
        compared = of_images(source, weights, compared, eager)
    if runs:
        known = trace(compared.function, kwargs=compared.inputs).sizes()
        for values in runs:
            check_known(values, known)
    wanted = Target.of(target_of(recorded if recorded in TARGET_NAMES else None, tuned), None, attention)
    half: dict[str, Any] = {"target": wanted, "dtype": dtype, "keep_io_types": keep_io_types}
    given: dict[str, Any] = {"providers": providers or None, "rtol": rtol, "atol": atol, **half}
    texts = Texts.of(source, weights, compared, eager) if takes_texts(told) else None
    if texts is not None:
        if runs:
            raise usage(f"--size: {model} takes texts, whose sizes are those of their tokens; leave it out")
        again = export_again(trace_part(compared), model, **half, preprocessing=texts.preprocessing())
        report = texts.parity(compared, model, compare_weights(model, again), **given)
    else:
        of_runs = [{**dict.fromkeys(sorted(known), 1), **values} for values in runs] if runs else None
        report = part_parity(compared, model, sizes=of_runs, effort=THOROUGH, **given)
    first = None
    if texts is None and report.failing:
        first = _first_difference(compared, model, report, {"rtol": rtol, "atol": atol, **half})
    if json:
        found = first and {"node": first.node, "module": first.module, "max_abs": show.number(first.max_abs)}
        show.print_json({"file": str(model), **parity_json(report), "first_difference": found})
    else:
        out = show.console()
        print_parity(out, report)
        if report.comparisons and not report.agrees:
            out.line(first or (_TEXTS if texts is not None else _NODES))
    return OK if report.passed else FAILED


def _first_difference(
    compared: ModelPart, path: Path, report: ParityReport, options: dict[str, Any]
) -> Divergence | None:
    """The first node that differs, with the inputs of the first run that failed."""
    exported = onnx.load(path)
    opset = next((entry.version for entry in exported.opset_import if not entry.domain), None)
    return bisect(
        compared.function,
        kwargs=compared.inputs,
        exported=exported,
        opset=opset,
        provider=next(c.provider for c in report.comparisons if not c.passed),
        arrays=report.failing,
        **options,
    )
