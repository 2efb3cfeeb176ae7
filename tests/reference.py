"""Attention in float64 from its definition, one query at a time: the reference for every path. It shares no code with
Lucid."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    key_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    sinks: Array | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    window: int | None = None,
    window_after: int | None = None,
    softcap: float = 0.0,
) -> tuple[Array, Array]:
    """Output and weights of (N, H, L, d) queries; a mask is true, or 0, where a key is visible."""
    query, key, value = (x.astype(np.float64) for x in (query, key, value))
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        key = np.concatenate([past_key, key], 2)
        value = np.concatenate([past_value, value], 2)
    n, heads, length, width = query.shape
    keys, groups = key.shape[2], heads // key.shape[1]
    scale = 1 / np.sqrt(width) if scale is None else scale
    output = np.zeros((n, heads, length, value.shape[3]))
    weights = np.zeros((n, heads, length, keys))
    added = _additive([mask, None if key_mask is None else key_mask[:, None, None]], (n, heads, length, keys))
    for b, h, i in np.ndindex(n, heads, length):
        scores = scale * (key[b, h // groups] @ query[b, h, i])
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        scores = scores + added[b, h, i]
        if is_causal:
            scores[i + past + 1 :] = -np.inf
        if window_after is not None:
            scores[i + past + window_after + 1 :] = -np.inf
        if window is not None:
            scores[: max(i + past - window + 1, 0)] = -np.inf
        largest = max(scores.max(initial=-np.inf), -np.inf if sinks is None else sinks[h])
        if largest == -np.inf:
            continue
        e = np.exp(scores - largest)
        weights[b, h, i] = e / (e.sum() + (0 if sinks is None else np.exp(sinks[h] - largest)))
        output[b, h, i] = weights[b, h, i] @ value[b, h // groups]
    return output, weights


def _additive(masks: list[Array | None], shape: tuple[int, ...]) -> Array:
    """The sum that masks add to the scores: -inf for what one of them excludes, by the numbers of its own type."""
    total, hidden = np.zeros(shape), np.zeros(shape, bool)
    for mask in masks:
        if mask is not None and mask.dtype == np.bool_:
            hidden |= ~mask
        elif mask is not None:
            hidden |= mask <= ml_dtypes.finfo(mask.dtype).min
            total += mask.astype(np.float64)
    return np.where(hidden, -np.inf, total)


def pack(x: Array) -> Array:
    """(N, H, L, d) to (N, L, H*d)."""
    n, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(n, length, heads * width)


def multi_head_attention(
    query: Array,
    key: Array,
    value: Array,
    heads: int,
    weights: tuple[Array, Array, Array],
    biases: tuple[Array | None, Array | None, Array | None],
    out_weight: Array,
    out_bias: Array | None,
    bias_kv: tuple[Array, Array] | None = None,
    zero_row: bool = False,
    mask: Array | None = None,
    key_mask: Array | None = None,
    is_causal: bool = False,
) -> tuple[Array, Array]:
    """Multi-head attention of (N, L, E) inputs; masks as in `attention`. Output (N, L, E) and weights (N, H, L, S)."""

    def project(x: Array, weight: Array, bias: Array | None) -> Array:
        y: Array = x.astype(np.float64) @ weight.astype(np.float64).T
        return y if bias is None else y + bias

    q, k, v = (project(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    n, length, _ = q.shape
    keys = k.shape[1]
    width = q.shape[2] // heads
    extra = []
    if bias_kv is not None:
        extra.append(bias_kv)
    if zero_row:
        extra.append((np.zeros((1, 1, k.shape[2])), np.zeros((1, 1, v.shape[2]))))
    for row_k, row_v in extra:
        k = np.concatenate([k, np.broadcast_to(row_k, (n, 1, k.shape[2]))], 1)
        v = np.concatenate([v, np.broadcast_to(row_v, (n, 1, v.shape[2]))], 1)
    seen = _additive([mask, None if key_mask is None else key_mask[:, None, None]], (n, heads, length, keys))
    if is_causal:
        seen = np.where(np.tril(np.ones((length, keys), bool)), seen, -np.inf)
    seen = np.concatenate([seen, np.zeros((*seen.shape[:3], len(extra)))], 3)

    def split(x: Array) -> Array:
        return x.reshape(n, x.shape[1], -1, width).transpose(0, 2, 1, 3)

    output, attention_weights = attention(split(q), split(k), split(v), seen)
    packed = pack(output) @ out_weight.astype(np.float64).T
    return (packed if out_bias is None else packed + out_bias), attention_weights
