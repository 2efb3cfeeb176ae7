"""`lucid verify`."""

from __future__ import annotations

from collections.abc import Iterable
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
from lucid.cli.values import check_known, settings
from lucid.cli.values import sizes as read_sizes
from lucid.core.targets.runtimes import GENERAL
from lucid.export import Target
from lucid.export.onnx_file.assemble import TARGET
from lucid.export.target import TARGET_NAMES
from lucid.layouts.part_in_file import known_inputs, part_in_file
from lucid.runtime import check_model_file
from lucid.testing import Divergence, bisect
from lucid.testing.part_parity import part_parity
from lucid.testing.random_inputs import THOROUGH
from lucid.testing.report import ParityReport, WeightReport
from lucid.testing.weights import compare_weights, export_again
from lucid.tracing.parts import CacheKind, ModelPart, PartName, trace_part
from lucid.tracing.trace import Model, trace

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
    attention: str,
    json: bool,
    part: PartName | None,
    cache: CacheKind | None,
    capacity: int | None,
    dtype: str | None,
    keep_io_types: bool,
    few_bits: FewBits,
) -> int:
    """Compare a file, or all files of a folder, and find the first differences; returns the exit code."""
    runs = [read_sizes([text]) for text in sizes]
    files = _files(model)
    checked = {file: check_model_file(file) for file in files}
    eager = load_in_few_bits(source, settings("--set", arguments), weights, seed, few_bits, reading)
    asked = bool(inputs or call or part or cache or capacity)
    reports: list[dict[str, Any]] = []
    passed = True
    for file, told in checked.items():
        compared = None if asked else _part_of_file(eager, told)
        if compared is None:
            compared = calls.part(eager, inputs, call, part, cache, capacity)
        if takes_images(told):
            compared = of_images(source, weights, compared, eager)
        known = trace(compared.function, kwargs=compared.inputs).sizes() if runs else set()
        for values in runs:
            check_known(values, known)
        recorded = {entry.key: entry.value for entry in told.metadata_props}.get(TARGET) if target is None else target
        wanted = Target.of(recorded if recorded in TARGET_NAMES else GENERAL, None, attention)
        half: dict[str, Any] = {"target": wanted, "dtype": dtype, "keep_io_types": keep_io_types}
        given: dict[str, Any] = {"providers": providers or None, "rtol": rtol, "atol": atol, **half}
        texts = Texts.of(source, weights, compared, eager) if takes_texts(told) else None
        if texts is not None:
            if runs:
                raise usage(f"--size: {file} takes texts, whose sizes are those of their tokens; leave it out")
            stored = _stored_with_texts(texts, compared, file, half)
            if not asked and stored.note:  # exported with all that the tokenizer makes, as layouts are
                whole = compared._replace(inputs=known_inputs(eager))
                full = _stored_with_texts(texts, whole, file, half)
                compared, stored = (compared, stored) if full.note else (whole, full)
            report = texts.parity(compared, file, stored, **given)
        else:
            of_runs = [{**dict.fromkeys(sorted(known), 1), **values} for values in runs] if runs else None
            report = part_parity(compared, file, sizes=of_runs, effort=THOROUGH, **given)
        passed = passed and report.passed
        first = None
        if texts is None and compared.otherwise is None and report.failing:
            first = _first_difference(compared, file, report, {"rtol": rtol, "atol": atol, **half})
        if json:
            found = first and {"node": first.node, "module": first.module, "max_abs": show.number(first.max_abs)}
            reports.append({"file": str(file), **parity_json(report), "first_difference": found})
        else:
            out = show.console()
            if model.is_dir():
                out.line(str(file))
            print_parity(out, report)
            if report.comparisons and not report.agrees and compared.otherwise is None:
                out.line(first or (_TEXTS if texts is not None else _NODES))
    if json:
        show.print_json({"folder": str(model), "passed": passed, "files": reports} if model.is_dir() else reports[0])
    return OK if passed else FAILED


def _part_of_file(model: Model, file: onnx.ModelProto) -> ModelPart | None:
    """The part of a model that a file holds, by its inputs and outputs."""
    return part_in_file(model, *map(_sizes, (file.graph.input, file.graph.output)))


def _sizes(values: Iterable[onnx.ValueInfoProto]) -> dict[str, list[int | str]]:
    """The sizes of values by name: numbers, and names."""
    shapes = {value.name: value.type.tensor_type.shape.dim for value in values}
    return {
        name: [size.dim_value if size.HasField("dim_value") else size.dim_param for size in shape]
        for name, shape in shapes.items()
    }


def _stored_with_texts(texts: Texts, part: ModelPart, file: Path, half: dict[str, Any]) -> WeightReport:
    """What a file that takes texts stores, compared with an export of this part."""
    again = export_again(trace_part(part), file, **half, preprocessing=texts.preprocessing())
    return compare_weights(file, again)


def _files(path: Path) -> list[Path]:
    """The file, or the ONNX files of a folder.

    Raises:
        CommandError: for a folder without any.
    """
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*.onnx") if file.is_file())
    if not found:
        raise usage(f"{path}: has no ONNX file; give an ONNX file, or the folder that `lucid export --for` wrote")
    return found


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
