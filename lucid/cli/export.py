"""`lucid export`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from lucid.cli import calls, show
from lucid.cli.bits_options import FewBits
from lucid.cli.errors import FAILED, OK
from lucid.cli.few_bits import load_beside_source
from lucid.cli.options import Reading
from lucid.cli.parity import cost_json, parity_json, print_cost, print_parity
from lucid.cli.preprocessing import Texts, of_images
from lucid.cli.source import beside
from lucid.cli.targets import target_of
from lucid.cli.values import settings
from lucid.export import Target
from lucid.export.explain import Explanation, title
from lucid.export.exporter import Lowered, check_folder, lower
from lucid.files.atomic import is_stream
from lucid.nn.module import Module
from lucid.nn.quantizing.layer_weights import parameter_count
from lucid.testing import ParityReport
from lucid.testing.part_parity import part_parity
from lucid.testing.quantizing_cost import QuantizingCost, measurable, quantizing_cost
from lucid.testing.weights import compare_weights
from lucid.tracing.parts import CacheKind, PartName, trace_part
from lucid.tracing.trace import Model


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
    target: str | None,
    lengths: str | None,
    opset: int | None,
    attention: str,
    external: bool,
    check: bool,
    rtol: float | None,
    atol: float | None,
    json: bool,
    part: PartName | None,
    cache: CacheKind | None,
    capacity: int | None,
    dtype: str | None,
    keep_io_types: bool,
    few_bits: FewBits,
    with_tokenizer: bool,
    with_preprocessor: bool,
) -> int:
    """Export, check, show; returns the exit code."""
    output = output or beside(source, ".onnx")
    show.check_apart(output, json)
    check_folder(output)
    model, original = load_beside_source(source, settings("--set", arguments), weights, seed, few_bits, reading)
    chosen = calls.part(model, inputs, call, part, cache, capacity)
    if with_preprocessor:
        chosen = of_images(source, weights, chosen, model)
    traced = trace_part(chosen)
    texts = Texts.of(source, weights, chosen, model) if with_tokenizer else None
    preprocessing = None if texts is None else texts.preprocessing()
    where = Target.of(target_of(target, lengths), opset, attention)
    lowered = lower(traced, where, dtype, keep_io_types, preprocessing=preprocessing)
    exported = lowered.write(output, True if external else "auto")
    taken = lowered.explain()
    name = lowered.lowering.build.target.name
    half: dict[str, Any] = {"target": name, "dtype": dtype, "keep_io_types": keep_io_types}
    written = exported if is_stream(output) else output
    report: ParityReport | None = None
    if check and texts is None:
        report = part_parity(chosen, written, rtol=rtol, atol=atol, again=lowered, **half)
    elif check and texts is not None:
        report = texts.parity(chosen, written, compare_weights(written, lowered), rtol=rtol, atol=atol, **half)
    cost = None
    if check and original is not None and measurable(original):
        same = calls.part(original.to("float32"), inputs, call, part, cache, capacity)
        cost = quantizing_cost(same, calls.part(model, inputs, call, part, cache, capacity))
    data = _summary(model, lowered, exported, taken, output)
    if json:
        show.print_json({**data, "parity": parity_json(report) if report else None, "quantizing": cost_json(cost)})
    else:
        _print(show.console(beside=output), data, taken, report, original if check else None, cost)
    return FAILED if report and not report.passed else OK


def _summary(
    model: Model, lowered: Lowered, exported: onnx.ModelProto, taken: Explanation, path: Path
) -> dict[str, Any]:
    """Everything that the command reports, as plain data."""
    files = [path, *(path.with_name(name) for name in sorted(_locations(exported) - {path.name}))]
    operators = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in exported.graph.node
    )
    return {
        "file": str(path),
        "files": [{"name": str(file), "bytes": show.bytes_of(file)} for file in files],
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in exported.opset_import},
        "ir_version": exported.ir_version,
        "inputs": {name: str(kind) for name, kind in lowered.inputs.items()},
        "outputs": {name: str(kind) for name, kind in lowered.traced.output_types().items()},
        "parameters": parameter_count(model) if isinstance(model, Module) else 0,
        "nodes": dict(operators.most_common()),
        "weights": taken.weights or None,
        "attention": [
            {
                "node": title(d),
                "form": d.taken,
                "nodes": d.nodes,
                "note": d.note,
                "refused": dict(d.refused),
            }
            for d in taken.attention
        ],
        "float64": [{"node": title(p), "because": p.because, "instead": p.instead} for p in taken.promotions],
    }


def _locations(exported: onnx.ModelProto) -> set[str]:
    """The files that hold weights as external data: a side file, or, if the weights are large, the model's own."""
    return {
        entry.value
        for tensor in exported.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _print(
    out: show.Output,
    data: Mapping[str, Any],
    taken: Explanation,
    report: ParityReport | None,
    source: Module | None,
    cost: QuantizingCost | None,
) -> None:
    ends = [("input", name, kind) for name, kind in data["inputs"].items()]
    ends += [("output", name, kind) for name, kind in data["outputs"].items()]
    out.table(("", "name", "type"), ends)
    out.line()
    rows = [(name, count) for name, count in data["nodes"].items()]
    out.table(("operator", "count>"), rows, title=f"{sum(data['nodes'].values())} nodes")
    if taken.tells:
        out.line()
        out.lines(taken, style="dim")
    out.line()
    opsets = ", ".join(f"{domain} {version}" for domain, version in data["opsets"].items())
    out.line(f"opset       {opsets} (IR {data['ir_version']})")
    out.line(f"parameters  {data['parameters']:,}")
    if report is not None:
        print_parity(out, report, brief=True)
    print_cost(out, source, cost)
    show.written(out, [Path(file["name"]) for file in data["files"]])
