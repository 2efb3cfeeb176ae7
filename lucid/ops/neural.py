"""Ops of neural networks: activations, normalisations, embedding, dropout."""

from __future__ import annotations

import math

import numpy as np

from lucid.core.graph.types import Array, TensorType, same_shape, show_shape
from lucid.core.number_ranges import NOT_NEGATIVE, PROBABILITY, check
from lucid.core.process import random
from lucid.core.sizes.dims import product, same
from lucid.ops.elementwise import (
    abs_,
    at_least_float32,
    check_kind,
    clip,
    erf,
    exp,
    expm1,
    log,
    maximum,
    minimum,
    reciprocal,
    sigmoid,
    sqrt,
    tanh,
    where,
)
from lucid.ops.indexing import take
from lucid.ops.kernels import neural as neural_kernels
from lucid.ops.op import composite, composite_with, primitive
from lucid.ops.reduction import max_, mean, sum_, variance
from lucid.ops.shaping import normalize_axis, reshape, unsqueeze
from lucid.ops.tensor.tensor import Tensor


def _softmax_rule(x: TensorType, *, axis: int) -> TensorType:
    check_kind("softmax", x, ("float",))
    normalize_axis("softmax", axis, x.rank)
    return x


@primitive(kernel=neural_kernels.softmax, rule=_softmax_rule, onnx="Softmax")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:  # type: ignore[empty-body]
    """exp(x) normalised to sum 1 along an axis; the maximum is subtracted first, so nothing overflows."""


@composite
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """The logarithm of softmax, accurate where softmax underflows. Half precision is computed in float32."""
    check_kind("log_softmax", x.spec, ("float",))
    if same(x.shape[normalize_axis("log_softmax", axis, x.ndim)], 0):
        return x  # an empty axis has no maximum
    wide = at_least_float32(x)
    shifted = wide - max_(wide, axis=(axis,), keepdims=True)
    return (shifted - log(sum_(exp(shifted), axis=(axis,), keepdims=True))).astype(x.dtype)


@composite
def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return maximum(x, 0)


@composite
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1), accurate near 0 (Clevert et al. 2015)."""
    return where(x > 0, x, alpha * expm1(minimum(x, 0)))


@composite_with(kernel=neural_kernels.silu)
def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), also called swish (Elfwing et al. 2017)."""
    check_kind("silu", x.spec, ("float",))
    return x * sigmoid(x)


@composite
def hardtanh(x: Tensor, *, low: float = -1, high: float = 1) -> Tensor:
    """min(max(x, low), high) in the element type of x. The gradient at a bound is 0, as in torch; that of clip is 1."""
    return clip(x, low, high).astype(x.dtype)


@composite
def hardsigmoid(x: Tensor) -> Tensor:
    """min(max(x + 3, 0), 6) / 6. Half precision is computed in float32."""
    check_kind("hardsigmoid", x.spec, ("float",))
    return (hardtanh(at_least_float32(x) + 3, low=0, high=6) / 6).astype(x.dtype)


@composite
def hardswish(x: Tensor) -> Tensor:
    """x * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019). Half precision is computed in float32."""
    check_kind("hardswish", x.spec, ("float",))
    wide = at_least_float32(x)
    return (wide * (hardtanh(wide + 3, low=0, high=6) / 6)).astype(x.dtype)


@composite_with(kernel=neural_kernels.gelu)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the standard normal distribution function (Hendrycks & Gimpel 2016); "tanh": GPT-2's approximation.

    Raises:
        TypeError: for a tensor that is not floating-point.
        ValueError: for another approximation.
    """
    check_kind("gelu", x.spec, ("float",))
    if approximate not in ("none", "tanh"):
        raise ValueError(f'gelu: approximate is {approximate!r}, expected "none" or "tanh"')
    wide = at_least_float32(x)
    if approximate == "tanh":
        inner = tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * (wide * wide * wide)))
    else:
        inner = erf(wide * math.sqrt(0.5))
    return (0.5 * wide * (1 + inner)).astype(x.dtype)


@composite_with(kernel=neural_kernels.softplus)
def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), accurate where it is small, and without overflow. Half precision is computed in float32."""
    check_kind("softplus", x.spec, ("float",))
    wide = at_least_float32(x)
    e = exp(-abs_(wide))
    rounded = 1 + e
    log1p = log(rounded) + (e - (rounded - 1)) / rounded  # the rounding of 1 + e, corrected to first order
    return (maximum(wide, 0) + log1p).astype(x.dtype)


@composite_with(kernel=neural_kernels.layer_norm)
def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, axes: int = 1, eps: float = 1e-5
) -> Tensor:
    """Layer normalisation over the last `axes` axes (Ba et al. 2016; ONNX LayerNormalization).

    ``(x - mean) / sqrt(variance + eps) * weight + bias`` with weight and bias of the shape of those axes. Half
    precision is computed in float32.
    """
    check("layer_norm: eps", eps, NOT_NEGATIVE)
    _check_norm("layer_norm", x, axes, weight=weight, bias=bias)
    axis = tuple(range(-axes, 0))
    wide = at_least_float32(x)
    y = (wide - mean(wide, axis=axis, keepdims=True)) / sqrt(variance(wide, axis) + eps)
    y = y.astype(x.dtype) if wide is not x else y
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@composite_with(kernel=neural_kernels.rms_norm)
def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6, offset: float = 0.0) -> Tensor:
    """Root-mean-square normalisation over the last axis (Zhang & Sennrich 2019; ONNX RMSNormalization).

    ``x / sqrt(mean(x^2) + eps) * (weight + offset)``. Half precision is computed in float32. Gemma's weights have an
    offset of 1, which is an attribute so that the stored weight is the checkpoint's.
    """
    check("rms_norm: eps", eps, NOT_NEGATIVE)
    _check_norm("rms_norm", x, 1, weight=weight)
    wide = at_least_float32(x)
    y = wide * reciprocal(sqrt(mean(wide * wide, axis=(-1,), keepdims=True) + eps))
    if weight is not None and offset:
        return (y * (weight.astype(wide.dtype) + offset)).astype(x.dtype)
    y = y.astype(x.dtype) if wide is not x else y
    return y if weight is None else y * weight


def _check_norm(name: str, x: Tensor, axes: int, **vectors: Tensor | None) -> None:
    check_kind(name, x.spec, ("float",))
    for what, vector in vectors.items():
        if vector is not None and not same_shape(vector.shape, x.shape[-axes:]):
            raise ValueError(
                f"{name}: the last sizes of the input are {show_shape(x.shape[-axes:])}, "
                f"the {what} has {show_shape(vector.shape)}"
            )


@composite
def embedding(indices: Tensor, weight: Tensor) -> Tensor:
    """Rows of a table (entries, width) by index: (...) integers to (..., width).

    Raises:
        ValueError: for a table that does not have two axes.
        IndexError: eagerly, for an index outside the table.
    """
    if weight.ndim != 2:
        raise ValueError(f"embedding: the table is {weight.spec}, expected (entries, width)")
    check_rows("embedding", indices, weight)
    return take(weight, indices, 0)


def check_rows(what: str, indices: Tensor, table: Tensor) -> None:
    """Refuse indices outside a table, if both are known: NumPy would count negative ones from the end.

    Raises:
        IndexError: with the range of the indices.
    """
    if not indices.is_traced and not table.is_traced and indices.numpy().size:
        low, high = int(indices.numpy().min()), int(indices.numpy().max())
        rows = table.numpy().shape[0]
        if low < 0 or high >= rows:
            raise IndexError(
                f"{what}: indices range from {low} to {high}, expected 0 to {rows - 1}; the table has {rows} rows"
            )


def _dropout_kernel(x: Array, *, p: float) -> Array:
    if p == 1:
        return np.zeros_like(x)
    kept = random.generator().random(x.shape, np.float32) >= p
    return np.where(kept, x / np.asarray(1 - p, x.dtype), np.zeros((), x.dtype))


def _dropout_rule(x: TensorType, *, p: float) -> TensorType:
    check("dropout: p", p, PROBABILITY)
    check_kind("dropout", x, ("float",))
    return x


@primitive(kernel=_dropout_kernel, rule=_dropout_rule, folded=False)
def dropout(x: Tensor, *, p: float) -> Tensor:  # type: ignore[empty-body]
    """Zero each element with probability p and divide the others by 1 - p (Srivastava et al. 2014). For training."""


@composite
def batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of (N, C, *spatial) with known statistics (Ioffe & Szegedy 2015), all of shape (C).

    Raises:
        TypeError: for anything but a floating-point tensor (N, C, *spatial).
        ValueError: for statistics, a weight or a bias that are not (C).
    """
    check("batch_norm: eps", eps, NOT_NEGATIVE)
    _check_channels("batch_norm", x, running_mean, running_variance, weight, bias)
    scale = 1.0 / sqrt(running_variance + eps)
    if weight is not None:
        scale = scale * weight
    y = (x - per_channel(running_mean, x.ndim)) * per_channel(scale, x.ndim)
    return y if bias is None else y + per_channel(bias, x.ndim)


@composite_with(kernel=neural_kernels.group_norm)
def group_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, groups: int, eps: float = 1e-5
) -> Tensor:
    """Normalise groups of channels of (N, C, *spatial), each element of the batch separately (Wu & He 2018).

    Weight and bias are (C). Half precision is computed in float32.

    Raises:
        TypeError: for anything but a floating-point tensor (N, C, *spatial).
        ValueError: for groups that do not divide C, or a weight or bias that is not (C).
    """
    check("group_norm: eps", eps, NOT_NEGATIVE)
    _check_channels("group_norm", x, weight, bias)
    if groups < 1 or not same(x.shape[1] % groups, 0):
        raise ValueError(
            f"group_norm: input {show_shape(x.shape)}: {groups} groups do not divide {x.shape[1]} channels"
        )
    wide = at_least_float32(x)
    y = reshape(wide, (x.shape[0], groups, product(x.shape[1:]) // groups))
    y = (y - mean(y, axis=(-1,), keepdims=True)) / sqrt(variance(y, (-1,)) + eps)
    y = reshape(y, x.shape).astype(x.dtype)
    y = y if weight is None else y * per_channel(weight, x.ndim)
    return y if bias is None else y + per_channel(bias, x.ndim)


def _check_channels(name: str, x: Tensor, *vectors: Tensor | None) -> None:
    if x.ndim < 2 or x.dtype.kind != "float":
        raise TypeError(f"{name}: got {x.spec}, expected a floating-point tensor (N, C, *spatial)")
    for vector in vectors:
        if vector is not None and not same_shape(vector.shape, x.shape[1:2]):
            raise ValueError(
                f"{name}: input {show_shape(x.shape)} has {x.shape[1]} channels, but a weight, bias or statistic "
                f"has shape {show_shape(vector.shape)}"
            )


def per_channel(vector: Tensor, rank: int) -> Tensor:
    """(C) to (C, 1, ..., 1), which broadcasts over the spatial axes of a tensor of that rank."""
    if rank == 2:
        return vector
    return unsqueeze(vector, tuple(range(1, rank - 1))).named_after(vector, f"[:{', None' * (rank - 2)}]")
