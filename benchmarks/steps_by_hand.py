"""Decode steps of attention written by hand, one way each: what an export is measured against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import TensorProto, helper

BUFFERS = ("past_key", "past_value")


def group_query(heads: int, kv_heads: int, width: int) -> onnx.ModelProto:
    """com.microsoft GroupQueryAttention, which writes the new key and value into the buffers itself."""
    node = helper.make_node(
        "GroupQueryAttention",
        ["query", "key", "value", *BUFFERS, "last", "total"],
        ["output", "present_key", "present_value"],
        domain="com.microsoft",
        num_heads=heads,
        kv_num_heads=kv_heads,
    )
    sizes = {"last": (TensorProto.INT32, [1]), "total": (TensorProto.INT32, [1])}
    return _model([node], heads, kv_heads, width, sizes)


def groups_as_queries(heads: int, kv_heads: int, width: int) -> onnx.ModelProto:
    """TensorScatter and Attention of opset 24 over the whole buffers; the heads of a group are queries of one head."""
    nodes = [_constant("grouped", [1, kv_heads, heads // kv_heads, width]), _constant("split", [1, kv_heads, 1, width])]
    nodes += [_constant("packed", [1, 1, heads * width])]
    nodes += [helper.make_node("Reshape", ["query", "grouped"], ["queries"])]
    for name in ("key", "value"):
        nodes += [helper.make_node("Reshape", [name, "split"], [f"{name}:split"])]
        inputs = [f"past_{name}", f"{name}:split", "starts"]
        nodes += [helper.make_node("TensorScatter", inputs, [f"present_{name}"], axis=2)]
    seen = ["queries", "present_key", "present_value", "", "", "", "filled"]
    nodes += [helper.make_node("Attention", seen, ["attended"])]
    nodes += [helper.make_node("Reshape", ["attended", "packed"], ["output"])]
    sizes = {"starts": (TensorProto.INT64, [1]), "filled": (TensorProto.INT64, [1])}
    return _model(nodes, heads, kv_heads, width, sizes)


def _constant(name: str, numbers: list[int]) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value_ints=numbers)


def _model(
    nodes: list[onnx.NodeProto], heads: int, kv_heads: int, width: int, sizes: Mapping[str, tuple[int, list[int]]]
) -> onnx.ModelProto:
    def value(name: str, *shape: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    inputs = [value("query", 1, 1, heads * width), *[value(n, 1, 1, kv_heads * width) for n in ("key", "value")]]
    inputs += [value(name, 1, kv_heads, "C", width) for name in BUFFERS]
    inputs += [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in sizes.items()]
    outputs = [value("output", 1, 1, heads * width)]
    outputs += [value(f"present_{name}", 1, kv_heads, "C", width) for name in ("key", "value")]
    graph = helper.make_graph(nodes, "step", inputs, outputs)
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)
