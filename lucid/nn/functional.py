"""Neural-network functions under their usual names, computed by `lucid.ops`."""

from __future__ import annotations

import cmath
from collections.abc import Sequence

import numpy as np

from lucid import ops
from lucid.dims import Size
from lucid.nn._checks import check_causal, check_probability
from lucid.nn._multi_head import multi_head_attention_forward as multi_head_attention_forward
from lucid.nn.cache import cache_key_mask as cache_key_mask
from lucid.nn.cache import cache_positions as cache_positions
from lucid.nn.cache import cache_span as cache_span
from lucid.nn.cache import cached_attention as cached_attention
from lucid.nn.cache import cross_attention as cross_attention
from lucid.nn.cache import layer_caches as layer_caches
from lucid.nn.cache import present_caches as present_caches
from lucid.nn.decoding import kept_positions as kept_positions
from lucid.nn.stored import embedding as embedding
from lucid.nn.stored import linear as linear
from lucid.ops.op import check_tensors
from lucid.ops.tensor import Tensor
from lucid.types import float64, same_shape, show_shape


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return ops.relu(x)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return ops.silu(x)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the standard normal distribution function; "tanh" is the approximation that GPT-2 uses."""
    return ops.gelu(x, approximate=approximate)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) normalised to sum 1 along an axis."""
    return ops.softmax(x, axis=axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of softmax."""
    return ops.log_softmax(x, axis=axis)


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability p and divide the others by 1 - p; returns x when not training."""
    check_probability("dropout", "p", p)
    return ops.dropout(x, p=p) if training and p else x


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[Size],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer normalisation over the last axes, whose sizes are `normalized_shape`."""
    shape = tuple(normalized_shape)
    if not shape or not same_shape(x.shape[-len(shape) :], shape):
        raise ValueError(f"layer_norm: input {show_shape(x.shape)} does not end with the sizes {show_shape(shape)}")
    return ops.layer_norm(x, weight, bias, axes=len(shape), eps=eps)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Root-mean-square normalisation over the last axis.

    The default `eps` is the machine epsilon of the type it is computed in: 2.2e-16 for float64, 1.2e-7 for all others.
    """
    if eps is None:
        eps = float(np.finfo(np.float64 if x.dtype == float64 else np.float32).eps)
    return ops.rms_norm(x, weight, eps=eps)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: complex | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * query @ key.T + mask) @ value.

    Args:
        query: (N, H, L, d), (H, L, d) or (L, d).
        key: (N, H, S, d).
        value: (N, H, S, d_v).
        attn_mask: broadcasts to (N, H, L, S). Boolean: true = attend. Floating: added to the scores.
        dropout_p: probability of dropping a weight; it applies in training and in evaluation mode.
        is_causal: query i sees keys up to i (from the top left where L and S differ). Not together with `attn_mask`.
        scale: multiplies the scores; by default 1 / sqrt(d).
        enable_gqa: allow fewer key than query heads: query head h reads key head h // (H / H_kv).

    Returns:
        (N, H, L, d_v); zeros for a query that sees no key.

    Raises:
        ValueError, TypeError: for sizes, masks or options that do not fit.
    """
    name = "scaled_dot_product_attention"
    check_causal(name, is_causal, attn_mask)
    check_probability(name, "dropout_p", dropout_p)
    check_tensors(name, query=query, key=key, value=value)
    if not 2 <= query.ndim <= 4 or not query.ndim == key.ndim == value.ndim:
        raise ValueError(
            f"{name}: query {show_shape(query.shape)}, key {show_shape(key.shape)}, value {show_shape(value.shape)}: "
            "expected (N, H, length, width) each"
        )
    lead = tuple(range(4 - query.ndim))
    if lead:
        query, key, value = (ops.unsqueeze(x, lead) for x in (query, key, value))
    if not enable_gqa and not same_shape(query.shape[1:2], key.shape[1:2]):
        raise ValueError(
            f"{name}: {query.shape[1]} query heads and {key.shape[1]} key heads; grouped heads need enable_gqa=True"
        )
    result: Tensor = ops.attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=real_scale(name, scale), dropout_p=dropout_p
    )
    return ops.squeeze(result, lead) if lead else result


def real_scale(where: str, scale: complex | None) -> float | None:
    """A scale as a real number.

    Raises:
        ValueError: for NaN or infinity, or a complex number whose imaginary part is not zero.
    """
    if scale is None:
        return None
    if not cmath.isfinite(scale):
        raise ValueError(f"{where}: scale is {scale}, expected a finite number")
    if not isinstance(scale, complex):
        return float(scale)
    if scale.imag != 0:
        raise ValueError(f"{where}: scale is {scale}, expected a real number (a zero imaginary part is accepted)")
    return scale.real
