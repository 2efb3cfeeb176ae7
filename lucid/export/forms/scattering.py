"""Writing elements to places, into buffers too, and finding the largest elements."""

from __future__ import annotations

import math

import numpy as np

from lucid.core.graph.types import TensorType, int32, int64
from lucid.core.graph.values import Node, operand
from lucid.core.sizes.dims import same
from lucid.core.targets.runtimes import LONG_INTEGERS, ORDER_OF_TIES, PASSES_OVER_NAN, TENSOR_SCATTER
from lucid.export.builder import Builder, computed
from lucid.export.form import form, one_node, refuse, refuse_wrong
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.run_time_sizes import sizes_vector
from lucid.ops import (
    arange,
    arange_op,
    expand,
    logical_and,
    logical_or,
    maximum,
    minimum,
    reshape,
    scattering,
    sorting,
    take,
    where,
)
from lucid.ops.attention import buffers
from lucid.ops.creation import size_op
from lucid.ops.elementwise import isnan
from lucid.ops.indexing import take_along_op
from lucid.ops.tensor.tensor import Tensor

_FAR = {int32: 2**30, int64: 2**62}
_SORTED = 46_340  # so many squared fit into 32 bits


scatter_elements = one_node(scattering.scatter_op, "ScatterElements", "axis", name="scatter_elements")


@form(scattering.scatter_op, name="ScatterElements, combined", takes="axis reduction")
def scatter_combined(build: Builder, node: Node) -> str | Tensor:
    """Half precision is combined in float32 and rounded once, as eager code does; onnxruntime rounds every sum. Of
    extremes onnxruntime passes over NaN, which a sum keeps.
    """
    reduction, options = node.attributes["reduction"], {"axis": node.attributes["axis"]}
    (x, indices, values), kind = node.inputs, node.types[0].dtype
    own, places, new = (Tensor.from_value(operand(node, place)) for place in range(3))
    is_extreme = reduction in ("max", "min")
    if is_extreme and build.target.opset < 18:
        result: str | Tensor = _of_ordered(own, places, new, node)
    elif kind.itemsize == 2:
        wide, more = (build.op("Cast", operand, to=onnx_code("float32")) for operand in (x, values))
        result = build.op("ScatterElements", wide, indices, more, **options, reduction=reduction)
        result = build.op("Cast", result, to=onnx_code(kind))
    else:
        result = build.op("ScatterElements", x, indices, values, **options, reduction=reduction)
    if not is_extreme or kind.kind != "float" or not build.target.wrong(PASSES_OVER_NAN):
        return result
    marks, more_marks = (where(isnan(each), each, 0) for each in (own, new))
    marked = scattering.scatter_op(marks, places, more_marks, **options, reduction="add")
    combined = result if isinstance(result, Tensor) else computed(build, result, node.types[0])
    return where(isnan(marked), marked, combined)


def _of_ordered(x: Tensor, places: Tensor, values: Tensor, node: Node) -> Tensor:
    """Extremes before opset 18, where ScatterElements has none: values are written in order, and the best one stays."""
    axis, is_max = node.attributes["axis"], node.attributes["reduction"] == "max"
    values, order = values.sort(axis, not is_max)
    written = scattering.scatter_op(x, take_along_op(places, order, axis=axis), values, axis=axis)
    return maximum(x, written) if is_max else minimum(x, written)


@form(sorting.topk_op, name="TopK, equal ones in order", takes="k axis largest", kernel="TopK", mends=ORDER_OF_TIES)
def top_k_in_order(build: Builder, node: Node) -> tuple[Tensor, Tensor]:
    """TopK's values are right, and its order of numbers that all differ.

    A first TopK, whose last value says which of its equals are left out, finds the elements. A second one sorts them.
    The last one puts equal ones in order: it sorts the numbers of their groups and their places, joined to one number.
    """
    x, axis, largest = Tensor.from_value(operand(node)), node.attributes["axis"], node.attributes["largest"]
    count, size = node.attributes["k"], x.shape[axis]
    if isinstance(count, int) and count < 2:
        refuse("the first of equal elements is found")
    if isinstance(count, int) and count > _SORTED:
        refuse(f"numbers of groups and places of {count} elements do not fit into 32 bits together")
    if not isinstance(count, int) and not same(count, size):
        refuse(f"it is for a fixed number of results, or all elements, not for {count} of {size}")

    def best(values: Tensor, most: bool) -> tuple[Tensor, Tensor]:
        order = {"axis": axis, "largest": int(most), "sorted": 1}
        names = build.ops("TopK", values, sizes_vector(build, [count]), outputs=2, **order)
        kinds = (TensorType(dtype, node.types[0].shape) for dtype in (values.dtype, int64))
        ordered, places = (computed(build, name, kind) for name, kind in zip(names, kinds, strict=True))
        return ordered, places

    keys = where(isnan(x), math.inf, x) if x.dtype.kind == "float" else x
    picks = None if same(count, size) else best(_places_of_best(keys, best(keys, largest)[0], node), False)[0]
    values, places = best(keys if picks is None else take_along_op(keys, picks, axis=axis), largest)
    before = take(values, maximum(arange(count) - 1, 0), axis)
    group = (values != before).astype(int64).cumsum(axis) * size_op(size=count)
    order = best(group + places, False)[0] - group
    if not isinstance(count, int):
        order = where(size_op(size=count) <= _SORTED, order, places)
    indices = order if picks is None else take_along_op(picks, order, axis=axis)
    return take_along_op(x, indices, axis=axis), indices


def _places_of_best(keys: Tensor, values: Tensor, node: Node) -> Tensor:
    """The positions of the best elements, whose values are known; for others, which are no results, the size."""
    axis, count = node.attributes["axis"] % keys.ndim, node.attributes["k"]
    last, size = take(values, np.asarray([count - 1]), axis), keys.shape[axis]
    better, equal = keys > last if node.attributes["largest"] else keys < last, keys == last
    left = count - better.astype(int64).sum(axis, keepdims=True)
    chosen = logical_or(better, logical_and(equal, equal.astype(int64).cumsum(axis) <= left))
    places = reshape(arange(size), [size if each == axis else 1 for each in range(keys.ndim)])
    return where(chosen, places, size_op(size=size))


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
    refuse_wrong(build.target, TENSOR_SCATTER)
    return build.op("TensorScatter", *node.inputs, axis=node.attributes["axis"])


@form(buffers.write_at, takes="axis", name="ai.onnx ScatterElements", kernel="ScatterElements")
def write_elements(build: Builder, node: Node) -> str:
    buffer, new, starts = (operand(node, index) for index in range(3))
    rank = new.type.rank
    axis = node.attributes["axis"] % rank
    along = [new.type.shape[axis] if i == axis else 1 for i in range(rank)]
    dtype = int32 if build.target.wrong(LONG_INTEGERS) else int64
    steps = reshape(arange_op(start=0, stop=new.type.shape[axis]).astype(dtype), along)
    # ScatterElements counts negative positions from the end: they become too large, which it refuses.
    positions = Tensor.from_value(starts).astype(dtype)
    first = reshape(where(positions < 0, _FAR[dtype], positions), (new.type.shape[0], *[1] * (rank - 1)))
    return build.op("ScatterElements", buffer, expand(first + steps, new.type.shape), new, axis=axis)


# Best first, of each op.
FORMS = (tensor_scatter, write_elements, scatter_elements, scatter_combined, top_k_in_order, top_k)
