"""`lucid export`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from lucid.cli import terminal
from lucid.cli.errors import FAILED, OK, usage
from lucid.cli.model_inputs import part, target_of
from lucid.cli.options.commands import Export, FolderOptions
from lucid.cli.options.groups import (
    FileOptions,
    JsonCommand,
    QuantizedModelOptions,
    ToleranceOptions,
    names_of,
    values_of,
)
from lucid.cli.parity import cost_json, parity_json, print_cost, print_parity
from lucid.cli.preprocessing import Texts, of_images
from lucid.cli.python_source import is_import, no_such_source
from lucid.cli.quantizing import load_precisions, load_quantized, measured_cost, several_precisions
from lucid.cli.source import beside, checkpoint_in, ending_for
from lucid.export import Target
from lucid.export.explain import Explanation, inside, title
from lucid.export.exporter import Lowered, check_folder, lower
from lucid.export.options import ExportOptions
from lucid.files.atomic import is_stream
from lucid.files.folders import check_place
from lucid.layouts import LAYOUTS, write_folder
from lucid.layouts.adapters import write_kept_adapters
from lucid.layouts.layout import Exported
from lucid.layouts.writing import replacing
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.nn.quantized import QuantizedWeight
from lucid.nn.weights.layer_weights import parameter_count
from lucid.runtime.model_file import external_files
from lucid.testing import ParityReport
from lucid.testing.original_parity import original_parity
from lucid.testing.part_parity import part_parity
from lucid.testing.quantizing_cost import QuantizingCost
from lucid.testing.weights import compare_weights
from lucid.tracing.parts import trace_part
from lucid.tracing.trace import Model


def run(options: Export) -> int:
    """Export to a file, or with --for to a folder; returns the exit code."""
    if options.layout is not None:
        return _export_folder(options, options.layout)
    if options.force:
        raise usage("--force is for folders, which --for writes; a file is replaced anyway")
    return _export_file(options)


def _export_file(options: Export) -> int:
    """Export, check, show."""
    output = options.output or beside(options.source, ending_for(None))
    terminal.check_apart(output, options.json)
    check_folder(output)
    model, original = load_quantized(options)
    _check_level(options, model)
    chosen = part(model, options)
    if options.with_preprocessor:
        chosen = of_images(options, chosen, model)
    traced = trace_part(chosen)
    texts = Texts.of(options, chosen, model) if options.with_tokenizer else None
    preprocessing = None if texts is None else texts.preprocessing()
    of_file = values_of(options, FileOptions)
    how = ExportOptions(_target(options), **of_file, preprocessing=preprocessing)
    lowered = lower(traced, how)
    exported = lowered.write(output, True if options.external_data else "auto")
    explanation = lowered.explain()
    tolerance = values_of(options, ToleranceOptions)
    written = exported if is_stream(output) else output
    report: ParityReport | None = None
    if options.check and texts is None:
        report = part_parity(chosen, written, how, again=lowered, **tolerance)
    elif options.check and texts is not None:
        weights = compare_weights(written, lowered)
        report = texts.parity(chosen, written, target=how.target, weights=weights, **of_file, **tolerance)
    by_torch = None
    if options.check and isinstance(model, PublishedModel) and _is_as_read(options):
        by_torch = original_parity(model, part(model, replace(options, outputs=[])), written, **tolerance)
    cost = measured_cost(original if options.check else None, model, partial(part, options=options))
    adapters = [] if is_stream(output) or not isinstance(model, Module) else write_kept_adapters(model, output.parent)
    data = _summary(model, lowered, exported, explanation, output, adapters)
    if options.json:
        if by_torch is not None:
            data["original"] = parity_json(by_torch)
        terminal.print_json({**data, "parity": parity_json(report) if report else None, "quantizing": cost_json(cost)})
    else:
        out = terminal.console(beside=output)
        _print(out, data, explanation, report, by_torch, original if options.check else None, cost, options.verbose)
        if isinstance(model, CausalDecoder) and options.cache is None and options.part is None:
            out.line(
                "note        each run reads the whole text: to write text, export with --cache, or a folder with its "
                "tokenizer by --for onnxruntime"
            )
    return FAILED if any(each and not each.passed for each in (report, by_torch)) else OK


def _is_as_read(options: Export) -> bool:
    """Whether a file computes what torch computes from the same inputs."""
    changed = options.bits, options.dtype, options.with_tokenizer, options.with_preprocessor
    return options.via is not None and not any(changed)


def _target(options: Export) -> Target:
    """The target, with the release, lengths and rows that it expects, and the accuracy level."""
    target = target_of(options)
    if options.accuracy_level is not None:
        target = replace(target, opset=0, accuracy_level=options.accuracy_level)
    if options.onnxruntime is not None:
        target = replace(target, opset=0, onnxruntime=options.onnxruntime)
    if options.rows_apart:
        target = replace(target, opset=0, rows_apart=True)
    if options.lengths is not None:
        lengths = re.fullmatch(r"(\d{1,18}):(\d{1,18})", options.lengths)
        if lengths is None:
            raise usage(f"--lengths is {options.lengths!r}, expected the fewest and the most queries, such as 1:512")
        target = target.with_lengths((int(lengths[1]), int(lengths[2])))
    return Target.of(target, options.opset, None)


def _summary(
    model: Model,
    lowered: Lowered,
    exported: onnx.ModelProto,
    explanation: Explanation,
    path: Path,
    adapters: Sequence[Path],
) -> dict[str, Any]:
    """Everything that the command reports, as plain data."""
    files = [path, *(path.with_name(name) for name in sorted(external_files(exported) - {path.name})), *adapters]
    operators = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in exported.graph.node
    )
    return {
        "file": str(path),
        "files": terminal.files_json(files),
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in exported.opset_import},
        "ir_version": exported.ir_version,
        "inputs": {name: str(kind) for name, kind in lowered.inputs.items()},
        "outputs": {name: str(kind) for name, kind in lowered.traced.output_types().items()},
        "parameters": parameter_count(model) if isinstance(model, Module) else 0,
        "nodes": dict(operators.most_common()),
        "weights": explanation.weights or None,
        "attention": [
            {
                "node": title(d),
                "form": d.taken,
                "nodes": d.nodes,
                "note": d.note,
                "inside": inside(d),
                "refused": dict(d.refused),
            }
            for d in explanation.attention
        ],
        "float64": [{"node": title(p), "because": p.because, "instead": p.instead} for p in explanation.promotions],
    }


def _print(
    out: terminal.Output,
    data: Mapping[str, Any],
    explanation: Explanation,
    report: ParityReport | None,
    by_torch: ParityReport | None,
    source: Module | None,
    cost: QuantizingCost | None,
    verbose: bool,
) -> None:
    out.inputs_and_outputs(data["inputs"], data["outputs"])
    if verbose:
        _print_nodes(out, data, explanation)
    if report is not None:
        print_parity(out, report, brief=True)
    if by_torch is not None:
        print_parity(out, by_torch, brief=True, other="torch")
    print_cost(out, source, cost)
    terminal.written(out, [Path(file["name"]) for file in data["files"]])


def _print_nodes(out: terminal.Output, data: Mapping[str, Any], explanation: Explanation) -> None:
    """Print the operators, the forms that were taken and refused, and what the file declares."""
    rows = [(name, count) for name, count in data["nodes"].items()]
    out.table(("operator", "count>"), rows, title=f"{sum(data['nodes'].values())} nodes")
    if explanation.tells:
        out.line()
        out.lines(explanation, style="dim")
    out.line()
    opsets = ", ".join(f"{domain} {version}" for domain, version in data["opsets"].items())
    out.line(f"opset       {opsets} (IR {data['ir_version']})")
    out.line(f"parameters  {data['parameters']:,}")


def _export_folder(options: Export, layout: str) -> int:
    """Write the folder, check each model in it, show."""
    checkpoint = _checkpoint_for(options, layout)
    output = options.output or beside(options.source, ending_for(layout), may_exist=True)
    check_place(output, replacing(options.force))
    precisions = load_precisions(options, options.dtype)
    models = [model for model, _, _ in precisions if isinstance(model, Module)]
    if len(models) < len(precisions):
        raise usage(f"--for {layout}: SOURCE {options.source!r} is a function, expected a Module")
    _check_level(options, *models)
    model, original = models[0], next((source for _, source, _ in precisions if source is not None), None)
    written = write_folder(
        model,
        checkpoint,
        output,
        target=options.target and str(options.target),
        cache=options.cache,
        capacity=options.capacity,
        accuracy_level=options.accuracy_level,
        dtype=precisions[0][2],
        also=[(one, dtype) for one, (_, _, dtype) in zip(models[1:], precisions[1:], strict=True)],
        **values_of(options, FolderOptions),
        **values_of(options, ToleranceOptions),
        command=sys.argv[1:],
        original=original,
    )
    if options.json:
        terminal.print_json(_folder_summary(layout, output, written))
    else:
        _print_folder(terminal.console(), options, output, written, model, original)
    reports = [report for one in written for report in (one.parity, one.original) if report is not None]
    return OK if all(report.passed for report in reports) else FAILED


def _check_level(options: Export, *models: Model) -> None:
    """Refuse --accuracy-level for modules none of whose weights are quantized, by --bits or in the checkpoint."""
    modules = [each for model in models if isinstance(model, Module) for each in model.modules()]
    if options.accuracy_level is not None and modules and not any(isinstance(one, QuantizedWeight) for one in modules):
        raise usage(
            "--accuracy-level: for products whose weights alone are quantized, of which the model has none; give "
            "--bits 4, or leave it out"
        )


_OF_FOLDERS = {"output", "target", "cache", "capacity", "dtype", "accuracy_level"}
"""The options of folders that belong to no group of theirs."""


def _checkpoint_for(options: Export, layout: str) -> Path:
    """The checkpoint whose folder is written; options of single files are refused."""
    groups = (JsonCommand, FolderOptions, ToleranceOptions, QuantizedModelOptions)
    if of_files := options.changed().difference(_OF_FOLDERS, *map(names_of, groups)):
        shown = ", ".join(sorted(name.replace("_", "-") for name in of_files))
        raise usage(f"--for {layout}: the layout decides {shown}; leave it out")
    checkpoint = checkpoint_in(options)
    if checkpoint is None:
        if not is_import(options.source):
            raise no_such_source(options.source)
        raise usage(
            f"--for {layout}: SOURCE {options.source!r} has no config and tokenizer; give a checkpoint (a folder or a "
            "GGUF file) as SOURCE or --weights"
        )
    if several_precisions(options.bits) and not LAYOUTS[layout].takes_precisions:
        raise usage(f"--bits {options.bits}: a folder for {layout} holds the model in one precision; give 4 or 8")
    return checkpoint


def _folder_summary(layout: str, output: Path, written: Sequence[Exported]) -> dict[str, Any]:
    """What the command reports of a folder, as plain data."""
    originals = {one.file: parity_json(one.original) for one in written if one.original is not None}
    return {
        "folder": str(output),
        "for": LAYOUTS[layout].about,
        "files": terminal.files_json(sorted(path for path in output.rglob("*") if path.is_file())),
        "parity": {one.file: parity_json(one.parity) for one in written if one.parity is not None} or None,
        "quantizing": {one.file: cost_json(one.cost) for one in written if one.cost is not None} or None,
        **({"original": originals} if originals else {}),
    }


def _print_folder(
    out: terminal.Output,
    options: Export,
    output: Path,
    written: Sequence[Exported],
    model: Module,
    original: Module | None,
) -> None:
    reports = {one.file: one.parity for one in written if one.parity is not None}
    costs = {one.file: one.cost for one in written if one.cost is not None}
    for file, report in reports.items():
        if len(reports) > 1:
            out.line(file)
        print_parity(out, report, brief=True)
        if file in costs:
            print_cost(out, original, costs[file])
    for one in written:
        if one.original is not None:
            print_parity(out, one.original, brief=True, other="torch")
    if options.check and not costs:
        print_cost(out, original, None)
    grows = isinstance(model, CausalDecoder) and options.cache is None and model.takes_fixed_cache
    if grows and options.layout == "onnxruntime":
        out.line(
            "note        the cache grows, which most programs expect; lucid serve, chat and map are quicker with "
            "--cache fixed"
        )
    terminal.written_folder(out, output, options.verbose)
