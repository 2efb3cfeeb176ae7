"""Neural-network functions under their usual names, computed by `lucid.ops`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lucid import ops
from lucid.core.graph.types import DTypeLike, float64, int64, same_shape, show_shape
from lucid.core.sizes.dims import Size, product, same
from lucid.core.torch_names.argument_names import torch_names, torch_names_and
from lucid.core.torch_names.missing_names import why_absent
from lucid.core.words import package_names
from lucid.losses import binary_cross_entropy as binary_cross_entropy
from lucid.losses import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from lucid.losses import cosine_embedding_loss as cosine_embedding_loss
from lucid.losses import cosine_similarity as cosine_similarity
from lucid.losses import cross_entropy as cross_entropy
from lucid.losses import gaussian_nll_loss as gaussian_nll_loss
from lucid.losses import hinge_embedding_loss as hinge_embedding_loss
from lucid.losses import huber_loss as huber_loss
from lucid.losses import in_batch_contrastive_loss as in_batch_contrastive_loss
from lucid.losses import kl_div as kl_div
from lucid.losses import l1_loss as l1_loss
from lucid.losses import margin_ranking_loss as margin_ranking_loss
from lucid.losses import mse_loss as mse_loss
from lucid.losses import multi_margin_loss as multi_margin_loss
from lucid.losses import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from lucid.losses import nll_loss as nll_loss
from lucid.losses import pairwise_distance as pairwise_distance
from lucid.losses import poisson_nll_loss as poisson_nll_loss
from lucid.losses import smooth_l1_loss as smooth_l1_loss
from lucid.losses import soft_margin_loss as soft_margin_loss
from lucid.losses import triplet_margin_loss as triplet_margin_loss
from lucid.nn._checks import check_axes, check_positive, check_probability, padding_row
from lucid.nn._dot_product_attention import scaled_dot_product_attention as scaled_dot_product_attention
from lucid.nn._image_sampling import affine_grid as affine_grid
from lucid.nn._image_sampling import fold as fold
from lucid.nn._image_sampling import grid_sample as grid_sample
from lucid.nn._image_sampling import unfold as unfold
from lucid.nn._multi_head_attention import multi_head_attention_forward as multi_head_attention_forward
from lucid.nn._pools import adaptive_avg_pool1d as adaptive_avg_pool1d
from lucid.nn._pools import adaptive_avg_pool2d as adaptive_avg_pool2d
from lucid.nn._pools import adaptive_avg_pool3d as adaptive_avg_pool3d
from lucid.nn._pools import adaptive_max_pool1d as adaptive_max_pool1d
from lucid.nn._pools import adaptive_max_pool2d as adaptive_max_pool2d
from lucid.nn._pools import adaptive_max_pool3d as adaptive_max_pool3d
from lucid.nn._pools import avg_pool1d as avg_pool1d
from lucid.nn._pools import avg_pool2d as avg_pool2d
from lucid.nn._pools import avg_pool3d as avg_pool3d
from lucid.nn._pools import max_pool1d as max_pool1d
from lucid.nn._pools import max_pool2d as max_pool2d
from lucid.nn._pools import max_pool3d as max_pool3d
from lucid.nn.cache import cache_key_mask as cache_key_mask
from lucid.nn.cache import cache_positions as cache_positions
from lucid.nn.cache import cache_span as cache_span
from lucid.nn.cache import cached_attention as cached_attention
from lucid.nn.cache import cross_attention as cross_attention
from lucid.nn.cache import layer_caches as layer_caches
from lucid.nn.cache import present_caches as present_caches
from lucid.nn.convolution import conv1d as conv1d
from lucid.nn.convolution import conv2d as conv2d
from lucid.nn.convolution import conv3d as conv3d
from lucid.nn.convolution import conv_transpose1d as conv_transpose1d
from lucid.nn.convolution import conv_transpose2d as conv_transpose2d
from lucid.nn.convolution import conv_transpose3d as conv_transpose3d
from lucid.nn.decoding import kept_positions as kept_positions
from lucid.nn.quantized import embedding as embedding
from lucid.nn.quantized import linear as linear
from lucid.nn.recurrent_decoding import mask_of_new_tokens as mask_of_new_tokens
from lucid.ops.elementwise import at_least_float32, expm1
from lucid.ops.interpolation import interpolate as interpolate
from lucid.ops.operand_conversion import check_tensors
from lucid.ops.rearranging import pad as pad
from lucid.ops.reduction import normalize as normalize
from lucid.ops.shaping import normalize_axis
from lucid.ops.tensor.tensor import Tensor, TracedValueError

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cache_key_mask",
    "cache_positions",
    "cache_span",
    "cached_attention",
    "celu",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_attention",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "embedding_bag",
    "fold",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "in_batch_contrastive_loss",
    "instance_norm",
    "interpolate",
    "kept_positions",
    "kl_div",
    "l1_loss",
    "layer_caches",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "mask_of_new_tokens",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "present_caches",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "tanh",
    "tanhshrink",
    "triplet_margin_loss",
    "unfold",
]
__dir__ = __all__.copy


if not TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise package_names.unknown(f"module {__name__!r}", name, __all__, why_absent("functional", name))


@torch_names
def one_hot(x: Tensor, num_classes: Size = -1) -> Tensor:
    """int64: 1 at the index that x holds along a new last axis, 0 elsewhere; by default as many classes as x needs.

    Raises:
        TracedValueError: without `num_classes` while x is traced.
        TypeError: for indices that are not integers.
        ValueError: without `num_classes` for an x of no elements.
    """
    if x.dtype.kind != "int":
        raise TypeError(f"one_hot: got {x.spec}, expected integers; use .long()")
    if isinstance(num_classes, int) and num_classes == -1:
        if x.is_traced:
            raise TracedValueError(f"one_hot of a traced {x.spec}: give num_classes, which is known only at run time")
        if not x.numpy().size:
            raise ValueError(f"one_hot of {x.spec}, which holds no index: give num_classes")
        num_classes = int(x.numpy().max()) + 1
    return ops.one_hot(x, num_classes, int64)


@torch_names_and("scale_grad_by_freq", "sparse")
def embedding_bag(
    indices: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The mean, sum or maximum of the rows of each bag: (bags, width); 0 for an empty bag.

    Args:
        indices: (bags, length), or (length,) of all bags in a row.
        offsets: where each bag begins in a row; with `include_last_offset` also where the last one ends.
        mode: "mean", "sum" or "max".
        per_sample_weights: a factor of each index; for mode "sum".
        padding_idx: an index that counts for nothing.

    Raises:
        ValueError: for an unknown mode, offsets that are no row or missing where they are needed, a `padding_idx` that
            is no row, and factors in a mode other than "sum" or of another shape than the indices.
    """
    if mode not in ("mean", "sum", "max") or (per_sample_weights is not None and mode != "sum"):
        raise ValueError(f"embedding_bag: mode is {mode!r}, expected mean, sum or max; per_sample_weights need sum")
    if indices.ndim != (2 if offsets is None else 1):
        raise ValueError(
            f"embedding_bag: indices are {indices.spec}, expected (bags, length), or (length,) with the offsets of bags"
        )
    rows, counted = embedding(indices, weight), ops.ones_like(indices) == 1
    if offsets is not None:
        place = ops.arange(indices.shape[0])
        end = offsets[:1] * 0 + indices.shape[0]
        bounds = offsets if include_last_offset else ops.concat([offsets, end])
        starts, ends = bounds[:-1], bounds[1:]
        counted = (place >= starts.unsqueeze(1)) & (place < ends.unsqueeze(1))
    padding = padding_row("embedding_bag", padding_idx, weight.shape[0])
    if padding is not None:
        counted = counted & (indices != padding)
    if mode == "max":
        if same(indices.shape[-1], 0):  # bags of nothing have no largest
            return ops.zeros_like(counted.any(1, True) * weight[:1])
        largest = ops.where(counted.unsqueeze(-1), rows, -np.inf).amax(1)
        return ops.where(counted.any(1, True), largest, 0)
    if per_sample_weights is not None:
        if not same_shape(per_sample_weights.shape, indices.shape):
            sizes = show_shape(per_sample_weights.shape)
            raise ValueError(f"embedding_bag: per_sample_weights have shape {sizes}, expected one for each index")
        rows = rows * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        total = ops.where(counted.unsqueeze(-1), rows, 0).sum(1)
    else:  # each row is added to its bag alone, so that NaN stays there
        rows = ops.where(counted.any(0).unsqueeze(-1), rows, 0)
        bag = ops.maximum((place >= starts.unsqueeze(1)).sum(0) - 1, 0)
        total = ops.full((*starts.shape, *rows.shape[1:]), 0, rows.dtype).index_add(0, bag, rows)
    return total if mode == "sum" else total / ops.maximum(counted.sum(1, True), 1)


@torch_names
def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and divide the others by 1 - p; returns x when not training."""
    check_probability("dropout", "p", p)
    return ops.dropout(x, p=p) if training and p else x


@torch_names
def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[Size],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer normalisation over the last axes, whose sizes are `normalized_shape`."""
    shape = _last_sizes("layer_norm", x, normalized_shape)
    return ops.layer_norm(x, weight, bias, axes=len(shape), eps=eps)


@torch_names
def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[Size] | Tensor | None = None,
    weight: Tensor | float | None = None,
    eps: float | None = None,
) -> Tensor:
    """Root-mean-square normalisation over the last axes, whose sizes are `normalized_shape`; by default the last one.

    The default `eps` is the machine epsilon of the type it is computed in: 2.2e-16 for float64, 1.2e-7 for all others.
    A tensor in the place of `normalized_shape` is the weight of the last axis: ``rms_norm(x, weight, eps)``.

    Raises:
        ValueError: for sizes that the input does not end with, or that the weight does not have.
    """
    if isinstance(weight, float):
        weight, eps = None, weight
    if isinstance(normalized_shape, Tensor):
        normalized_shape, weight = None, normalized_shape
    if weight is not None:
        check_tensors("rms_norm", weight=weight)
    if eps is None:
        eps = float(np.finfo(np.float64 if x.dtype == float64 else np.float32).eps)
    shape = x.shape[-1:] if normalized_shape is None else _last_sizes("rms_norm", x, normalized_shape)
    if len(shape) == 1:
        return ops.rms_norm(x, weight, eps=eps)
    if weight is not None and not same_shape(weight.shape, shape):
        raise ValueError(f"rms_norm: weight {show_shape(weight.shape)} does not have the sizes {show_shape(shape)}")
    flat = ops.flatten(x, x.ndim - len(shape))
    return ops.reshape(ops.rms_norm(flat, None if weight is None else ops.flatten(weight), eps=eps), x.shape)


def _last_sizes(name: str, x: Tensor, sizes: Sequence[Size]) -> tuple[Size, ...]:
    """The last sizes of the shape of x."""
    if isinstance(sizes, (int, str)) or not isinstance(sizes, Sequence):
        raise TypeError(f"{name}: normalized_shape is {sizes!r}, expected a list of sizes: write [{sizes}]")
    shape = tuple(sizes)
    if not shape or not same_shape(x.shape[-len(shape) :], shape):
        raise ValueError(f"{name}: input {show_shape(x.shape)} does not end with the sizes {show_shape(shape)}")
    return shape


@torch_names
def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    return ops.relu(x)


@torch_names
def relu6(x: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)."""
    return ops.hardtanh(x, low=0, high=6)


@torch_names
def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where it is positive, else `negative_slope` times x (Maas et al. 2013)."""
    return ops.where(x > 0, x, x * negative_slope)


@torch_names
def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1), accurate near 0 (Clevert et al. 2015)."""
    return ops.elu(x, alpha=alpha)


@torch_names
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """min(max(x, min_val), max_val), in the element type of x."""
    return ops.hardtanh(x, low=min_val, high=max_val)


@torch_names
def celu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else alpha * (exp(x / alpha) - 1) (Barron 2017)."""
    return ops.where(x >= 0, x, alpha * expm1(ops.clip(x, None, 0) / alpha))


@torch_names
def selu(x: Tensor, inplace: bool = False) -> Tensor:
    """`elu` with the slope and the scale that keep means and variances (Klambauer et al. 2017)."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


@torch_names
def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|) (Bergstra et al. 2009)."""
    return x / (1 + abs(x))


@torch_names
def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x)."""
    return x - ops.tanh(x)


@torch_names
def silu(x: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return ops.silu(x)


@torch_names
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the standard normal distribution function; "tanh" is the approximation that GPT-2 uses."""
    return ops.gelu(x, approximate=approximate)


@torch_names
def hardsigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x + 3, 0), 6) / 6."""
    return ops.hardsigmoid(x)


@torch_names
def hardswish(x: Tensor, inplace: bool = False) -> Tensor:
    """x * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019)."""
    return ops.hardswish(x)


@torch_names
def mish(x: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)) (Misra 2019)."""
    wide = at_least_float32(x)
    return (wide * ops.tanh(ops.softplus(wide))).astype(x.dtype)


@torch_names
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """x where it is positive, else a weight times x: one number, or one for each channel, axis 1 (He et al. 2015)."""
    if weight.ndim == 1 and x.ndim > 1:
        weight = weight.reshape(-1, *(1,) * (x.ndim - 2))
    return ops.where(x > 0, x, x * weight)


@torch_names
def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """(..., C * r * r, H, W) to (..., C, H * r, W * r), r the factor (Shi et al. 2016).

    Raises:
        ValueError: for a factor below 1, channels that r * r does not divide, and fewer than three axes.
    """
    check_axes("pixel_shuffle", x, 3)
    check_positive("pixel_shuffle", upscale_factor=upscale_factor)
    *leading, channels, height, width = x.shape
    if not same(channels % upscale_factor**2, 0):
        raise ValueError(f"pixel_shuffle: {upscale_factor}^2 does not divide the channels of {show_shape(x.shape)}")
    x = x.reshape(*leading, channels // upscale_factor**2, upscale_factor, upscale_factor, height, width)
    rank = len(leading)
    x = x.permute(*range(rank), rank, rank + 3, rank + 1, rank + 4, rank + 2)
    return x.reshape(*leading, channels // upscale_factor**2, height * upscale_factor, width * upscale_factor)


@torch_names
def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) to (..., C * r * r, H, W), r the factor: undoes `pixel_shuffle`.

    Raises:
        ValueError: for a factor below 1, or one that is known not to divide the height and the width, and for fewer
            than three axes.
    """
    check_axes("pixel_unshuffle", x, 3)
    check_positive("pixel_unshuffle", downscale_factor=downscale_factor)
    *leading, channels, height, width = x.shape
    if any(isinstance(size, int) and size % downscale_factor for size in (height, width)):
        raise ValueError(f"pixel_unshuffle: {downscale_factor} does not divide the last axes of {show_shape(x.shape)}")
    r, rank = downscale_factor, len(leading)
    x = x.reshape(*leading, channels, height // r, r, width // r, r)
    x = x.permute(*range(rank), rank, rank + 2, rank + 4, rank + 1, rank + 3)
    return x.reshape(*leading, channels * r * r, height // r, width // r)


@torch_names
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """(N, C, *spatial) with the channels of all groups taken in turn (Zhang et al. 2018).

    Raises:
        ValueError: for less than one group, groups that do not divide the channels, and fewer than two axes.
    """
    check_axes("channel_shuffle", x, 2)
    check_positive("channel_shuffle", groups=groups)
    n, channels, *sizes = x.shape
    if not same(channels % groups, 0):
        raise ValueError(f"channel_shuffle: {groups} groups do not divide the channels of {show_shape(x.shape)}")
    return x.reshape(n, groups, channels // groups, *sizes).transpose(1, 2).reshape(*x.shape)


@torch_names
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of (N, C, *spatial) with known statistics (C), or while training with those of the batch.

    Raises:
        ValueError: for statistics while training, which torch would change in place, or none otherwise; while training
            for a single value per channel.
    """
    if bool(training) is not (running_mean is None or running_var is None):
        raise ValueError(
            "batch_norm: expected running_mean and running_var without training=True; while training they are None: "
            "nn.BatchNorm1d and its kin also keep statistics"
        )
    if running_mean is not None and running_var is not None:
        return ops.batch_norm(x, running_mean, running_var, weight, bias, eps=eps)
    wide, axes = at_least_float32(x), (0, *range(2, x.ndim))
    count = product(x.shape[axis] for axis in axes)
    if isinstance(count, int) and count == 1:
        raise ValueError("batch_norm: got 1 value(s) per channel in training, expected 2 or more")
    normal = ops.batch_norm(wide, wide.mean(axes), ops.variance(wide, axes).flatten(), weight, bias, eps=eps)
    return normal if wide is x else normal.astype(x.dtype)


@torch_names
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise groups of channels of (N, C, *spatial), each element of the batch separately: `ops.group_norm`."""
    return ops.group_norm(x, weight, bias, groups=num_groups, eps=eps)


@torch_names
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each element of (N, C, *spatial) (Ulyanov et al. 2016), or with known statistics (C).

    Raises:
        ValueError: for statistics that torch would change in place: `use_input_stats` with statistics; or for none; and
            for fewer than two axes.
    """
    check_axes("instance_norm", x, 2)
    if use_input_stats and running_mean is None:
        return ops.group_norm(x, weight, bias, groups=int(x.shape[1]), eps=eps)
    return batch_norm(x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@torch_names
def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return ops.sigmoid(x)


@torch_names
def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return ops.tanh(x)


@torch_names
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""
    scaled = x if beta == 1 else x * beta
    soft = ops.softplus(scaled)
    return ops.where(scaled > threshold, x, soft if beta == 1 else soft / beta)


@torch_names
def logsigmoid(x: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x)))."""
    return -ops.softplus(-x)


@torch_names
def glu(x: Tensor, axis: int = -1) -> Tensor:
    """The first half of an axis times the sigmoid of the second (Dauphin et al. 2017).

    Raises:
        ValueError: for an axis of an odd size.
    """
    if not same(x.shape[normalize_axis("glu", axis, x.ndim)] % 2, 0):
        raise ValueError(f"glu: axis {axis} of {show_shape(x.shape)} has an odd size, expected an even one")
    value, gate = x.chunk(2, axis)
    return value * gate.sigmoid()


@torch_names
def softmax(x: Tensor, axis: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """exp(x) normalised to sum 1 along an axis; `dtype`: converted to this element type first."""
    return ops.softmax(x if dtype is None else x.astype(dtype), axis=axis)


@torch_names
def softmin(x: Tensor, axis: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """The softmax of -x."""
    return softmax(-x, axis, dtype=dtype)


@torch_names
def log_softmax(x: Tensor, axis: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of softmax; `dtype`: converted to this element type first."""
    return ops.log_softmax(x if dtype is None else x.astype(dtype), axis=axis)
