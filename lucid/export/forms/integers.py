"""Exact sums, products, powers, quotients and remainders of integers.

onnxruntime (1.31; ReduceSum since 1.27) computes ReduceSum, ReduceProd and Pow of integers in float64, whatever the
element type: digits beyond 2^53 are lost, and results out of range are clamped instead of wrapping around. Its MatMul,
Mul and CumSum are exact, so these forms use those. A product of int64 numbers with ones also takes only a third of
ReduceSum's time. Its Div and Mod end the process where the lowest number is divided by -1.

OpenVINO (2026.4) adds, subtracts and multiplies integers exactly, and so are its Max, Min, Abs, CumSum and TopK, all of
32 bits. It divides, compares, chooses, reduces and pads them as float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from lucid.core.graph.types import Array, DType, bool_, float32, int8, int32, int64, uint8
from lucid.core.graph.values import Constant, Node, Result, Value, operand
from lucid.core.targets.runtimes import (
    DIVIDED_AS_FLOAT32,
    INTEGERS_AS_FLOAT32,
    INTEGERS_AS_FLOAT64,
    LOWEST_OVER_MINUS_ONE,
    THREE_AXES,
)
from lucid.export.builder import Builder, Operand
from lucid.export.form import Form, form, refuse, refuse_wrong
from lucid.export.forms.integer_ranges import is_exact_as_float32, range_of, sum_is_exact_as_float32
from lucid.export.forms.primitives import reduction_node
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.target import ExportError
from lucid.ops import (
    concat,
    elementwise,
    logical_and,
    matmul,
    minimum,
    pad,
    permute,
    reduction,
    squeeze,
    unsqueeze,
    where,
)
from lucid.ops.creation import full_op
from lucid.ops.sorting import topk_op
from lucid.ops.tensor.tensor import Tensor

_EXACT = 2**53  # float64 holds every whole number up to here
_LARGEST = {bool_: 1, int8: 2**7, uint8: 2**8, int32: 2**31, int64: 2**63}
# Exponents that are known only when the model runs have this many bits; larger ones are replaced by the largest of the
# same parity, which gives the same powers of 0, 1, -1 and of even numbers.
_BITS = 8
_WIDE = ("int32", "int64")
_INTEGERS = ("bool", "int8", "uint8", *_WIDE)
Pair: TypeAlias = tuple[Operand, Operand]


@form(reduction.sum_, takes="axis keepdims", name="ai.onnx ReduceSum", kernel="ReduceSum")
def reduce_sum(build: Builder, node: Node) -> str:
    x = operand(node)
    if not _exact_as_float64(x, node):
        refuse_wrong(build.target, INTEGERS_AS_FLOAT64)
    if x.type.dtype.kind == "int" and x.type.rank == 3:
        refuse_wrong(build.target, THREE_AXES)
    counted = x if x.type.dtype == node.types[0].dtype else build.op("Cast", x, to=onnx_code(int64))
    return reduction_node(build, "ReduceSum", counted, node)


@form(reduction.sum_, takes="axis keepdims", name="products with ones", mends=INTEGERS_AS_FLOAT64, dtypes=_INTEGERS)
def products_with_ones(build: Builder, node: Node) -> Tensor:
    return _axis_by_axis(node, _sum)


def _sum(x: Tensor, axis: int) -> Tensor:
    # Nothing is broadcast, because onnxruntime's MatMul does not broadcast an empty batch.
    size, last = x.shape[axis], x.ndim - 1
    if axis == last:
        return squeeze(matmul(x, full_op(shape=(size, 1), value=1, dtype=int64)), -1) if last else _dot(x)
    before, after = range(axis), range(axis + 1, last)
    rows = permute(x, [*before, *after, axis, last]) if len(after) else x
    return squeeze(matmul(full_op(shape=(*rows.shape[:-2], 1, size), value=1, dtype=int64), rows), -2)


def _dot(x: Tensor) -> Tensor:
    return matmul(x, full_op(shape=x.shape, value=1, dtype=int64))


@form(reduction.prod, takes="axis keepdims", name="ai.onnx ReduceProd", kernel="ReduceProd")
def reduce_prod(build: Builder, node: Node) -> str:
    if node.types[0].dtype.kind == "int":
        refuse_wrong(build.target, INTEGERS_AS_FLOAT64)
    return reduction_node(build, "ReduceProd", node.inputs[0], node)


@form(reduction.prod, takes="axis keepdims", name="halves multiplied", mends=INTEGERS_AS_FLOAT64, dtypes=_INTEGERS)
def halves_multiplied(build: Builder, node: Node) -> Tensor:
    x = operand(node)
    axes = node.attributes["axis"]
    if not all(isinstance(x.type.shape[axis], int) for axis in (range(x.type.rank) if axes is None else axes)):
        refuse("it takes only axes of fixed sizes; .astype(lucid.float64).prod() is exported, but rounds beyond 2^53")
    return _axis_by_axis(node, _product)


def _product(x: Tensor, axis: int) -> Tensor:
    size = int(x.shape[axis])
    if not size:
        return full_op(shape=(*x.shape[:axis], *x.shape[axis + 1 :]), value=1, dtype=int64)
    while size > 1:
        one, other, *rest = x.split([size // 2, size // 2, *[1] * (size % 2)], axis)
        x, size = concat([one * other, *rest], axis), (size + 1) // 2
    return squeeze(x, axis)


@form(elementwise.pow_, name="ai.onnx Pow", kernel="Pow")
def pow_(build: Builder, node: Node) -> str:
    if node.types[0].dtype.kind == "int":
        refuse_wrong(build.target, INTEGERS_AS_FLOAT64)
    return build.op("Pow", *node.inputs)


@form(elementwise.pow_, name="repeated squares", mends=INTEGERS_AS_FLOAT64, dtypes=_INTEGERS)
def repeated_squares(build: Builder, node: Node) -> Tensor:
    base, exponent = Tensor.from_value(operand(node)), Tensor.from_value(operand(node, 1))
    if exponent.is_traced:
        return _computed_power(base, exponent)
    exponents = exponent.numpy()
    if np.min(exponents, initial=0) < 0:
        raise ExportError("pow: an integer to a negative power is not an integer; use .astype(lucid.float32)")
    if not exponents.ndim:
        return _fixed_power(base, int(exponents))
    return _power(base, exponent, int(np.max(exponents, initial=1)).bit_length())


def _fixed_power(base: Tensor, exponent: int) -> Tensor:
    power, square = None, base
    while exponent:
        if exponent % 2:
            power = square if power is None else power * square
        exponent //= 2
        square = square * square if exponent else square
    return base * 0 + 1 if power is None else power


def _computed_power(base: Tensor, exponent: Tensor) -> Tensor:
    parity = exponent % 2
    bounded = minimum(exponent, 2**_BITS - 2 + parity)
    negative = exponent < 0  # as in torch: the powers of 1 and -1 are exact, those of other numbers 0
    power = _power(base, where(negative, 2 + parity, bounded), _BITS)
    return where(logical_and(negative, base * base != 1), 0, power)


def _power(base: Tensor, exponent: Tensor, bits: int) -> Tensor:
    """The product of the repeated squares whose bits are set in the exponent."""
    power, square = where(exponent % 2 != 0, base, 1), base
    for bit in range(1, bits):
        square = square * square
        power = power * where(exponent // 2**bit % 2 != 0, square, 1)
    return power


@form(elementwise.int_floor_div, name="Div, corrected", kernel="Div", mends=DIVIDED_AS_FLOAT32)
def corrected_floor_div(build: Builder, node: Node) -> str:
    divided = _divided_twice(build, node)
    whole = build.op("Add", divided.quotient, divided.more)
    return build.op("Sub", whole, build.op("Cast", divided.is_above, to=onnx_code(node.types[0].dtype)))


@form(elementwise.int_mod, name="Div, corrected", kernel="Mod", mends=DIVIDED_AS_FLOAT32)
def corrected_mod(build: Builder, node: Node) -> str:
    divided = _divided_twice(build, node)
    above = build.op("Cast", divided.is_above, to=onnx_code(node.types[0].dtype))  # its Where rounds to float32
    return build.op("Add", divided.rest, build.op("Mul", above, divided.divisor))


class _Divided(NamedTuple):
    """A quotient, what a second division adds to it, the rest, and whether the sum is above the true quotient."""

    divisor: Operand
    quotient: str
    more: str
    rest: str
    is_above: str


def _divided_twice(build: Builder, node: Node) -> _Divided:
    """A division that is exact where integers are divided as float32, since their products and differences are exact.

    The first quotient is off by at most 2^-22 of itself, and 1. So its rest is at most 2^9 larger than the divisor, and
    the quotient of that is off by at most 1.
    """
    x, y = operand(node), operand(node, 1)
    if max(map(abs, (*range_of(x), *range_of(y)))) < 2**8:
        refuse("these integers are small")
    dividend, divisor = _without_trap(build, x, y)
    quotient = build.op("Div", dividend, divisor)
    first = build.op("Sub", dividend, build.op("Mul", quotient, divisor))
    more = build.op("Div", first, divisor)
    rest = build.op("Sub", first, build.op("Mul", more, divisor))
    positive = isinstance(y, Constant) and bool((y.array > 0).all())
    signed = rest if positive else build.op("Mul", rest, build.op("Sign", divisor))
    is_above = build.op("Less", signed, np.asarray(0, x.type.dtype.numpy))
    return _Divided(divisor, quotient, more, rest, is_above)


@form(elementwise.int_floor_div, kernel="Div")
def int_floor_div(build: Builder, node: Node) -> str:
    # ONNX Div truncates: if its remainder differs from that of Mod, which has the sign of the divisor, the quotient
    # rounded down is one less. (x - x mod y) / y would be shorter but overflow near the ends of the type; Mod with
    # fmod=1 is computed in float64.
    dividend, divisor = _without_trap(build, operand(node), operand(node, 1))
    quotient = build.op("Div", dividend, divisor)
    left = build.op("Sub", dividend, build.op("Mul", quotient, divisor))
    less = build.op("Not", build.op("Equal", left, build.op("Mod", dividend, divisor)))
    return build.op("Sub", quotient, build.op("Cast", less, to=onnx_code(node.types[0].dtype)))


@form(elementwise.int_mod, kernel="Mod")
def int_mod(build: Builder, node: Node) -> str:
    x, y = operand(node), operand(node, 1)
    if not _may_trap(build, x, y):
        return build.op("Mod", x, y)
    one, minus_one = _ones(y)
    return build.op("Mod", x, build.op("Where", build.op("Equal", y, minus_one), one, y))  # nothing is left of either


def _without_trap(build: Builder, x: Value, y: Value) -> tuple[Operand, Operand]:
    """The operands of a quotient. x // -1 becomes -x // 1, for which the lowest number stays the same."""
    if not _may_trap(build, x, y):
        return x, y
    one, minus_one = _ones(y)
    sign = build.op("Where", build.op("Equal", y, minus_one), minus_one, one)
    return build.op("Mul", x, sign), build.op("Mul", y, sign)


def _ones(y: Value) -> tuple[Array, Array]:
    dtype = y.type.dtype.numpy
    return np.asarray(1, dtype), np.asarray(-1, dtype)


def _may_trap(build: Builder, x: Value, y: Value) -> bool:
    """Whether the lowest number may be divided by -1. Smaller types are divided as int32, which can hold the result."""
    if x.type.dtype.itemsize < 4 or is_exact_as_float32(x) or not build.target.wrong(LOWEST_OVER_MINUS_ONE):
        return False
    return not isinstance(y, Constant) or bool((y.array == -1).any())


# As float32 ---------------------------------------------------------------------------------------------------------


def _refuse_held(is_held: bool) -> None:
    if is_held:
        refuse("float32 holds these integers")


def _equal(build: Builder, x: Operand, y: Operand, dtype: DType) -> str:
    return build.op("Equal", build.op("Sub", x, y), np.asarray(0, dtype.numpy))


def _compared(op: elementwise.Binary, is_negated: bool, operands: Callable[[Builder, Value, Value], Pair]) -> Form:
    """A comparison that asks whether a difference is 0, which is right even where the difference overflows."""

    @form(op, name="differences", kernel="Equal", mends=INTEGERS_AS_FLOAT32, dtypes=_WIDE)
    def compared(build: Builder, node: Node) -> str:
        x, y = operand(node), operand(node, 1)
        _refuse_held(is_exact_as_float32(x) or is_exact_as_float32(y))
        equal = _equal(build, *operands(build, x, y), x.type.dtype)
        return build.op("Not", equal) if is_negated else equal

    return compared


_COMPARED = (
    _compared(elementwise.equal, False, lambda build, x, y: (x, y)),
    _compared(elementwise.not_equal, True, lambda build, x, y: (x, y)),
    _compared(elementwise.less_equal, False, lambda build, x, y: (build.op("Max", x, y), y)),
    _compared(elementwise.greater_equal, False, lambda build, x, y: (build.op("Max", x, y), x)),
    _compared(elementwise.less, True, lambda build, x, y: (build.op("Max", x, y), x)),
    _compared(elementwise.greater, True, lambda build, x, y: (build.op("Max", x, y), y)),
)


@form(where, name="a product with the condition", kernel="Where", mends=INTEGERS_AS_FLOAT32)
def chosen(build: Builder, node: Node) -> str:
    condition, x, y = (operand(node, index) for index in range(3))
    if x.type.dtype.kind != "int":
        refuse("it is for integers")
    _refuse_held(is_exact_as_float32(x) and is_exact_as_float32(y))
    number = build.op("Cast", condition, to=onnx_code(x.type.dtype))
    return build.op("Add", y, build.op("Mul", number, build.op("Sub", x, y)))


@form(minimum, name="the complement of Max", kernel="Min", mends=INTEGERS_AS_FLOAT32, dtypes=_WIDE)
def complement_of_max(build: Builder, node: Node) -> str:
    """A Max and a Min of constants would be fused to a Clamp of float32."""
    x, y = operand(node), operand(node, 1)
    if not isinstance(x, Constant) and not isinstance(y, Constant):
        refuse("its operands are no constants, so nothing is fused")
    _refuse_held(is_exact_as_float32(node.results[0]))
    last = np.asarray(-1, x.type.dtype.numpy)
    return build.op("Sub", last, build.op("Max", build.op("Sub", last, x), build.op("Sub", last, y)))


def _extremes(op: reduction.Reduction, onnx: str) -> tuple[Form, Form]:
    @form(op, takes="axis keepdims", name="TopK", kernel="TopK", mends=INTEGERS_AS_FLOAT32, dtypes=_WIDE)
    def by_order(build: Builder, node: Node) -> Tensor:
        _refuse_held(is_exact_as_float32(operand(node)))
        most = onnx == "ReduceMax"
        return _axis_by_axis(node, lambda x, axis: squeeze(topk_op(x, k=1, axis=axis, largest=most)[0], axis))

    @form(op, takes="axis keepdims", name=f"{onnx} of float32", mends=THREE_AXES, dtypes=_WIDE)
    def of_floats(build: Builder, node: Node) -> str:
        return _as_float32(build, onnx, node, is_exact_as_float32(operand(node)))

    return by_order, of_floats


@form(reduction.sum_, takes="axis keepdims", name="ReduceSum of float32", mends=THREE_AXES, dtypes=_INTEGERS)
def sum_of_floats(build: Builder, node: Node) -> str:
    return _as_float32(build, "ReduceSum", node, sum_is_exact_as_float32(node))


def _as_float32(build: Builder, onnx: str, node: Node, is_exact: bool) -> str:
    """A reduction of integers that float32 holds. The casts keep apart what would be fused wrongly."""
    if operand(node).type.rank != 3:
        refuse("it is for three axes")
    if not is_exact:
        refuse("float32 does not hold these integers")
    x = build.op("Cast", *node.inputs, to=onnx_code(float32))
    return build.op("Cast", reduction_node(build, onnx, x, node), to=onnx_code(node.types[0].dtype))


@form(reduction.sum_, takes="axis keepdims", name="running sums", mends=INTEGERS_AS_FLOAT32, dtypes=_INTEGERS)
def running_sums(build: Builder, node: Node) -> Tensor:
    _refuse_held(sum_is_exact_as_float32(node))
    return _axis_by_axis(node, _last_sum)


def _last_sum(x: Tensor, axis: int) -> Tensor:
    """The last running sum; there is one of no elements, too."""
    before = [int(each == axis) for each in range(x.ndim)]
    sums = reduction.cumsum(pad(x, before=tuple(before), after=(0,) * x.ndim), axis=axis)
    last: Tensor = sums[(slice(None),) * axis + (-1,)]
    return last


@form(pad, takes="before after value", name="Pad of differences", kernel="Pad", mends=INTEGERS_AS_FLOAT32, dtypes=_WIDE)
def pad_of_differences(build: Builder, node: Node) -> Tensor:
    before, after, value = (node.attributes[name] for name in ("before", "after", "value"))
    _refuse_held(abs(value) < 2**24)
    return pad(Tensor.from_value(operand(node)) - int(value), before=before, after=after) + int(value)


def _exact_as_float64(x: Value, node: Node) -> bool:
    """Whether float64 can hold every sum of these elements, whatever their values."""
    if x.type.dtype.kind == "float":
        return True
    if x.type.dtype == int64 and isinstance(x, Result) and x.node.op is elementwise.cast:
        x = operand(x.node)
    if x.type.dtype.kind == "float":
        return False
    if x.type.dtype.itemsize == 1:
        return True  # no memory holds enough elements
    axis = node.attributes["axis"]
    sizes = [x.type.shape[a] for a in (range(x.type.rank) if axis is None else axis)]
    known = [size for size in sizes if isinstance(size, int)]
    return len(known) == len(sizes) and _LARGEST[x.type.dtype] * math.prod(known) <= _EXACT


def _axis_by_axis(node: Node, along: Callable[[Tensor, int], Tensor]) -> Tensor:
    """A reduction of integers, axis by axis. As they wrap around, the order does not matter."""
    x = Tensor.from_value(operand(node)).astype(node.types[0].dtype)
    axis, rank = node.attributes["axis"], x.ndim
    axes = sorted(range(rank) if axis is None else (a % rank for a in axis), reverse=True)
    for each in axes:
        x = along(x, each)
    return unsqueeze(x, axes[::-1]) if node.attributes["keepdims"] and axes else x


# Best first, of each op.
FORMS = (
    *(*_COMPARED, chosen, complement_of_max, running_sums, sum_of_floats, pad_of_differences),
    *(*_extremes(reduction.max_, "ReduceMax"), *_extremes(reduction.min_, "ReduceMin")),
    *(reduce_sum, products_with_ones, reduce_prod, halves_multiplied, pow_, repeated_squares, corrected_floor_div),
    *(int_floor_div, corrected_mod, int_mod),
)
