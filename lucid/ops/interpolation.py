"""`interpolate`: images and signals resized by torch's rules.

The body is made of gathers, one axis after the other. Positions are computed in float32 as torch does, so that the
same elements are taken; for known sizes they are constants of the exported model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from lucid.core.graph.types import DType, float32, float64, int64, show_shape
from lucid.core.sizes.dims import Shape, Size, as_size, same
from lucid.core.torch_names.argument_names import torch_names
from lucid.ops.convolution import adaptive_average_pool
from lucid.ops.creation import arange_op
from lucid.ops.elementwise import at_least_float32, floor, maximum, minimum, where
from lucid.ops.indexing import take_op
from lucid.ops.op import composite
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.shaping import expand, unsqueeze
from lucid.ops.tensor.tensor import Tensor

_MODES = {
    "nearest": None,
    "nearest-exact": None,
    "linear": 1,
    "bilinear": 2,
    "bicubic": 2,
    "trilinear": 3,
    "area": None,
}


@torch_names
def interpolate(
    x: Tensor,
    size: Size | Sequence[Size] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """(N, C, *spatial) with other spatial sizes.

    Args:
        size: the new sizes of the spatial axes; one number for all of them, or one for each.
        scale_factor: factors of the sizes instead, rounded down.
        mode: "nearest", "nearest-exact", "area"; "linear" (1 spatial axis), "bilinear", "bicubic" (2), "trilinear" (3).
        align_corners: whether the first and last elements keep their positions; else positions are those of element
            centres. Not for the nearest modes and "area".
        recompute_scale_factor: positions by the rounded sizes instead of the factor.
        antialias: whether an axis that becomes shorter is smoothed before, for "bilinear" and "bicubic": each new
            element is a mean of all elements that it replaces, with the weights of Pillow's resize.

    Raises:
        TypeError: for integers, unless the mode is one of the nearest ones.
        ValueError: for another mode, number of axes or sizes, or options that do not go together.
    """
    axes = x.ndim - 2
    if mode not in _MODES or axes < 1 or _MODES[mode] not in (None, axes):
        raise ValueError(
            f"interpolate: mode is {mode!r} for {show_shape(x.shape)}, expected one of {', '.join(_MODES)} for "
            "(N, C, *spatial) with as many spatial axes as the mode is for"
        )
    if antialias and mode not in _FILTERS:
        raise ValueError(f"interpolate: antialias=True is for modes {' and '.join(_FILTERS)}, not for {mode!r}")
    if align_corners is not None and _MODES[mode] is None:
        raise ValueError(f"interpolate: align_corners is not for mode {mode!r}; leave it out")
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: expected one of size and scale_factor")
    factors = [None] * axes if scale_factor is None else _each("scale_factor", scale_factor, axes)
    sizes = (
        [_scaled(n, factor) for n, factor in zip(x.shape[2:], factors, strict=True)]
        if size is None
        else [as_size("interpolate: size", n) for n in _each("size", size, axes)]
    )
    if any(isinstance(n, int) and n < 1 for n in sizes):
        raise ValueError(
            f"interpolate: {show_shape(x.shape)} would get the sizes {show_shape(sizes)}, expected 1 or more"
        )
    if mode == "area":
        return adaptive_average_pool(x, output_size=tuple(sizes))
    factors = [None] * axes if recompute_scale_factor else factors
    return resized(x, tuple(sizes), tuple(factors), mode, bool(align_corners), antialias)


def resized(
    x: Tensor, sizes: Shape, factors: tuple[float | None, ...], mode: str, align_corners: bool, antialias: bool
) -> Tensor:
    """`resize` by one op where there is something to do, and by products with `antialias`."""
    if mode == "nearest":
        pairs = zip(x.shape[2:], sizes, factors, strict=True)
        factors = tuple(factor and _of_nearest(old, new, factor) for old, new, factor in pairs)
    if all(map(same, x.shape[2:], sizes)) and all(factor in (None, 1) for factor in factors):
        return x
    if antialias:
        for axis, (length, factor) in enumerate(zip(sizes, factors, strict=True), start=2):
            x = _smoothed(x, axis, length, factor, mode, align_corners)
        return x
    return resize(x, sizes=sizes, factors=factors, mode=mode, align_corners=align_corners)


def _of_nearest(old: Size, new: Size, factor: float) -> float:
    """The factor by which positions are divided: torch leaves a given one aside where a size stays or doubles."""
    return 1.0 if same(old, new) else 2.0 if same(2 * old, new) else factor


@composite
def resize(x: Tensor, *, sizes: Shape, factors: tuple[float | None, ...], mode: str, align_corners: bool) -> Tensor:
    """(N, C, *spatial) with other spatial sizes, as `interpolate` makes them (ONNX Resize).

    Args:
        sizes: of each spatial axis.
        factors: by which positions are divided; None: the quotient of both sizes.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic" or "trilinear".
        align_corners: as for `interpolate`.

    Raises:
        TypeError: for integers, which only the nearest modes take.
    """
    if x.dtype.kind != "float" and not mode.startswith("nearest"):
        raise TypeError(f"interpolate: mode {mode!r} of {x.spec}, expected floating-point numbers; use .float()")
    for axis, (length, factor) in enumerate(zip(sizes, factors, strict=True), start=2):
        if not same(x.shape[axis], 1):
            x = _along(x, axis, length, factor, mode, align_corners)
    return expand(x, (*x.shape[:2], *sizes))  # axes of one element


def _each(name: str, value: Any, axes: int) -> list[Any]:
    values = list(value) if isinstance(value, (tuple, list)) else [value] * axes
    if len(values) != axes:
        raise ValueError(f"interpolate: {name} is {value}, expected one number or {axes}")
    return values


def _scaled(size: Size, factor: float) -> Size:
    if isinstance(size, int):
        return math.floor(size * factor)
    ratio = Fraction(factor)
    if ratio.denominator > 4096:
        raise ValueError(
            f"interpolate: scale_factor {factor} of the size {size}, which is known only at run time, is no simple "
            "fraction; give size="
        )
    return size * ratio.numerator // ratio.denominator


def _smoothed(x: Tensor, axis: int, length: Size, factor: float | None, mode: str, align_corners: bool) -> Tensor:
    """Resize one axis by a product with a table of weights (size, wanted)."""
    size, (filter_of, reach) = x.shape[axis], _FILTERS[mode]
    dtype = float64 if x.dtype == float64 else float32
    step = _step(size, length, factor, align_corners, dtype)
    width = maximum(step, 1.0)
    centre = (arange_op(start=0, stop=length).astype(dtype) + 0.5) * step
    offset = arange_op(start=0, stop=size).astype(dtype).unsqueeze(1) + 0.5 - centre
    weights = where(abs(offset) < reach * width, filter_of(abs(offset / width)), 0.0)
    weights = (weights / weights.sum(0)).astype(x.dtype)
    return (x.movedim(axis, -1) @ weights).movedim(-1, axis)


_FILTERS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {  # of distances, and how far they reach
    "bilinear": (lambda x: 1 - x, 1.0),
    "bicubic": (lambda x: where(x < 1, (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2), 2.0),
}


def _step(size: Size, length: Size, factor: float | None, align_corners: bool, dtype: DType) -> Tensor:
    """How far the positions of two new elements are apart."""
    if align_corners:
        if same(length, 1):
            return Tensor(0.0, dtype)
        return _number(size - 1).astype(dtype) / maximum(_number(length - 1), 1).astype(dtype)
    return _number(size).astype(dtype) / _number(length).astype(dtype) if factor is None else Tensor(1 / factor, dtype)


def _number(size: Size) -> Tensor:
    return as_tensor("interpolate", size)


def _along(x: Tensor, axis: int, length: Size, factor: float | None, mode: str, align_corners: bool) -> Tensor:
    """Resize one axis."""
    size = x.shape[axis]
    if same(size, length) and (factor is None or factor == 1):
        return x
    dtype = float64 if x.dtype == float64 and not mode.startswith("nearest") else float32

    last, place = _number(size) - 1, arange_op(start=0, stop=length).astype(dtype)
    step = _step(size, length, factor, align_corners, dtype)
    if align_corners:
        at = place * step
    else:
        middle = 0.0 if mode == "nearest" else 0.5  # of an element
        at = (place + middle) * step - (0.0 if mode.startswith("nearest") else middle)
    if mode.startswith("nearest"):
        return take_op(x, minimum(floor(at).astype(int64), last), axis=axis)
    if mode != "bicubic":
        at = maximum(at, 0.0)
    first = floor(at)
    wide = at_least_float32(x)
    fraction = unsqueeze((at - first).astype(wide.dtype), tuple(range(1, x.ndim - axis)))  # along the axis
    start = first.astype(int64)
    if mode == "bicubic":
        weights = cubic_weights(fraction)
        places = [maximum(minimum(start + offset, last), 0) for offset in weights]
    else:  # the first place is never past the last element
        weights = {0: 1 - fraction, 1: fraction}
        places = [start, minimum(start + 1, last)]
    terms = [take_op(wide, at, axis=axis) * weight for at, weight in zip(places, weights.values(), strict=True)]
    return sum(terms[1:], start=terms[0]).astype(x.dtype)


def cubic_weights(fraction: Tensor) -> dict[int, Tensor]:
    """The weights of the four neighbours by the cubic convolution of Keys 1981 with a = -0.75."""
    a = -0.75

    def near(t: Tensor) -> Tensor:  # up to a distance of 1
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Tensor) -> Tensor:  # from 1 to 2
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return {-1: far(fraction + 1), 0: near(fraction), 1: near(1 - fraction), 2: far(2 - fraction)}
