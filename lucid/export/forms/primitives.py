"""Primitives whose ONNX op takes attributes as inputs or under other names, or that take several nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid.core.graph.types import TensorType, bfloat16, float64
from lucid.core.graph.values import Constant, Node, Result, Value, operand
from lucid.core.sizes.dims import Dim, Size, product, same
from lucid.core.targets.runtimes import (
    EMPTY_CONSTANTS,
    FLOAT64_COS,
    FLOAT64_QUICK_GELU,
    FLOAT64_TRANSPOSED,
    HALF_TRANSPOSED,
    NUMBER_BEFORE_VARIANCE,
    REGIONS_OF_POSITIONS,
    RESHAPED_TO_NUMBER,
)
from lucid.export.builder import Builder, Operand
from lucid.export.form import Form, Taken, form, one_node, refuse
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.run_time_sizes import reshaped, size_vector, sizes_vector
from lucid.ops import bitwise, creation, elementwise, indexing, reduction, shaping
from lucid.ops.indexing import Cut
from lucid.ops.op import Op

_FAR = 2**63 - 1


def _vector(*numbers: int) -> Any:
    return np.asarray(numbers, np.int64)


# Elementwise ------------------------------------------------------------------------------------------------------


@form(elementwise.cast, takes="dtype", kernel="Cast")
def cast(build: Builder, node: Node) -> str:
    return build.op("Cast", *node.inputs, to=onnx_code(node.attributes["dtype"]))


@form(elementwise.stop_gradient)
def stop_gradient(build: Builder, node: Node) -> str:
    return build.name_of(operand(node))


@form(elementwise.cos, kernel="Cos")
def cos(build: Builder, node: Node) -> str:
    if node.types[0].dtype != float64 or not build.target.wrong(FLOAT64_COS):
        return build.op("Cos", *node.inputs)
    half = build.op("Sin", build.op("Mul", node.inputs[0], np.asarray(0.5)))  # cos x = 1 - 2 sin^2(x / 2)
    return build.op("Sub", np.asarray(1.0), build.op("Mul", np.asarray(2.0), build.op("Mul", half, half)))


def _adds_to_a_number(node: Node) -> bool:
    number, other = node.inputs
    return isinstance(number, Constant) and number.array.size == 1 and not isinstance(other, Constant)


@form(elementwise.add, name="number second", kernel="Add", mends=NUMBER_BEFORE_VARIANCE, applies=_adds_to_a_number)
def add(build: Builder, node: Node) -> str:
    """``variance + eps`` for ``eps + variance``."""
    return build.op("Add", *reversed(node.inputs))


def _product(op: Op[..., Any]) -> Form:
    """A form of mul or true_div."""

    @form(op, kernel=op.onnx or "")
    def scaled(build: Builder, node: Node) -> str:
        assert op.onnx is not None
        x, y = operand(node), operand(node, 1)
        return build.op(op.onnx, _unfused(build, _as_row(build, x, y.type)), _unfused(build, _as_row(build, y, x.type)))

    return scaled


def _as_row(build: Builder, value: Value, other: TensorType) -> Value | Any:
    """A float64 scalar as a row of equal numbers: onnxruntime folds a scalar into a neighbouring MatMul as float32."""
    if not isinstance(value, Constant) or value.type.dtype != float64 or value.type.shape or not other.shape:
        return value
    width = other.shape[-1]
    if isinstance(width, int):
        return np.full(width, value.array)
    return build.op("Expand", value, sizes_vector(build, [width]))


def _unfused(build: Builder, value: Operand) -> Operand:
    """A float64 sigmoid, followed by a reshape to the same shape: otherwise onnxruntime fuses its product to QuickGelu,
    which has no float64 kernel.
    """
    if not isinstance(value, Result) or value.node.op is not elementwise.sigmoid or value.type.dtype != float64:
        return value
    if not build.target.wrong(FLOAT64_QUICK_GELU):
        return value
    return build.op("Reshape", value, _vector(*[0] * value.type.rank))


mul, true_div = _product(elementwise.mul), _product(elementwise.true_div)


@form(elementwise.not_equal, kernel="Equal")
def not_equal(build: Builder, node: Node) -> str:
    return build.op("Not", build.op("Equal", *node.inputs))


_BITWISE = [
    one_node(op, onnx, name=f"ai.onnx {onnx}", opset=18)
    for op, onnx in (
        (bitwise.bitwise_not, "BitwiseNot"),
        (bitwise.bitwise_and, "BitwiseAnd"),
        (bitwise.bitwise_or, "BitwiseOr"),
        (bitwise.bitwise_xor, "BitwiseXor"),
    )
]


# Shape ------------------------------------------------------------------------------------------------------------


@form(shaping.reshape_op, takes="shape", kernel="Reshape")
def reshape(build: Builder, node: Node) -> str:
    x, shape = operand(node), node.attributes["shape"]
    if not shape and x.type.rank and build.target.wrong(RESHAPED_TO_NUMBER):
        return build.op("Squeeze", x, _vector(*range(x.type.rank)))
    return reshaped(build, x, x.type.shape, shape)


@form(indexing.take_op, name="Gather", takes="axis", kernel="Gather")
def take(build: Builder, node: Node) -> Operand:
    x, places = operand(node), operand(node, 1)
    if isinstance(places, Constant) and not places.array.size and build.target.wrong(EMPTY_CONSTANTS):
        kind = node.types[0]
        return creation.full_op(shape=kind.shape, value=0, dtype=kind.dtype)
    return build.op("Gather", x, places, axis=node.attributes["axis"])


@form(shaping.squeeze_op, takes="axes", kernel="Squeeze")
def squeeze(build: Builder, node: Node) -> str:
    return build.op("Squeeze", *node.inputs, _vector(*node.attributes["axes"]))


@form(shaping.unsqueeze_op, takes="axes", kernel="Unsqueeze")
def unsqueeze(build: Builder, node: Node) -> str:
    return build.op("Unsqueeze", *node.inputs, _vector(*node.attributes["axes"]))


@form(shaping.permute_op, takes="axes", kernel="Transpose")
def permute(build: Builder, node: Node) -> str:
    axes, x = node.attributes["axes"], operand(node)
    transposed = build.op("Transpose", x, perm=axes)
    # onnxruntime (1.23 to 1.31) crashes when it loads a half-precision MatMul after a Transpose that makes the first
    # axis one of the last two. A reshape to the same shape in between prevents that and costs nothing.
    moves_first = len(axes) > 2 and axes[:-2] == tuple(range(1, len(axes) - 1)) and 0 in axes[-2:]
    crashes = x.type.dtype.itemsize == 2 and moves_first and build.target.wrong(HALF_TRANSPOSED)
    fused = x.type.dtype == float64 and len(axes) > 1 and build.target.wrong(FLOAT64_TRANSPOSED)
    if crashes or fused:
        return build.op("Reshape", transposed, _vector(*[0] * len(axes)))
    return transposed


@form(shaping.expand_op, takes="shape", kernel="Expand")
def expand(build: Builder, node: Node) -> str:
    x, shape = operand(node), node.attributes["shape"]
    new = len(shape) - x.type.rank
    # Expand broadcasts both ways: for an axis that keeps its size, a 1 is enough.
    kept = [axis >= new and same(size, x.type.shape[axis - new]) for axis, size in enumerate(shape)]
    return build.op(
        "Expand", x, sizes_vector(build, [1 if keep else size for keep, size in zip(kept, shape, strict=True)])
    )


@form(shaping.tile, takes="repeats", kernel="Tile")
def tile(build: Builder, node: Node) -> str:
    return build.op("Tile", *node.inputs, sizes_vector(build, node.attributes["repeats"]))


@form(shaping.pad, takes="before after value", kernel="Pad")
def pad(build: Builder, node: Node) -> str:
    value = np.asarray(node.attributes["value"], node.types[0].dtype.numpy)
    return build.op(
        "Pad", *node.inputs, sizes_vector(build, (*node.attributes["before"], *node.attributes["after"])), value
    )


@form(shaping.split_op, takes="sizes axis", kernel="Split")
def split(build: Builder, node: Node) -> tuple[str, ...]:
    sizes = node.attributes["sizes"]
    return build.ops(
        "Split", *node.inputs, sizes_vector(build, sizes), outputs=len(sizes), axis=node.attributes["axis"]
    )


# Slices -----------------------------------------------------------------------------------------------------------


@form(indexing.slice_op, takes="cuts", kernel="Slice")
def slice_op(build: Builder, node: Node) -> str:
    x, cuts = operand(node), node.attributes["cuts"]
    starts = [_bound(cut.start, x.type.shape[cut.axis], cut, stop=False) for cut in cuts]
    stops = [_bound(cut.stop, x.type.shape[cut.axis], cut, stop=True) for cut in cuts]
    axes, steps = _vector(*(cut.axis for cut in cuts)), _vector(*(cut.step for cut in cuts))
    return build.op("Slice", x, sizes_vector(build, starts), sizes_vector(build, stops), axes, steps)


def _bound(position: Size, size: Size, cut: Cut, *, stop: bool) -> Size:
    """A bound of a slice, counted from the end if that makes it a constant."""
    if stop and cut.step < 0 and isinstance(position, int) and position < 0:
        return -_FAR
    if stop and same(position, size):
        return _FAR
    from_end = position - size
    return from_end if isinstance(position, Dim) and isinstance(from_end, int) and from_end < 0 else position


# Creation ---------------------------------------------------------------------------------------------------------


def scalar(build: Builder, size: Size) -> str:
    """A size as an int64 number."""
    if isinstance(size, int):
        return build.name_of(np.asarray(size, np.int64))
    return build.op("Squeeze", size_vector(build, size), _vector(0))


@form(creation.size_op, takes="size")
def size_op(build: Builder, node: Node) -> str:
    return scalar(build, node.attributes["size"])


@form(creation.full_op, takes="shape value dtype")
def full(build: Builder, node: Node) -> str:
    shape, dtype = sizes_vector(build, node.attributes["shape"]), node.attributes["dtype"]
    if dtype == bfloat16:  # the op takes it only from opset 20 on, and onnxruntime has no kernel for it
        value = np.asarray([node.attributes["value"]], np.float32)
        return build.op("Cast", build.op("ConstantOfShape", shape, value=value), to=onnx_code(dtype))
    return build.op("ConstantOfShape", shape, value=np.asarray([node.attributes["value"]], dtype.numpy))


@form(creation.arange_op, takes="start stop")
def arange(build: Builder, node: Node) -> str:
    start, stop = scalar(build, node.attributes["start"]), scalar(build, node.attributes["stop"])
    return build.op("Range", start, stop, np.asarray(1, np.int64))


def _triangle(op: Op[..., Any], upper: int) -> Form:
    @form(op, takes="diagonal", kernel="Trilu")
    def trilu(build: Builder, node: Node) -> str:
        return build.op("Trilu", *node.inputs, scalar(build, node.attributes["diagonal"]), upper=upper)

    return trilu


tril, triu = _triangle(creation.tril, 0), _triangle(creation.triu, 1)


# Reductions -------------------------------------------------------------------------------------------------------


def over_axes(build: Builder, kind: str, x: Operand, axis: tuple[int, ...] | None, keepdims: bool) -> str:
    """One of ONNX's reductions."""
    if axis == ():
        return build.op("Identity", x)
    # The axes became an input in opset 18, for ReduceSum in opset 13.
    if kind == "ReduceSum" or build.target.opset >= 18:
        return build.op(kind, x, None if axis is None else _vector(*axis), keepdims=int(keepdims))
    return build.op(kind, x, axes=axis, keepdims=int(keepdims))


def reduction_node(build: Builder, kind: str, x: Operand, node: Node) -> str:
    """One of ONNX's reductions over the axes of a node."""
    return over_axes(build, kind, x, axes_from_front(node), node.attributes["keepdims"])


def axes_from_front(node: Node) -> tuple[int, ...] | None:
    """Reduced axes, not negative if a size may be 0: onnxruntime ignores negative axes of empty tensors."""
    axis, shape = node.attributes["axis"], operand(node).type.shape
    axes = (axis,) if isinstance(axis, int) else axis
    if axes is None or all(isinstance(size, int) and size > 0 for size in shape):
        return axes
    return tuple(a % len(shape) for a in axes)


@form(reduction.mean, takes="axis keepdims", kernel="ReduceMean")
def mean(build: Builder, node: Node) -> str:
    result = reduction_node(build, "ReduceMean", node.inputs[0], node)
    shape, axis = operand(node).type.shape, axes_from_front(node)
    sizes = shape if axis is None else [shape[a] for a in axis]
    if build.has_elements(sizes):
        return result
    count, nan = product(sizes), np.asarray(np.nan, node.types[0].dtype.numpy)
    if not isinstance(count, Dim):
        return build.op("Add", result, nan)
    # The mean of no elements is NaN, but 0 in onnxruntime.
    some = build.op("Cast", size_vector(build, count), to=onnx_code("bool"))
    some = some if node.types[0].shape else build.op("Squeeze", some, _vector(0))
    return build.op("Where", some, result, nan)


@form(reduction.any_, takes="axis keepdims")
def any_(build: Builder, node: Node) -> str:
    counted = build.op("Cast", node.inputs[0], to=onnx_code("int32"))
    return build.op("Cast", reduction_node(build, "ReduceSum", counted, node), to=onnx_code("bool"))


@form(reduction.all_, takes="axis keepdims")
def all_(build: Builder, node: Node) -> str:
    failed = build.op("Cast", build.op("Not", node.inputs[0]), to=onnx_code("int32"))
    return build.op("Not", build.op("Cast", reduction_node(build, "ReduceSum", failed, node), to=onnx_code("bool")))


@form(reduction.cumsum, takes="axis", kernel="CumSum")
def cumsum(build: Builder, node: Node) -> str:
    x, dtype = operand(node), node.types[0].dtype
    counted = x if x.type.dtype == dtype else build.op("Cast", x, to=onnx_code(dtype))
    return build.op("CumSum", counted, np.asarray(node.attributes["axis"], np.int64))


@form(elementwise.less_equal, name="not greater", mends=REGIONS_OF_POSITIONS)
def not_greater(build: Builder, node: Node) -> Taken:
    """tract (0.23.9, Rust) looks for conditions "column <= row", which hold in one region of a mask, and computes a
    Where region by region. With a symbolic length it mixes up the sizes of regions: the shape is wrong, or it stops.
    It leaves "Not (column > row)" alone, which is the same for whole numbers.
    """
    left, right = operand(node, 0), operand(node, 1)
    if not (_are_positions(left) and _are_positions(right)):
        refuse("it is for positions")
    return Taken(build.op("Not", build.op("Greater", left, right)), build.target.wrong(REGIONS_OF_POSITIONS))


def _are_positions(value: Value) -> bool:
    """Whether it is a range of a symbolic length, with axes of size 1."""
    while isinstance(value, Result) and value.node.op is shaping.unsqueeze_op:
        value = operand(value.node)
    is_range = isinstance(value, Result) and value.node.op is creation.arange_op
    return is_range and any(isinstance(size, Dim) for size in value.type.shape)


@form(reduction.sum_of_squares, kernel="ReduceSumSquare")
def sum_of_squares(build: Builder, node: Node) -> str:
    # onnxruntime computes what the last node needs first, so this keeps the order in which the inputs are computed.
    squares = [build.op("ReduceSumSquare", x, keepdims=0) for x in reversed(node.inputs)]
    return build.op("Sum", *squares) if len(squares) > 1 else squares[0]


# These primitives have one form each, so their order does not matter.
FORMS = (
    *(stop_gradient, cast, cos, add, mul, true_div, not_equal, not_greater, *_BITWISE),
    *(take, reshape, squeeze, unsqueeze, permute, expand, tile, pad, split),
    *(slice_op, size_op, full, arange, tril, triu),
    *(mean, any_, all_, cumsum, sum_of_squares),
    one_node(elementwise.fmod, "Mod", fmod=1),
    one_node(shaping.concat_op, "Concat", "axis"),
)
