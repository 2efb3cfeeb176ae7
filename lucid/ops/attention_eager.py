"""Attention on arrays: which work goes to the tiled kernel, and what that needs of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid.ops import attention_kernel
from lucid.types import Array


def tiled(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    key_mask: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    *,
    heads: int | None,
    kv_heads: int | None,
    scale: float | None,
    is_causal: bool,
    window: int | None,
    softcap: float,
    dropout_p: float,
    need_weights: bool,
) -> tuple[Array, ...] | None:
    """What `ops.attention` gives for these arguments, or None where the plain body serves better.

    That is where weights are asked for or dropped, which takes all of them in memory, and for little work.
    """
    if need_weights or dropout_p:
        return None
    if heads is not None:
        query, key, value = _split(query, heads), _split(key, kv_heads or heads), _split(value, kv_heads or heads)
    if not attention_kernel.worthwhile(query, key):
        return None
    present: tuple[Array, ...] = ()
    offset = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        key, value = np.concatenate([past_key, key], 2), np.concatenate([past_value, value], 2)
        present = (key, value)
    dtype = query.dtype
    if dtype.itemsize == 2:
        query, key, value = (x.astype(np.float32) for x in (query, key, value))
    output = attention_kernel.attention(
        query,
        key,
        value,
        _joint(mask, key_mask),
        scale=query.shape[-1] ** -0.5 if scale is None else scale,
        is_causal=is_causal,
        offset=offset,
        window=window,
        softcap=softcap,
    ).astype(dtype, copy=False)
    if heads is not None:
        n, _, length, width = output.shape
        output = output.transpose(0, 2, 1, 3).reshape(n, length, heads * width)
    return (output, *present)


def _split(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _joint(mask: Array | None, key_mask: Array | None) -> Array | None:
    """Both masks as one. A boolean one beside a floating one excludes by the lowest number of its type."""
    if key_mask is None or mask is None:
        return mask if key_mask is None else key_mask[:, None, None]
    first, second = mask, key_mask[:, None, None]
    if first.dtype == second.dtype == np.bool_:
        return np.asarray(first & second)
    first, second = (
        np.where(m, np.float32(0), np.float32(-np.inf)) if m.dtype == np.bool_ else m for m in (first, second)
    )
    # Half precision could overflow where both exclude; -inf for what either excludes says it without arithmetic.
    hidden = (first <= _lowest(first)) | (second <= _lowest(second))
    return np.where(hidden, np.float32(-np.inf), first.astype(np.float32) + second.astype(np.float32))


def _lowest(mask: Array) -> Any:
    return attention_kernel.lowest(mask.dtype)
