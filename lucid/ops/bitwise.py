"""Operations on the bits of integers; those of two bits are the logical operations on booleans.

Negative numbers are in two's complement. The bodies compute bit by bit with int64, for opsets without such operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.core.graph.types import Array, common_dtype, int64
from lucid.core.graph.values import Constant
from lucid.ops.elementwise import (
    Binary,
    Unary,
    check_kind,
    clamp,
    floor_div,
    instead,
    maximum,
    mod,
    mul,
    not_equal,
    sub,
    where,
)
from lucid.ops.indexing import take
from lucid.ops.op import Op, function
from lucid.ops.operand_conversion import as_tensors
from lucid.ops.reduction import sum_
from lucid.ops.shaping import unsqueeze
from lucid.ops.tensor.tensor import Tensor, TensorLike

_POWERS = np.asarray([2**place for place in range(63)], np.int64)  # of a bit; the last bit is the sign


def _bitwise(
    name: str,
    what: str,
    kernel: Callable[[Array, Array], Any],
    joined: Callable[[Tensor, Tensor], Tensor],
    logical: str,
) -> Binary:
    """`joined`: of two tensors of 0 and 1."""

    def body(x: Tensor, y: Tensor) -> Tensor:
        check_kind(name, x.spec, ("int",))
        wide = x.astype(int64), y.astype(int64)
        bits = joined(*(mod(floor_div(unsqueeze(v, -1), _POWERS), 2) for v in wide))
        signs = joined(*((v < 0).astype(int64) for v in wide))
        total = sum_(mul(bits, _POWERS), axis=(-1,))
        return where(not_equal(signs, 0), total + np.iinfo(np.int64).min, total).astype(x.dtype)

    body.__doc__ = f"The bits that {what} integers have, broadcast and brought to one element type."
    by_kind = {"bool": instead(logical)}
    return Op(body, name=name, kernel=kernel, body=body, promoted=slice(0, 2), by_kind=by_kind)  # type: ignore[arg-type]


def _body_of_not(x: Tensor) -> Tensor:
    """The bits of integers inverted."""
    check_kind("bitwise_not", x.spec, ("int",))
    return sub(-1 if np.issubdtype(x.dtype.numpy, np.signedinteger) else np.iinfo(x.dtype.numpy).max, x)


bitwise_not: Unary = Op(
    _body_of_not,  # type: ignore[arg-type]
    name="bitwise_not",
    kernel=np.invert,
    body=_body_of_not,  # type: ignore[arg-type]
    by_kind={"bool": instead("logical_not")},
)
bitwise_and = _bitwise("bitwise_and", "both", np.bitwise_and, mul, "logical_and")
bitwise_or = _bitwise("bitwise_or", "one of two", np.bitwise_or, maximum, "logical_or")
bitwise_xor = _bitwise(
    "bitwise_xor",
    "exactly one of two",
    np.bitwise_xor,
    lambda x, y: not_equal(x, y).astype(int64),
    "logical_xor",
)


@function
def bitwise_left_shift(x: TensorLike, other: TensorLike) -> Tensor:
    """The bits of integers `other` places up: those beyond the element type are lost.

    Shapes broadcast, and both are brought to one element type. Negative places give 0.

    Raises:
        TypeError: for numbers that are no integers.
    """
    number, places = _integers("bitwise_left_shift", x, other)
    return _by_powers(mul, number, places, 8 * number.dtype.itemsize, 0)


@function
def bitwise_right_shift(x: TensorLike, other: TensorLike) -> Tensor:
    """The bits of integers `other` places down, filled with the sign: x // 2**other, of any number of places.

    Shapes broadcast, and both are brought to one element type. Negative places give 0, or -1 below 0.

    Raises:
        TypeError: for numbers that are no integers.
    """
    number, places = _integers("bitwise_right_shift", x, other)
    signed = np.issubdtype(number.dtype.numpy, np.signedinteger)
    sign = where(number < 0, -1, 0).astype(number.dtype) if signed else 0
    return _by_powers(floor_div, number, places, 8 * number.dtype.itemsize - signed, sign)


def _integers(name: str, x: TensorLike, other: TensorLike) -> list[Tensor]:
    """Both operands in one element type."""
    operands = [each for each in as_tensors(name, (x, other)) if each is not None]
    for each in operands:
        check_kind(name, each.spec, ("int",))
    dtype = common_dtype([each.spec for each in operands])
    return [each.astype(dtype) for each in operands]


def _by_powers(
    apply: Callable[[Tensor, Tensor], Tensor], x: Tensor, places: Tensor, count: int, beyond: TensorLike
) -> Tensor:
    """`apply` of x and 2 to the power of places below `count`; `beyond` for others."""
    type_ = x.dtype.numpy
    powers = Tensor.from_array(np.left_shift(np.ones(count, type_), np.arange(count, dtype=type_)))
    shifted = apply(x, take(powers, clamp(places, 0, count - 1).astype(int64)))
    value = places.to_value()
    if isinstance(value, Constant) and ((value.array >= 0) & (value.array < count)).all():
        return shifted
    return where((places >= 0) & (places < count), shifted, beyond)
