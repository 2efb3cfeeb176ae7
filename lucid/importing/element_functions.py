"""Functions of torch's less common operators on elements and along an axis, in ATen's order of arguments."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from lucid import ops
from lucid.core.graph.types import float32, int32, int64
from lucid.nn import functional as F
from lucid.ops.elementwise import at_least_float32
from lucid.ops.kernels.erf import COMPLEMENT
from lucid.ops.tensor.tensor import Tensor

Function = Callable[..., Any]


# Elements -------------------------------------------------------------------------------------------------------------


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; of NaN 0."""
    return ops.where(ops.isnan(x), 0, ops.sign(x)) if x.dtype.kind == "float" else ops.sign(x)


def round_decimals(x: Tensor, decimals: int) -> Tensor:
    """Rounded to so many places; below 0 to tens, hundreds and so on."""
    if decimals < 0:
        return ops.round(x / 10.0**-decimals) * 10.0**-decimals
    return ops.round(x * 10.0**decimals) / 10.0**decimals


def signbit(x: Tensor) -> Tensor:
    """Whether a number is below 0 or -0."""
    return (ops.minimum(x, ops.reciprocal(x)) if x.dtype.kind == "float" else x) < 0


def copysign(x: Tensor, other: Any) -> Tensor:
    """x with the sign of another number."""
    x = x if x.dtype.kind == "float" else x.astype(float32)
    negative = signbit(other) if isinstance(other, Tensor) else math.copysign(1, other) < 0
    return ops.where(negative, -abs(x), abs(x))


def erfc(x: Tensor) -> Tensor:
    """1 - erf(x), with all its digits where x is large. Half precision is computed in float32.

    From 0.47 on it is exp(-x²) times a ratio of polynomials (Cody 1969), whose relative error is 1e-15 up to 4, and
    less than float32's from there on.
    """
    wide = at_least_float32(x) if x.dtype.kind == "float" else x.astype(float32)
    size = ops.clip(abs(wide), 0.46875, 30)  # 1 - erf(30) is 0 in float64

    def next_power(total: Any, coefficient: Any) -> Any:
        return total * size + coefficient

    top, bottom = (functools.reduce(next_power, row) for row in COMPLEMENT)
    far = ops.exp(-size * size) * (top / bottom)
    result = ops.where(abs(wide) < 0.46875, 1 - ops.erf(wide), ops.where(wide < 0, 2 - far, far))
    return result.astype(x.dtype) if x.dtype.kind == "float" else result


def angle(x: Tensor) -> Tensor:
    """Pi below 0, otherwise 0."""
    x = x if x.dtype.kind == "float" else x.astype(float32)
    return ops.where(ops.isnan(x), x, ops.where(x < 0, math.pi, 0.0)).astype(x.dtype)


def past_nan(extreme: Function) -> Function:
    """The larger or smaller of two; of a number and NaN the number."""

    def chosen(x: Tensor, y: Tensor) -> Tensor:
        return ops.where(ops.isnan(x), y, ops.where(ops.isnan(y), x, extreme(x, y)))

    return chosen


def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """torch's elu with the scales of selu and celu, which exported programs write with it."""
    result = F.elu(x, alpha) if input_scale == 1 else ops.where(x > 0, x, F.elu(x * input_scale, alpha))
    return result if scale == 1 else result * scale


# Along an axis --------------------------------------------------------------------------------------------------------


def running_extreme(better: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """The extremes so far and their last places: of NaN the extreme is NaN."""

    def running(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        x = x.movedim(axis, 0)

        def step(carry: tuple[Tensor, Tensor, Tensor], element: Tensor) -> Any:
            extreme, place, index = carry
            new = (index == 0) | better(element, extreme) | ops.isnan(element)
            new = new & ~(ops.isnan(extreme) & ~ops.isnan(element))
            extreme, place = ops.where(new, element, extreme), ops.where(new, index, place)
            return (extreme, place, index + 1), (extreme, place)

        zero = ops.zeros_like(x.amax(0))
        _, (extremes, places) = ops.scan(step, (zero, zero.astype(int64), ops.full((), 0, int64)), x)
        return extremes.movedim(0, axis), places.movedim(0, axis)

    return running


def nanmedian(x: Tensor, axis: int, keepdim: bool = False) -> Any:
    """The lower of the two numbers in the middle of those that are not NaN, and its place."""
    if x.dtype.kind != "float":
        return ops.median(x, axis, keepdim)
    ordered = ops.where(ops.isnan(x), math.inf, x).sort(axis)[0]  # infinity among the numbers is before all that is NaN
    count = (~ops.isnan(x)).sum(axis, True)
    value = ops.where(count == 0, math.nan, ordered.gather(axis, ops.maximum(count - 1, 0) // 2))
    place = (x == value).astype(int32).argmax(axis, True)
    return (value, place) if keepdim else (value.squeeze(axis), place.squeeze(axis))


def mode(x: Tensor, axis: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The element that is there most often, the smallest one of several, and its last place."""
    moved = x.movedim(axis, -1)
    alike = moved.unsqueeze(-1) == moved.unsqueeze(-2)
    counts = alike.sum(-1)
    value = ops.where(counts == counts.amax(-1, True), moved, moved.amax(-1, True)).amin(-1, True)
    place = x.shape[axis] - 1 - (moved == value).astype(int32).flip(-1).argmax(-1, True)
    value, place = value.movedim(-1, axis), place.movedim(-1, axis)
    return (value, place) if keepdim else (value.squeeze(axis), place.squeeze(axis))
