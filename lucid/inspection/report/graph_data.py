"""Graphs as plain data for the page: nodes with their modules, and the values between them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import onnx

from lucid.core.graph.graph import Graph
from lucid.core.graph.printing import show_attribute
from lucid.core.graph.types import show_shape
from lucid.core.graph.values import Constant, Input, Node, Result, Value
from lucid.core.words.safe_text import cut
from lucid.export.onnx_file.element_codes import element_name
from lucid.inspection.read import read
from lucid.inspection.shapes import real_inputs, type_text
from lucid.inspection.tree import place_of

Data: TypeAlias = dict[str, Any]


def node_ids(graph: Graph) -> dict[int, str]:
    """The page's name of each node, by the node's identity."""
    return {id(node): f"n{index}" for index, node in enumerate(graph.nodes())}


def graph_data(graph: Graph, forms: Mapping[int, str], errors: Mapping[int, float | None]) -> Data:
    """The data of a traced graph.

    Args:
        forms: the form of each node in ONNX, by the node's identity.
        errors: the largest difference between NumPy and onnxruntime, by the node's identity.
    """
    nodes = graph.nodes()
    numbers = node_ids(graph)

    def source(value: Value) -> str | None:
        if isinstance(value, Result):
            return numbers[id(value.node)]
        return f"i:{value.name}" if isinstance(value, Input) else None

    def entry(node: Node) -> Data:
        operands = [value for value in node.inputs if value is not None]
        return {
            "id": numbers[id(node)],
            "op": node.op.name,
            "module": node.scope,
            "line": "" if node.place is None else str(node.place),
            "inputs": [{"from": source(v), "name": _name(graph, v), "type": str(v.type)} for v in operands],
            "outputs": [str(kind) for kind in node.types],
            "attributes": {
                name: show_attribute(value)
                for name, value in node.attributes.items()
                if value != node.op.defaults.get(name)
            },
            "form": forms.get(id(node), ""),
            "error": errors.get(id(node)),
        }

    return {
        "nodes": [entry(node) for node in nodes],
        "inputs": [{"id": f"i:{value.name}", "name": value.name, "type": str(value.type)} for value in graph.inputs],
        "outputs": [
            {"id": f"o:{name}", "name": name, "type": str(value.type), "from": source(value)}
            for name, value in zip(graph.output_names, graph.outputs, strict=True)
        ],
    }


def _name(graph: Graph, value: Value) -> str:
    if isinstance(value, Constant):
        return graph.name_of(value) or (str(value.array) if value.array.ndim == 0 else "constant")
    return value.name if isinstance(value, Input) else value.node.op.name


def file_data(path: Path) -> Data:
    """The data of the main graph of an ONNX file, from Lucid or not. Types are those in the file."""
    model = read(path).model
    graph = model.graph
    types = {value.name: type_text(value) for value in (*graph.input, *graph.value_info, *graph.output)}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    types |= {name: _tensor_type(tensor) for name, tensor in weights.items()}
    sources = {value.name: f"i:{value.name}" for value in real_inputs(graph)}
    sources |= {name: f"n{index}" for index, node in enumerate(graph.node) for name in node.output if name}
    place = place_of(model, path)

    def entry(index: int, node: onnx.NodeProto) -> Data:
        return {
            "id": f"n{index}",
            "op": f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
            "module": ".".join(place(node)),
            "line": "",
            "inputs": [
                {"from": sources.get(name), "name": name, "type": types.get(name, "")} for name in node.input if name
            ],
            "outputs": [types.get(name, name) for name in node.output if name],
            "attributes": {attribute.name: _attribute(attribute) for attribute in node.attribute},
            "form": node.name,
            "error": None,
        }

    return {
        "nodes": [entry(index, node) for index, node in enumerate(graph.node)],
        "inputs": [{"id": f"i:{v.name}", "name": v.name, "type": type_text(v)} for v in real_inputs(graph)],
        "outputs": [
            {"id": f"o:{v.name}", "name": v.name, "type": type_text(v), "from": sources.get(v.name)}
            for v in graph.output
        ],
    }


def _tensor_type(tensor: onnx.TensorProto) -> str:
    return f"{element_name(tensor.data_type)}{show_shape(list(tensor.dims))}"


def _attribute(attribute: onnx.AttributeProto) -> str:
    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return f"a graph of {sum(len(graph.node) for graph in (attribute.g, *attribute.graphs))} nodes"
    if attribute.type == onnx.AttributeProto.TENSOR:
        return _tensor_type(attribute.t)
    value = onnx.helper.get_attribute_value(attribute)
    return cut(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value), 200)
