"""Elementwise functions of one to three other ops, under the names that ported code calls."""

from __future__ import annotations

import math

import numpy as np

from lucid.core.graph.types import common_dtype, convert, float32, int64
from lucid.ops.elementwise import (
    abs_,
    div,
    exp,
    float_trunc_div,
    log,
    maximum,
    minimum,
    mul,
    pow_,
    reciprocal,
    round_,
    sqrt,
    tanh,
    where,
)
from lucid.ops.op import function
from lucid.ops.operands import as_tensor, as_tensors
from lucid.ops.tensor.tensor import Tensor, TensorLike


@function
def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x)."""
    return reciprocal(sqrt(x))


@function
def square(x: Tensor) -> Tensor:
    """x * x; of booleans as int64."""
    return mul(x, x) if x.dtype.kind != "bool" else x.astype(int64)


@function
def log2(x: Tensor) -> Tensor:
    """The logarithm to base 2, a whole number for powers of two. Half precision is computed in float32.

    What rounding leaves of it is often next to a whole number: where 2 to that power is x, it is the result.
    """
    x = _real(x)
    wide = x.astype(float32) if x.dtype.itemsize == 2 else x
    found = log(wide) * (1 / math.log(2))
    whole = round_(found)
    return where(pow_(2.0, whole) == wide, whole, found).astype(x.dtype)


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1, accurate near 0: tanh(x / 2) is (exp(x) - 1) / (exp(x) + 1). Half precision as float32."""
    x = _real(x)
    wide = x.astype(float32) if x.dtype.itemsize == 2 else x
    return (tanh(wide * 0.5) * (exp(wide) + 1)).astype(x.dtype)


def _real(x: Tensor) -> Tensor:
    """Integers and booleans as float32."""
    return x if x.dtype.kind == "float" else x.astype(float32)


@function
def isinf(x: Tensor) -> Tensor:
    """Whether each element is infinite."""
    return abs_(x) == math.inf


@function
def isfinite(x: Tensor) -> Tensor:
    """Whether each element is a finite number."""
    return abs_(x) < math.inf


@function
def clamp(x: Tensor, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """Each element brought into a range; bounds are numbers or tensors. Where min is above max, the result is max.

    Raises:
        ValueError: without a bound.
    """
    if min is None and max is None:
        raise ValueError("clamp: got neither min nor max, expected a bound")
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


@function
def scaled(x: Tensor, y: TensorLike, alpha: float) -> Tensor:
    """``alpha * y`` in the element type in which x and y are combined.

    Raises:
        TypeError: for a fraction as `alpha` of integers.
    """
    left, right = as_tensors("alpha", (x, y))
    assert left is not None and right is not None
    wanted = common_dtype([left.type, right.type])
    if wanted.kind != "float" and isinstance(alpha, float):
        raise TypeError(f"alpha is {alpha} for {wanted}, expected a whole number; convert x with .float()")
    return (right.astype(wanted) * alpha).astype(wanted)


@function
def masked_fill(x: Tensor, mask: TensorLike, value: TensorLike) -> Tensor:
    """The value where the mask is true, else x: the result has the element type of x, as in torch.

    Raises:
        OverflowError: for a number that the element type cannot hold; the fraction of one is cut off for integers.
        TypeError: for a mask that is not boolean.
    """
    if isinstance(value, (bool, int, float, np.generic)):
        filling = Tensor.from_array(convert(np.asarray(value), x.dtype, "masked_fill"))
    else:
        filling = as_tensor("masked_fill", value)
    if not filling.is_traced and filling.dtype != x.dtype:
        filling = Tensor.from_array(convert(filling.numpy(), x.dtype, "masked_fill"))
    return where(mask, filling.astype(x.dtype), x)


@function
def rounded_div(x: Tensor, y: TensorLike, rounding_mode: str | None = None) -> Tensor:
    """The quotient; "floor" rounds it down, "trunc" toward 0.

    Raises:
        ValueError: for another mode.
    """
    if rounding_mode is None:
        return div(x, y)
    if rounding_mode == "floor":
        return x // y
    if rounding_mode != "trunc":
        raise ValueError(f'div: rounding_mode is {rounding_mode!r}, expected None, "floor" or "trunc"')
    if x.dtype.kind == "float" or (isinstance(y, Tensor) and y.dtype.kind == "float") or isinstance(y, float):
        return float_trunc_div(x, y)
    down, rest = x // y, x % y
    return down + ((rest != 0) & ((rest < 0) != (x < 0))).astype(down.dtype)
