"""Hyperbolic functions and their inverses, and the angle and length of two coordinates."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.core.graph.types import Array
from lucid.ops.elementwise import (
    REALS,
    Binary,
    Unary,
    abs_,
    at_least_float32,
    atan,
    exp,
    expm1,
    in_wide,
    isinf,
    log,
    log1p,
    maximum,
    minimum,
    reciprocal,
    sign,
    sqrt,
    true_div,
    where,
)
from lucid.ops.op import Op
from lucid.ops.tensor.tensor import Tensor

_LOG2 = math.log(2)
_LARGE = 1e9  # beyond, x² + 1 and x² - 1 are x² in float32 and float64


def _of_real(kernel: Callable[[Array], Any]) -> Callable[[Callable[[Tensor], Tensor]], Unary]:
    return lambda body: _op(body, kernel)


def _of_two(kernel: Callable[[Array, Array], Any]) -> Callable[[Callable[[Tensor, Tensor], Tensor]], Binary]:
    return lambda body: _op(body, kernel, promoted=slice(0, 2))


def _op(body: Callable[..., Tensor], kernel: Callable[..., Any], **options: Any) -> Any:
    """An op of real numbers, half precision computed in float32."""

    @functools.wraps(body)
    def wide(*tensors: Tensor) -> Tensor:
        return body(*map(at_least_float32, tensors)).astype(tensors[0].dtype)

    return Op(wide, name=body.__name__, body=wide, kernel=in_wide(kernel), by_kind=REALS, **options)


@_of_real(np.sinh)
def sinh(x: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / 2, without cancellation where x is small, and without overflow before its own."""
    m = expm1(abs_(x))
    small = (m + m / (m + 1)) / 2
    return sign(x) * where(abs_(x) < 1, small, exp(abs_(x) - _LOG2) - exp(-abs_(x) - _LOG2))


@_of_real(np.cosh)
def cosh(x: Tensor) -> Tensor:
    """(exp(x) + exp(-x)) / 2, without overflow before its own."""
    return exp(x - _LOG2) + exp(-x - _LOG2)


@_of_real(np.arcsinh)
def asinh(x: Tensor) -> Tensor:
    """log(x + sqrt(x² + 1)), from the absolute value, where nothing cancels."""
    a = abs_(x)
    square = where(a > _LARGE, 0, a) ** 2
    return sign(x) * where(a > _LARGE, log(a) + _LOG2, log1p(a + square / (1 + sqrt(1 + square))))


@_of_real(np.arccosh)
def acosh(x: Tensor) -> Tensor:
    """log(x + sqrt(x² - 1)); below 1 NaN."""
    less = where(x > _LARGE, 0, x - 1)
    return where(x > _LARGE, log(x) + _LOG2, log1p(less + sqrt(less) * sqrt(less + 2)))


@_of_real(np.arctanh)
def atanh(x: Tensor) -> Tensor:
    """log((1 + x) / (1 - x)) / 2, from the absolute value, where nothing cancels; beyond 1 NaN."""
    return sign(x) * log1p(2 * abs_(x) / (1 - abs_(x))) / 2


@_of_two(np.arctan2)
def atan2(x: Tensor, y: Tensor) -> Tensor:
    """The angle, between -pi and pi, of the point with ordinate x and abscissa y, as in ``numpy.arctan2(x, y)``.

    Zeros count by their signs.
    """
    least, most = minimum(abs_(y), abs_(x)), maximum(abs_(y), abs_(x))
    ratio = where(least == most, (least > 0).astype(x.dtype), true_div(least, most))  # 1 of infinities, 0 of zeros
    angle = atan(where(least != least, least, ratio))
    angle = where(abs_(x) > abs_(y), math.pi / 2 - angle, angle)
    angle = where(_is_negative(y), math.pi - angle, angle)
    return where(_is_negative(x), -angle, angle)


def _is_negative(x: Tensor) -> Tensor:
    """Whether the sign is that of negative numbers, which -0 has as well."""
    return minimum(x, reciprocal(x)) < 0


@_of_two(np.hypot)
def hypot(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x² + y²), without overflow before its own; infinite where one of them is."""
    least, most = minimum(abs_(x), abs_(y)), maximum(abs_(x), abs_(y))
    ratio = true_div(least, where(most == 0, 1, most))
    infinite = isinf(x) | isinf(y)
    return where(infinite, math.inf, most * sqrt(1 + where(infinite, 0, ratio) ** 2))
