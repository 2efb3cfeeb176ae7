"""Writing elements to places, into buffers too, and finding the largest elements."""

from __future__ import annotations

import math

import numpy as np

from lucid.core.graph.types import int32
from lucid.core.graph.values import Node
from lucid.core.targets.runtimes import ORDER_OF_TIES, TENSOR_SCATTER
from lucid.export.builder import Builder, Operand, computed
from lucid.export.form import form, one_node, operand, refuse, refuse_wrong
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.run_time_sizes import sizes_vector
from lucid.ops import arange_op, argmax, expand, logical_and, reshape, scattering, sorting, where
from lucid.ops.attention import buffers
from lucid.ops.elementwise import isnan
from lucid.ops.indexing import take_along_op
from lucid.ops.tensor.tensor import Tensor

_FAR = 2**62
_COMPARED = 2**16  # of a row: elements times results


scatter_elements = one_node(scattering.scatter_op, "ScatterElements", "axis", name="scatter_elements")


@form(scattering.scatter_op, name="ScatterElements, added", takes="axis reduction")
def scatter_sums(build: Builder, node: Node) -> str:
    """Half precision is added in float32 and rounded once, as eager code does; onnxruntime rounds every sum."""
    if node.attributes["reduction"] != "add":
        refuse("it adds values")
    (x, indices, values), kind = node.inputs, node.types[0].dtype
    half, options = kind.itemsize == 2, {"axis": node.attributes["axis"], "reduction": "add"}
    if not half:
        return build.op("ScatterElements", x, indices, values, **options)
    wide, more = (build.op("Cast", operand, to=onnx_code("float32")) for operand in (x, values))
    return build.op("Cast", build.op("ScatterElements", wide, indices, more, **options), to=onnx_code(kind))


@form(sorting.topk_op, name="TopK, equal ones in order", takes="k axis largest", kernel="TopK", mends=ORDER_OF_TIES)
def top_k_in_order(build: Builder, node: Node) -> list[Operand]:
    """TopK's values are right; the n-th of equal values is the n-th element that equals it."""
    x, axis = Tensor.from_value(operand(node)), node.attributes["axis"]
    count, size = node.attributes["k"], x.shape[axis]
    if not isinstance(count, int) or not isinstance(size, int) or count * size > _COMPARED:
        refuse(f"it compares {size} elements with each of {count} results")
    if count < 2:
        refuse("the first of equal elements is found")
    keys = where(isnan(x), math.inf, x) if x.dtype.kind == "float" else x
    order = {"axis": axis, "largest": int(node.attributes["largest"]), "sorted": 1}
    largest, _ = build.ops("TopK", keys, np.asarray([count]), outputs=2, **order)
    values = computed(build, largest, node.types[0]).transpose(axis, -1).unsqueeze(-1)
    equal = values == keys.transpose(axis, -1).unsqueeze(-2)
    before = logical_and(values == values.transpose(-1, -2), np.tri(count, dtype=bool))
    nth = before.astype(int32).sum(-1, keepdims=True)
    place = logical_and(equal, equal.astype(int32).cumsum(-1) == nth)
    indices = argmax(place.astype(int32), axis=-1).transpose(axis, -1)
    return [take_along_op(x, indices, axis=axis), indices]


@form(sorting.topk_op, takes="k axis largest", kernel="TopK")
def top_k(build: Builder, node: Node) -> tuple[str, ...]:
    x, axis = operand(node), node.attributes["axis"]
    count = sizes_vector(build, [node.attributes["k"]])
    order = {"axis": axis, "largest": int(node.attributes["largest"]), "sorted": 1}
    if x.type.dtype.kind == "int":
        return build.ops("TopK", x, count, outputs=2, **order)
    # onnxruntime finds NaN anywhere: it is counted as infinity, and the values are taken by their indices.
    keys = build.op("Where", build.op("IsNaN", x), np.asarray(np.inf, x.type.dtype.numpy), x)
    _, indices = build.ops("TopK", keys, count, outputs=2, **order)
    return build.op("GatherElements", x, indices, axis=axis), indices


@form(buffers.write_at, takes="axis", name="ai.onnx TensorScatter", opset=24, kernel="ScatterElements")
def tensor_scatter(build: Builder, node: Node) -> str:
    refuse_wrong(build, TENSOR_SCATTER)
    return build.op("TensorScatter", *node.inputs, axis=node.attributes["axis"])


@form(buffers.write_at, takes="axis", name="ai.onnx ScatterElements", kernel="ScatterElements")
def write_elements(build: Builder, node: Node) -> str:
    buffer, new, starts = (operand(node, index) for index in range(3))
    rank = new.type.rank
    axis = node.attributes["axis"] % rank
    along = [new.type.shape[axis] if i == axis else 1 for i in range(rank)]
    steps = reshape(arange_op(start=0, stop=new.type.shape[axis]), along)
    # ScatterElements counts negative positions from the end: they become too large, which it refuses.
    positions = Tensor.from_value(starts)
    first = reshape(where(positions < 0, _FAR, positions), (new.type.shape[0], *[1] * (rank - 1)))
    return build.op("ScatterElements", buffer, expand(first + steps, new.type.shape), new, axis=axis)


# Best first, of each op.
FORMS = (tensor_scatter, write_elements, scatter_elements, scatter_sums, top_k_in_order, top_k)
