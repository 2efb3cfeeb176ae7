"""NumPy kernels of activations and normalisations. Functions of pieces of rows fill `out`, which may be `x`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid.core.graph.types import Array, as_dtype, promote
from lucid.core.process.threads import buffer
from lucid.ops.kernels.erf import erf
from lucid.ops.kernels.pieces import in_pieces, of_rows, widened

# The standard normal distribution function is 1 / (1 + exp(-x q(x^2))). For float32, q is a polynomial up to |x| = 6,
# beyond which the function rounds to 0 or 1: fitted by iteratively reweighted least squares to an error of 3e-8 of the
# function. These are the coefficients of -q, highest power first.
_LOGIT = (
    *(-3.51241382e-09, 2.64528647e-07, -7.92950564e-06, 0.000110612434),
    *(6.51899559e-05, -0.0726661693, -1.59576988),
)


def softmax(x: Array, *, axis: int) -> Array:
    """exp(x) normalised to sum 1 along an axis."""
    if axis in (-1, x.ndim - 1) and x.shape[-1]:
        return in_pieces(x, 1, _softmax_rows)
    wide = widened(x)
    e = wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf)
    np.exp(e, out=e)
    e /= np.sum(e, axis=axis, keepdims=True)
    return np.asarray(e, x.dtype)


def _softmax_rows(x: Array, out: Array) -> None:
    np.subtract(x, np.maximum.reduce(x, -1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= np.add.reduce(out, -1, keepdims=True)


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return in_pieces(x, 0, _silu)


def _silu(x: Array, out: Array) -> None:
    divisor = buffer("inner", x.shape, x.dtype)
    np.negative(x, out=divisor)
    np.exp(divisor, out=divisor)  # where that overflows, the result is 0
    divisor += 1.0
    np.divide(x, divisor, out=out)


def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    wide = widened(x)
    return np.asarray(np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide))), x.dtype)


def gelu(x: Array, *, approximate: str) -> Array:
    """x times the standard normal distribution function."""
    if approximate == "tanh":
        return in_pieces(x, 0, _gelu_tanh)
    return in_pieces(x, 0, _gelu_double if x.dtype == np.float64 else _gelu_single)


def _gelu_single(x: Array, out: Array) -> None:
    square, inner = buffer("square", x.shape, x.dtype), buffer("inner", x.shape, x.dtype)
    np.multiply(x, x, out=square)
    np.minimum(square, 36.0, out=square)
    np.multiply(square, _LOGIT[0], out=inner)
    for coefficient in _LOGIT[1:-1]:
        inner += coefficient
        inner *= square
    inner += _LOGIT[-1]
    inner *= x
    np.exp(inner, out=inner)
    inner += 1.0
    np.divide(x, inner, out=out)


def _gelu_double(x: Array, out: Array) -> None:
    factor = erf(x * math.sqrt(0.5))
    factor += 1.0
    factor *= 0.5
    np.multiply(x, factor, out=out)


def _gelu_tanh(x: Array, out: Array) -> None:
    inner = buffer("inner", x.shape, x.dtype)
    np.multiply(x, x, out=inner)
    inner *= 0.044715
    inner += 1.0
    inner *= x
    inner *= math.sqrt(2 / math.pi)
    np.tanh(inner, out=inner)
    inner += 1.0
    inner *= 0.5
    np.multiply(x, inner, out=out)


def layer_norm(x: Array, weight: Array | None, bias: Array | None, *, axes: int, eps: float) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axes."""
    if _widens(x, weight, bias):
        return _scaled(layer_norm(x, None, None, axes=axes, eps=eps), weight, bias)
    weight, bias = _flat(weight), _flat(bias)

    def compute(x: Array, out: Array) -> None:
        _normalize(x, out, eps)
        if weight is not None:
            out *= weight
        if bias is not None:
            out += bias

    return in_pieces(x, axes, compute)


def rms_norm(x: Array, weight: Array | None, *, eps: float, offset: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * (weight + offset) over the last axis."""
    if not offset and _widens(x, weight):
        return _scaled(rms_norm(x, None, eps=eps, offset=offset), weight)
    weight = _flat(weight)
    if weight is not None and offset:
        weight = weight.astype(np.float32 if x.dtype.itemsize == 2 else x.dtype) + offset

    def compute(x: Array, out: Array) -> None:
        np.multiply(x, np.reciprocal(_root(x, eps)), out=out)
        if weight is not None:
            out *= weight

    return in_pieces(x, 1, compute)


def group_norm(x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float) -> Array:
    """Groups of channels of (N, C, *spatial) as `layer_norm` has rows; weight and bias (C)."""
    if _widens(x, weight, bias):
        columns = (None if v is None else v.reshape(-1, *(1,) * (x.ndim - 2)) for v in (weight, bias))
        return _scaled(group_norm(x, None, None, groups=groups, eps=eps), *columns)
    channels = x.shape[1] // groups
    scale, shift = (None if v is None else widened(v).reshape(groups, channels, 1) for v in (weight, bias))

    def compute(x: Array, out: Array, rows: slice) -> None:
        _normalize(x, out, eps)
        group = np.arange(rows.start, rows.start + len(x)) % groups
        by_channel = out.reshape(len(x), channels, x.shape[-1] // channels)
        if scale is not None:
            by_channel *= scale[group]
        if shift is not None:
            by_channel += shift[group]

    return of_rows(x, math.prod(x.shape[1:]) // groups, compute)


def _normalize(x: Array, out: Array, eps: float) -> None:
    """Rows with a mean of 0 and a variance of 1."""
    np.subtract(x, np.add.reduce(x, -1, keepdims=True) / x.dtype.type(x.shape[-1]), out=out)
    out /= _root(out, eps)


def _widens(x: Array, *vectors: Array | None) -> bool:
    """Whether a vector, and so the result, has a wider element type than x."""
    for v in vectors:  # noqa: SIM110  # a generator would cost a small call a microsecond
        if v is not None and v.dtype is not x.dtype and _common(x, v) != x.dtype:
            return True
    return False


def _scaled(x: Array, weight: Array | None, bias: Array | None = None) -> Array:
    """x * weight + bias, with the types that the ops of the body would have."""
    for op, vector in ((np.multiply, weight), (np.add, bias)):
        if vector is not None:
            common = _common(x, vector)
            x = op(x.astype(common), vector.astype(common))
    return x


def _common(x: Array, y: Array) -> np.dtype[Any]:
    return promote(as_dtype(x.dtype), as_dtype(y.dtype)).numpy


def _flat(vector: Array | None) -> Array | None:
    """A weight as one row, half precision as float32."""
    return None if vector is None else widened(vector).reshape(-1)


def _root(x: Array, eps: float) -> Array:
    """sqrt(mean(x^2) + eps) of each row, as a column."""
    square = np.multiply(x, x, out=buffer("square", x.shape, x.dtype))
    root: Array = np.add.reduce(square, -1, keepdims=True)
    root /= root.dtype.type(x.shape[-1])
    root += eps
    return np.sqrt(root, out=root)
