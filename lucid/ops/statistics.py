"""Variances and norms over axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.core.graph.types import float32, float64
from lucid.core.sizes.dims import product
from lucid.core.torch_names.arguments import torch_names
from lucid.ops.elementwise import abs_, check_kind, maximum, pow_, sqrt, where
from lucid.ops.op import function
from lucid.ops.operands import as_tensor
from lucid.ops.reduction import max_, mean, min_, sum_
from lucid.ops.shaping import each_axis, normalize_axis, squeeze
from lucid.ops.tensor.tensor import Axes, Tensor


def _every(where: str, x: Tensor, axis: Axes) -> tuple[int, ...]:
    chosen = range(x.ndim) if axis is None else each_axis(axis)
    return tuple(normalize_axis(where, each, x.ndim) for each in chosen)


def _wide(x: Tensor) -> Tensor:
    return x.astype(float32) if x.dtype.itemsize == 2 else x


@function
def var(x: Tensor, axis: Axes = None, correction: float = 1, keepdims: bool = False) -> Tensor:
    """Squared distances from the mean, summed over axes and divided by their number less `correction`.

    NaN where there are no more elements than that. Half precision is computed in float32.
    """
    axes = _every("var", x, axis)
    wide = _wide(x)
    centred = wide - mean(wide, axis=axes, keepdims=True)
    count = as_tensor("var", product(x.shape[i] for i in axes)).astype(wide.dtype)
    return (sum_(centred * centred, axis=axes, keepdims=keepdims) / maximum(count - correction, 0)).astype(x.dtype)


@function
def std(x: Tensor, axis: Axes = None, correction: float = 1, keepdims: bool = False) -> Tensor:
    """The root of the variance, also where the variance or the sum of the numbers overflows."""
    axes = _every("std", x, axis)
    wide = _wide(x)
    count = as_tensor("std", product(x.shape[i] for i in axes)).astype(wide.dtype)
    divisor = sqrt(maximum(count - correction, 0))

    def deviation(numbers: Tensor) -> Tensor:
        centred = numbers - mean(numbers, axis=axes, keepdims=True)
        return sqrt(sum_(centred * centred, axis=axes, keepdims=keepdims)) / divisor

    return _scaled(deviation, wide, axes, keepdims).astype(x.dtype)


@function
def norm(x: Tensor, p: Any = 2, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The p-norm over axes, all of them by default: (sum of |x|^p)^(1/p), or the largest or least |x| for p infinite.

    Half precision is computed in float32. The 2-norm is right where the squares overflow.
    """
    check_kind("norm", x.type, ("float",))
    power = 2.0 if p in ("fro", None) else float(p)
    if power != 2:
        return _sum_of_powers(x, power, axis, keepdims)
    axes = _every("norm", x, axis)

    def root(numbers: Tensor) -> Tensor:
        return sqrt(sum_(numbers * numbers, axis=axes, keepdims=keepdims))

    return _scaled(root, _wide(x), axes, keepdims).astype(x.dtype)


def _scaled(root: Callable[[Tensor], Tensor], x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """A function that is proportional to its numbers and squares them. Numbers whose squares may overflow are
    multiplied by a power of two before, and the result is divided by it, which rounds nothing."""
    if not x.is_traced:
        result = root(x)
        if np.isfinite(result.numpy()).all():
            return result
    large, factor = (2.0**500, 2.0**-600) if x.dtype == float64 else (2.0**62, 2.0**-80)
    one, less = (as_tensor("norm", number, x.dtype) for number in (1.0, factor))
    factors = where(sum_(abs_(x), axis=axes, keepdims=True) > large, less, one)
    return root(x * factors) / (factors if keepdims else squeeze(factors, axes))


def _sum_of_powers(x: Tensor, power: float, axis: Axes, keepdims: bool) -> Tensor:
    """A norm as it is defined."""
    axes, size = _every("norm", x, axis), abs_(_wide(x))
    if math.isinf(power):
        found = (max_ if power > 0 else min_)(size, axis=axes, keepdims=keepdims)
    elif power == 0:
        found = sum_((size != 0).astype(size.dtype), axis=axes, keepdims=keepdims)
    elif power == 1:
        found = sum_(size, axis=axes, keepdims=keepdims)
    elif power == 2:
        found = sqrt(sum_(size * size, axis=axes, keepdims=keepdims))
    else:
        found = pow_(sum_(pow_(size, power), axis=axes, keepdims=keepdims), 1 / power)
    return found.astype(x.dtype)


@torch_names
def normalize(x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm along an axis, or by `eps` where that is greater."""
    return x / maximum(_sum_of_powers(x, float(p), axis, keepdims=True), eps)
