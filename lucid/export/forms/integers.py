"""Exact sums, products, powers, quotients and remainders of integers.

onnxruntime (1.31; ReduceSum since 1.27) computes ReduceSum, ReduceProd and Pow of integers in float64, whatever the
element type: digits beyond 2^53 are lost, and results out of range are clamped instead of wrapping around. Its MatMul,
Mul and CumSum are exact, so these forms use those. A product of int64 numbers with ones also takes only a third of
ReduceSum's time. Its Div and Mod end the process where the lowest number is divided by -1.

OpenVINO (2026.4) divides integers as float32, and adds and multiplies them exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lucid.core.graph.types import Array, bool_, int8, int32, int64, uint8
from lucid.core.graph.values import Constant, Node, Result, Value
from lucid.core.targets.runtimes import DIVIDED_AS_FLOAT32, INTEGERS_AS_FLOAT64, LOWEST_OVER_MINUS_ONE
from lucid.export.builder import Builder, Operand
from lucid.export.form import form, operand, refuse, refuse_wrong
from lucid.export.forms.primitives import reduction_node
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.target import ExportError
from lucid.ops import concat, elementwise, logical_and, matmul, minimum, permute, reduction, squeeze, unsqueeze, where
from lucid.ops.creation import full_op
from lucid.ops.tensor.tensor import Tensor

_EXACT = 2**53  # float64 holds every whole number up to here
_LARGEST = {bool_: 1, int8: 2**7, uint8: 2**8, int32: 2**31, int64: 2**63}
# Exponents that are known only when the model runs have this many bits; larger ones are replaced by the largest of the
# same parity, which gives the same powers of 0, 1, -1 and of even numbers.
_BITS = 8


@form(reduction.sum_, takes="axis keepdims", name="ai.onnx ReduceSum", kernel="ReduceSum")
def reduce_sum(build: Builder, node: Node) -> str:
    x = operand(node)
    if not _exact_as_float64(x, node):
        refuse_wrong(build, INTEGERS_AS_FLOAT64)
    counted = x if x.type.dtype == node.types[0].dtype else build.op("Cast", x, to=onnx_code(int64))
    return reduction_node(build, "ReduceSum", counted, node)


@form(reduction.sum_, takes="axis keepdims", name="products with ones", mends=INTEGERS_AS_FLOAT64)
def products_with_ones(build: Builder, node: Node) -> Tensor:
    _refuse_floats(node)
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
        refuse_wrong(build, INTEGERS_AS_FLOAT64)
    return reduction_node(build, "ReduceProd", node.inputs[0], node)


@form(reduction.prod, takes="axis keepdims", name="halves multiplied", mends=INTEGERS_AS_FLOAT64)
def halves_multiplied(build: Builder, node: Node) -> Tensor:
    _refuse_floats(node)
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
        refuse_wrong(build, INTEGERS_AS_FLOAT64)
    return build.op("Pow", *node.inputs)


@form(elementwise.pow_, name="repeated squares", mends=INTEGERS_AS_FLOAT64)
def repeated_squares(build: Builder, node: Node) -> Tensor:
    _refuse_floats(node)
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


@form(elementwise.int_mod, name="Div, corrected", kernel="Div", mends=DIVIDED_AS_FLOAT32)
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
    if x.type.dtype.itemsize < 4:
        refuse("float32 holds these integers")
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
    if x.type.dtype.itemsize < 4 or not build.target.wrong(LOWEST_OVER_MINUS_ONE):
        return False
    return not isinstance(y, Constant) or bool((y.array == -1).any())


def _refuse_floats(node: Node) -> None:
    if node.types[0].dtype.kind == "float":
        refuse("it is for integers")


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
    """A reduction in int64, axis by axis. With integers that wrap around, the order does not matter."""
    x = Tensor.from_value(operand(node)).astype(int64)
    axis, rank = node.attributes["axis"], x.ndim
    axes = sorted(range(rank) if axis is None else (a % rank for a in axis), reverse=True)
    for each in axes:
        x = along(x, each)
    return unsqueeze(x, axes[::-1]) if node.attributes["keepdims"] and axes else x


# Best first, of each op.
FORMS = (
    *(reduce_sum, products_with_ones, reduce_prod, halves_multiplied, pow_, repeated_squares, corrected_floor_div),
    *(int_floor_div, corrected_mod, int_mod),
)
