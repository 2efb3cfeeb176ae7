"""Attention on arrays: which work goes to the tiled kernel, and what that needs of its arguments."""

from __future__ import annotations

import numpy as np

from lucid.ops import attention_kernel
from lucid.ops.attention_masks import joined, scores_type
from lucid.ops.tensor import Tensor
from lucid.types import Array, as_dtype


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
    dtype = as_dtype(query.dtype)
    wide = scores_type(dtype)
    query, key, value = (x.astype(wide.numpy, copy=False) for x in (query, key, value))
    masks = [None if m is None else Tensor.from_array(m) for m in (mask, key_mask)]
    joint = joined(masks[0], masks[1], None, wide)
    output = attention_kernel.attention(
        query,
        key,
        value,
        None if joint is None else joint.numpy(),
        scale=query.shape[-1] ** -0.5 if scale is None else scale,
        is_causal=is_causal,
        offset=offset,
        window=window,
        softcap=softcap,
    ).astype(dtype.numpy, copy=False)
    if heads is not None:
        n, _, length, width = output.shape
        output = output.transpose(0, 2, 1, 3).reshape(n, length, heads * width)
    return (output, *present)


def _split(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)
