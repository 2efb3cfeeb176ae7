"""Collects the data of a page and writes it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from lucid.core.graph.graph import Graph
from lucid.core.graph.scope import keeping_lines
from lucid.core.graph.types import Array
from lucid.core.graph.values import Result
from lucid.core.process.context import holding
from lucid.core.targets.runtimes import CPU, targets_of
from lucid.core.version import __version__
from lucid.core.words.user_code import user_place
from lucid.export import explain
from lucid.export.explain import title
from lucid.inspection.report.attention_maps import attention_weights, maps_data
from lucid.inspection.report.graph_data import file_data, graph_data, node_ids
from lucid.inspection.report.page import write_page
from lucid.inspection.report.targets import compare_targets, cost_data
from lucid.nn.module import Module
from lucid.nn.quantizing.calibration import Call
from lucid.ops.tensor.tensor import Tensor
from lucid.testing.parity import compare_nodes
from lucid.testing.precision import PrecisionReport, precision_report
from lucid.testing.random_inputs import random_inputs
from lucid.testing.run_sizes import usual_sizes
from lucid.testing.tolerance import Comparison
from lucid.tracing.trace import Model, arguments_of, trace

TARGETS = targets_of(CPU)
_BATCH, _LENGTH = 1, 16  # default sizes: of the first axis of an input, of any other


def report(
    model: Model | Graph,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    path: str | os.PathLike[str],
    data: Mapping[str, Array] | None = None,
    sizes: Mapping[str, int] | None = None,
    tokens: Sequence[str] = (),
    targets: Sequence[str] = TARGETS,
    seconds: float = 0.5,
    name: str = "",
    floating: Module | None = None,
    calls: Iterable[Call] | None = None,
) -> None:
    """Write a page about a model: graph, cost and time by module, attention maps, error of each node, files by target.

    Args:
        model, inputs, kwargs: as for `lucid.export.to_onnx`.
        path: the HTML file. It appears whole or not at all.
        data: arrays by input name; random ones otherwise.
        sizes: values of the symbolic sizes for random inputs; by default 1 for the first axis of an input, else 16, or
            what the model has room for.
        tokens: labels of the positions, for the attention maps: as many as some attention has queries or keys.
        targets: the targets to export for.
        seconds: how long to measure each target.
        name: the page's title.
        floating: for a quantized model, the float model that it was: the page then says what the bits cost.
        calls: what this is measured with, as `lucid.testing.precision_report` takes it; by default the page's inputs.

    Raises:
        KeyError, TypeError, ValueError: for data, sizes or tokens that do not fit the model's inputs.
    """
    graph = model if isinstance(model, Graph) else traced(model, *inputs, kwargs=kwargs)
    arrays = _arrays(graph, data, sizes or {})
    attention = maps_data(attention_weights(graph, arrays), tokens)
    precision = None
    if floating is not None:
        if not isinstance(model, Module):
            raise TypeError(f"report: floating is given with a {type(model).__name__}, expected a quantized Module")
        measured = [_call(model, inputs, kwargs, arrays)] if calls is None else calls
        precision = precision_report(floating, model, measured)
    compared = compare_nodes(graph, arrays)
    errors = {id(result.node): _finite(comparison.max_abs) for result, comparison in compared}
    compared_targets, cost = compare_targets(graph, arrays, targets, seconds)
    page = {
        "title": name or _name(model),
        "version": __version__,
        "shapes": {value.name: list(array.shape) for value, array in zip(graph.inputs, arrays, strict=True)},
        "random": data is None,
        "graph": graph_data(graph, _forms(graph), errors),
        "attention": attention,
        "errors": _errors(graph, compared),
        "precision": None if precision is None else precision_data(precision),
        "targets": compared_targets,
        "cost": cost,
    }
    write_page(Path(path), {**page, "missing": _missing(page)})


def _missing(page: Mapping[str, Any]) -> dict[str, str]:
    """Why sections have nothing to show, by their id in the page."""
    ran = [target for target in page["targets"] if not target["problem"]]
    forms = [form for target in page["targets"] for form in target.get("forms", ())]
    attends = any(node["op"] == "attention" for node in page["graph"]["nodes"])
    no_file = "no target was asked for" if not page["targets"] else "no file runs here; the table of targets says why"
    no_attention = "the inputs have no rows" if attends else "the model computes no attention"
    reasons = {
        "summary-section": None if ran or page["cost"] else no_file,
        "cost-section": None if page["cost"] else no_file,
        "attention-section": None if page["attention"]["layers"] else no_attention,
        "error-section": None if page["errors"] else "the model has no operation",
        "precision-section": None if page["precision"] else "no weights are quantized; --bits 4 shows what that costs",
        "target-section": None if page["targets"] else no_file,
        "form-section": None if forms else no_attention if ran else no_file,
    }
    return {section: reason for section, reason in reasons.items() if reason}


def traced(model: Model, *inputs: Any, kwargs: Mapping[str, Any] | None = None) -> Graph:
    """The graph of a model, as `lucid.trace` makes it; nodes keep the line of the user's code that made them."""
    caller = user_place()
    with holding(keeping_lines, True):
        graph = trace(model, *inputs, kwargs=kwargs)
    for node in graph.nodes():
        if caller and node.place and node.place[:2] == caller[:2]:  # no line of the model
            node.place = None
    return graph


def _forms(graph: Graph) -> dict[int, str]:
    """The forms that nodes take, by identity."""
    taken = {title(decision): f"{decision.taken}: {decision.nodes} nodes" for decision in explain(graph).decisions}
    places = {id(node): f"{node.scope}/{node.op.name}" if node.scope else node.op.name for node in graph.nodes()}
    return {identity: taken[place] for identity, place in places.items() if place in taken}


def _errors(graph: Graph, compared: Sequence[tuple[Result, Comparison]]) -> list[dict[str, Any]]:
    """The difference after every operation in the page's format."""
    numbers = node_ids(graph)
    return [
        {"id": numbers[id(r.node)], "module": r.node.scope, "op": r.node.op.name, "max_abs": _finite(c.max_abs)}
        for r, c in compared
    ]


def graph_page(model: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write a page with the graph of an ONNX file, from Lucid or not, and the cost of its modules."""
    shown = file_data(Path(model))
    page = {"title": Path(model).name, "version": __version__, "shapes": {}, "random": False, "graph": shown}
    nothing: dict[str, Any] = {"errors": [], "precision": None, "targets": [], "cost": cost_data(Path(model), {})}
    not_run = "a file is shown without running it; lucid report SOURCE writes a page of the model itself"
    sections = ("attention-section", "error-section", "precision-section", "target-section", "form-section")
    missing = dict.fromkeys(sections, not_run)
    write_page(Path(path), {**page, **nothing, "attention": maps_data({}, []), "missing": missing})


def precision_data(precision: PrecisionReport) -> dict[str, Any]:
    """The layers and the summary in the page's format; a layer without any error has no number."""
    layers = [
        {
            "module": layer.path,
            "bits": layer.bits,
            "alone": None if layer.alone is None else _finite(layer.alone),
            "in_model": None if layer.in_model is None else _finite(layer.in_model),
        }
        for layer in precision.layers
    ]
    return {"layers": layers, "summary": precision.summary}


def _call(model: Module, inputs: Sequence[Any], kwargs: Mapping[str, Any] | None, arrays: Sequence[Array]) -> Call:
    """The page's inputs as a call by name."""
    values = iter(arrays)
    in_order, by_name = arguments_of(model, inputs, kwargs, lambda *_: Tensor.from_array(next(values)))
    return signature(model.forward).bind(*in_order, **by_name).arguments


def _arrays(graph: Graph, data: Mapping[str, Array] | None, sizes: Mapping[str, int]) -> list[Array]:
    if data is None:
        return _random(graph, sizes)
    names = [value.name for value in graph.inputs]
    missing, unknown = sorted(set(names) - set(data)), sorted(set(data) - set(names))
    if missing or unknown:
        raise KeyError(
            f"report: inputs missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}; "
            f"the model takes {', '.join(names)}"
        )
    return [data[name] for name in names]


def _random(graph: Graph, chosen: Mapping[str, int]) -> list[Array]:
    unknown = sorted(chosen.keys() - graph.sizes())
    if unknown:
        raise ValueError(
            f"report: size {', '.join(unknown)}: the model's symbolic sizes are "
            f"{', '.join(sorted(graph.sizes())) or 'none'}"
        )
    return list(random_inputs(graph, {**usual_sizes(graph, _BATCH, _LENGTH), **chosen}).values())


def _name(model: Model | Graph) -> str:
    return type(model).__name__ if isinstance(model, (Module, Graph)) else model.__qualname__


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
