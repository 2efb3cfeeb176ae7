"""`lucid verify`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from lucid.cli import terminal
from lucid.cli.errors import FAILED, OK, usage
from lucid.cli.model_inputs import check_arguments, check_known, model_files, part, target_of
from lucid.cli.model_inputs import sizes as read_sizes
from lucid.cli.options.commands import Verify
from lucid.cli.options.groups import FileOptions, ToleranceOptions, values_of
from lucid.cli.parity import parity_json, print_parity
from lucid.cli.preprocessing import Texts, of_images, takes_images, takes_texts
from lucid.cli.quantizing import load_precisions
from lucid.cli.source import export_of
from lucid.core.words.safe_text import visible
from lucid.export.onnx_file.assemble import TARGET
from lucid.export.onnx_file.element_codes import element_name
from lucid.export.options import ExportOptions
from lucid.export.target import TARGET_NAMES
from lucid.inspection.shapes import real_inputs
from lucid.layouts.card import CARD
from lucid.layouts.hub import is_stored_as
from lucid.layouts.manifest import stored_weights
from lucid.layouts.parts import known_inputs, part_in_file
from lucid.layouts.writing import weight_types
from lucid.nn import Module
from lucid.runtime import check_model_file
from lucid.runtime.requirements import limits_of
from lucid.testing import Divergence, bisect
from lucid.testing.part_parity import part_parity
from lucid.testing.report import ParityReport
from lucid.testing.run_sizes import THOROUGH
from lucid.testing.weights import compare_weights, export_again
from lucid.tracing.parts import ModelPart, trace_part
from lucid.tracing.trace import Model, trace

_NODES = "every node agrees by itself: check the names and the order of the outputs"
_TEXTS = "the file takes texts, so its nodes are not compared one by one: export it without its tokenizer for that"


def run(options: Verify) -> int:
    """Compare a file, or all files of a folder, and find the first differences; returns the exit code."""
    runs = [read_sizes([text]) for text in options.sizes]
    place = options.model or export_of(options.source)
    files = {file: check_model_file(file) for file in model_files(place)}
    models = load_precisions(options, options.dtype)
    _check_precisions(place, models)
    folder, data, passed = place.is_dir(), [], True
    for file, proto in files.items():
        model, dtype = _stored_as(file, models, options)
        compared, report, first = _verify(
            replace(options, dtype=options.dtype if dtype else None), model, file, proto, runs
        )
        passed = passed and report.passed
        if options.json:
            node = first and {"node": first.node, "module": first.module, "max_abs": terminal.number(first.max_abs)}
            data.append({"file": str(file), **parity_json(report), "first_difference": node})
            continue
        out = terminal.console()
        if folder or options.model is None:
            out.line(str(file))
        print_parity(out, report)
        if report.comparisons and not report.agrees and compared.otherwise is None:
            out.line(first or (_TEXTS if takes_texts(proto) else _NODES))
    if options.json:
        terminal.print_json({"folder": str(place), "passed": passed, "files": data} if folder else data[0])
    return OK if passed else FAILED


def _check_precisions(place: Path, models: Sequence[tuple[Model, Module | None, str | None]]) -> None:
    """Refuse a folder whose list of files names a precision in which no model is, with the options that give it."""
    known = [weight_types(model, dtype) for model, _, dtype in models if isinstance(model, Module)]
    stored = stored_weights(place) if known else []
    if {*stored} <= {*known}:
        return
    of_files, of_model = ("; ".join(visible(", ".join(kinds)) for kinds in each) for each in (stored, known))
    raise usage(
        f"{place}: its files store their weights in {of_files}, and those of the model are in {of_model}; give "
        f"{_precision_options(stored)}, and the other options of the export, which its {CARD} lists"
    )


def _precision_options(stored: Sequence[tuple[str, ...]]) -> str:
    """The options of an export to files with weights of such types."""
    bits, halves = list[str](), list[str]()
    for kinds in stored:
        widths = [kind.removesuffix(" bits") for kind in kinds if kind.endswith(" bits")]
        half = [kind for kind in kinds if kind in ("float16", "bfloat16")]
        bits += widths if len(widths) == 1 else ["PATTERN=BITS,..."] if widths else [] if half else ["float"]
        halves += half
    options = [] if bits in ([], ["float"]) else [f"--bits {','.join(dict.fromkeys(bits))}"]
    options += [f"--dtype {visible(half)}" for half in dict.fromkeys(halves)]
    return " ".join(options) or "no --bits and no --dtype"


def _stored_as(
    file: Path, models: Sequence[tuple[Model, Module | None, str | None]], options: Verify
) -> tuple[Model, str | None]:
    """The model whose weights are stored as in a file, and their dtype: of several precisions, by the file's name."""
    if len(models) == 1:
        return models[0][0], models[0][2]
    for model, _, dtype in models:
        if isinstance(model, Module) and is_stored_as(file, model, dtype):
            return model, dtype
    raise usage(f"--bits {options.bits}: {file} is in none of these precisions; give those of the export")


def _verify(
    options: Verify, model: Model, file: Path, proto: onnx.ModelProto, runs: Sequence[Mapping[str, int]]
) -> tuple[ModelPart, ParityReport, Divergence | None]:
    """The model that a file was compared with, the report, and the first node that differs."""
    options = _with_inputs_of(file, proto, options, model)
    customized = bool(
        options.inputs or options.call or options.part or options.cache or options.capacity or options.outputs
    )
    compared = None if customized else _part_of_file(model, proto)
    if compared is None:
        compared = part(model, options)
    if takes_images(proto):
        compared = of_images(options, compared, model)
    known = trace(compared.function, kwargs=compared.inputs).sizes() if runs else set()
    for values in runs:
        check_known(values, known)
    recorded = {entry.key: entry.value for entry in proto.metadata_props}.get(TARGET)
    target = target_of(options, recorded if recorded in TARGET_NAMES else None)
    of_file, tolerance = values_of(options, FileOptions), values_of(options, ToleranceOptions)
    how = ExportOptions(target, **of_file)
    providers = options.providers or None
    if not takes_texts(proto):
        sizes = [{**dict.fromkeys(sorted(known), 1), **values} for values in runs] if runs else None
        report = part_parity(compared, file, how, sizes=sizes, effort=THOROUGH, providers=providers, **tolerance)
        if not report.failing or compared.otherwise is not None:
            return compared, report, None
        return compared, report, _first_difference(compared, file, report, target=target, **of_file, **tolerance)
    texts = Texts.of(options, compared, model)
    if runs:
        raise usage(f"--size: {file} takes texts, whose sizes are those of their tokens; leave it out")
    how = replace(how, preprocessing=texts.preprocessing())
    stored = compare_weights(file, export_again(trace_part(compared), file, how))
    if not customized and stored.note:  # exported with all that the tokenizer makes, as layouts are
        whole = compared._replace(inputs=known_inputs(model))
        full = compare_weights(file, export_again(trace_part(whole), file, how))
        compared, stored = (compared, stored) if full.note else (whole, full)
    report = texts.parity(compared, file, target=target, weights=stored, providers=providers, **of_file, **tolerance)
    return compared, report, None


def _with_inputs_of(path: Path, file: onnx.ModelProto, options: Verify, model: Model) -> Verify:
    """The options with the inputs of a file as `--input`, where none is given and the model does not know its own."""
    if options.inputs or known_inputs(model) or takes_images(file) or takes_texts(file):
        return options
    inputs = real_inputs(file.graph)
    check_arguments(model, f"{path} has the inputs", dict.fromkeys(value.name.split(".")[0] for value in inputs))
    sizes = _sizes(inputs, _limited(file))
    texts = [
        f"{value.name}:{element_name(value.type.tensor_type.elem_type)}:{','.join(map(str, sizes[value.name]))}"
        for value in inputs
    ]
    return replace(options, inputs=texts)


def _part_of_file(model: Model, file: onnx.ModelProto) -> ModelPart | None:
    """The part of a model that a file holds, by its inputs and outputs."""
    return part_in_file(model, _sizes(real_inputs(file.graph), _limited(file)), _sizes(file.graph.output, {}))


def _limited(file: onnx.ModelProto) -> dict[str, str]:
    """The names of sizes with limits, and these as text, such as ``"2 <= L <= 64"``."""
    return {
        str(size): f"{least} <= {size}{'' if most is None else f' <= {most}'}"
        for size, least, most in limits_of(file).refusing
        if str(size).isidentifier()
    }


def _sizes(values: Iterable[onnx.ValueInfoProto], limited: Mapping[str, str]) -> dict[str, list[int | str]]:
    """The sizes of values by name: numbers, and names, with their limits."""
    shapes = {value.name: value.type.tensor_type.shape.dim for value in values}
    return {
        name: [
            size.dim_value if size.HasField("dim_value") else limited.get(size.dim_param, size.dim_param)
            for size in shape
        ]
        for name, shape in shapes.items()
    }


def _first_difference(compared: ModelPart, path: Path, report: ParityReport, **options: Any) -> Divergence | None:
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
