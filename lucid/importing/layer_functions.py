"""Functions of torch's layers: norms, attention, convolutions, resizing; their arguments in ATen's order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucid import ops
from lucid.core.sizes.dims import Dim, Size, same
from lucid.importing import functions as f
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.recurrent import GRU, LSTM, RNN
from lucid.ops.creation import tensor as _tensor
from lucid.ops.interpolation import resized
from lucid.ops.tensor.tensor import Tensor

Function = Callable[..., Any]


# Layers ---------------------------------------------------------------------------------------------------------------


def layer_norm(
    x: Tensor,
    shape: Sequence[Size],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Tensor:
    return F.layer_norm(x, tuple(shape), weight, bias, eps)


def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Tensor:
    return ops.group_norm(x, weight, bias, groups=groups, eps=eps)


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool = True,
) -> Tensor:
    if training:
        raise NotImplementedError("batch_norm in training mode: call module.eval() first")
    return ops.batch_norm(x, mean, variance, weight, bias, eps=eps)


def batch_norm_inference(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, momentum: float, eps: float
) -> tuple[Tensor]:
    return (ops.batch_norm(x, mean, variance, weight, bias, eps=eps),)


def batch_norm_of_batch(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A batch norm with the statistics of its batch: the result, the means and 1 / deviations."""
    axes = (0, *range(2, x.ndim))
    mean, variance = x.mean(axes), ops.variance(x, axes).flatten()
    return ops.batch_norm(x, mean, variance, weight, bias, eps=eps), mean, ops.rsqrt(variance + eps)


def native_layer_norm(
    x: Tensor, shape: Sequence[Size], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and the means and 1 / deviations of the normalized axes."""
    axes = tuple(range(-len(shape), 0))
    deviations = ops.rsqrt(ops.variance(x, axes) + eps)
    return layer_norm(x, shape, weight, bias, eps), x.mean(axes, True), deviations


def native_group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: Size, c: Size, elements: Size, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and the means and 1 / deviations of the groups."""
    parts = x.reshape(n, groups, c * elements // groups)
    deviations = ops.rsqrt(ops.variance(parts, (-1,)).squeeze(-1) + eps)
    return ops.group_norm(x, weight, bias, groups=groups, eps=eps), parts.mean(-1), deviations


def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn: bool = True,
) -> Tensor:
    if not use_input_stats and mean is not None and variance is not None:
        return ops.batch_norm(x, mean, variance, weight, bias, eps=eps)
    return ops.group_norm(x, weight, bias, groups=int(x.shape[1]), eps=eps)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if dropout:
        raise NotImplementedError(f"attention with a dropout of {dropout}, which is random: pass 0 in evaluation mode")
    width = query.shape[-1]
    if scale is None and isinstance(width, Dim):
        query, scale = query / _tensor(width, query.dtype).sqrt(), 1.0
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, scale, enable_gqa)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Function,
    block_mask: Sequence[Any],
    scale: float,
    options: Mapping[str, Any],
    score_tensors: Sequence[Tensor] = (),
    mask_tensors: Sequence[Tensor] = (),
) -> tuple[Tensor]:
    """Attention whose scores and mask are functions of numbers, which get all rows, heads and positions at once."""
    if options.get("OUTPUT_LOGSUMEXP") or options.get("OUTPUT_MAX"):
        raise NotImplementedError("flex_attention with return_lse or return_aux: use its output alone")
    (n, heads, length, _), (kv_heads, keys) = query.shape, key.shape[1:3]
    if not same(heads, kv_heads):
        key, value = (x.repeat_interleave(heads // kv_heads, 1) for x in (key, value))
    places = [
        ops.arange(size).reshape(*(-1 if axis == place else 1 for axis in range(4)))
        for place, size in enumerate((n, heads, length, keys))
    ]
    scores = score(query @ key.mT * scale, *places, *score_tensors)
    seen = block_mask[-1](*places, *mask_tensors)
    weights = f.safe_softmax(ops.where(seen, scores, -math.inf) if seen.ndim else scores, -1)
    return (weights @ value,)


def pair(value: Any, rank: int) -> tuple[int, ...]:
    items = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return items * rank if len(items) == 1 else items


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """The convolution of any rank; torch gives each number once for all axes, or for each."""
    rank = weight.ndim - 2
    strides, pads, dilations = pair(stride, rank), pair(padding, rank), pair(dilation, rank)
    if transposed:
        more = pair(output_padding, rank)
        apart = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][rank - 1]
        return apart(x, weight, bias, strides, pads, more, groups, dilations)
    return [F.conv1d, F.conv2d, F.conv3d][rank - 1](x, weight, bias, strides, pads, dilations, groups)


def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return F.grid_sample(x, grid, modes[mode], paddings[padding_mode], align_corners)


def upsample(mode: str, align: bool, antialias: bool = False) -> Function:
    """The vector overloads: the size, or factors."""

    def upsample(x: Tensor, size: Any, *options: Any) -> Tensor:
        corners, factors = options if align else (None, *options)
        sizes = None if size is None else tuple(size)
        return F.interpolate(x, sizes, None if factors is None else tuple(factors), mode, corners, antialias=antialias)

    return upsample


def upsample_size(mode: str, align: bool, antialias: bool = False) -> Function:
    """The plain overloads: the size, for a few the corners, and perhaps the factors by which positions are divided."""

    def upsample(x: Tensor, size: Sequence[Size], *options: Any) -> Tensor:
        corners, *factors = options if align else (False, *options)
        return resized(x, tuple(size), tuple(factors) or (None,) * len(size), mode, corners, antialias)

    return upsample


# Recurrent layers -----------------------------------------------------------------------------------------------------


def _recurrent_layer(kind: Any, weights: Sequence[Tensor], **options: Any) -> Any:
    """A layer with these weights, which are in torch's order."""
    (rows, width), (_, out) = weights[0].shape, weights[1].shape
    hidden = rows // kind.gates
    projected = {"proj_size": out} if out != hidden else {}
    with init.skip():
        layer = kind(width, hidden, **options, **projected).eval()
    for (name, _), weight in zip(layer.named_parameters(), weights, strict=True):
        setattr(layer, name, weight)
    return layer


def recurrent(kind: type[GRU] | type[LSTM] | type[RNN], **own: Any) -> Function:
    """`torch.lstm` and its kin: the outputs of the last layer, and the states after the last step."""

    def recurrent(
        x: Tensor,
        states: Any,
        weights: Sequence[Tensor],
        bias: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        options = {"num_layers": layers, "bias": bias, "bidirectional": bidirectional, "batch_first": batch_first}
        layer = _recurrent_layer(kind, weights, **own, **options)
        outputs, last = layer._run(x, tuple(states) if isinstance(states, (list, tuple)) else (states,))
        return outputs, *last

    return recurrent


def cell(kind: type[GRU] | type[LSTM] | type[RNN], **own: Any) -> Function:
    """`torch.lstm_cell` and its kin: the states after one step."""

    def cell(x: Tensor, states: Any, *weights: Tensor | None) -> Any:
        present = [weight for weight in weights if weight is not None]
        layer = _recurrent_layer(kind, present, bias=len(present) > 2, **own)
        last = layer._cell(x, tuple(states) if isinstance(states, (list, tuple)) else (states,))
        return last if len(last) > 1 else last[0]

    return cell
