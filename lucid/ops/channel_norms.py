"""Normalisation over channels: batch and group normalisation of (N, C, *spatial)."""

from __future__ import annotations

from lucid.core.graph.types import float32, same_shape, show_shape
from lucid.core.sizes.dims import product, same
from lucid.ops.elementwise import sqrt
from lucid.ops.kernels import neural as neural_kernels
from lucid.ops.neural import check_eps
from lucid.ops.op import composite, composite_with
from lucid.ops.reduction import mean, variance
from lucid.ops.shaping import reshape, unsqueeze
from lucid.ops.tensor.tensor import Tensor


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
    """Normalise each channel of (N, C, *spatial) with known statistics (Ioffe & Szegedy 2015), all of shape (C)."""
    check_eps("batch_norm", eps)
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
    """
    check_eps("group_norm", eps)
    _check_channels("group_norm", x, weight, bias)
    if groups < 1 or not same(x.shape[1] % groups, 0):
        raise ValueError(
            f"group_norm: input {show_shape(x.shape)}: {groups} groups do not divide {x.shape[1]} channels"
        )
    wide = x.astype(float32) if x.dtype.itemsize == 2 else x
    y = reshape(wide, (x.shape[0], groups, product(x.shape[1:]) // groups))
    y = (y - mean(y, axis=(-1,), keepdims=True)) / sqrt(variance(y, (-1,)) + eps)
    y = reshape(y, x.shape).astype(x.dtype)
    y = y if weight is None else y * per_channel(weight, x.ndim)
    return y if bias is None else y + per_channel(bias, x.ndim)


def _check_channels(name: str, x: Tensor, *vectors: Tensor | None) -> None:
    if x.ndim < 2 or x.dtype.kind != "float":
        raise TypeError(f"{name}: got {x.type}, expected a floating-point tensor (N, C, *spatial)")
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
    return unsqueeze(vector, tuple(range(1, rank - 1))).part_of(vector, f"[:{', None' * (rank - 2)}]")
