"""Attention of few scores, planned once for arrays of some types: the arrays are all that its calls must look at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lucid.core.graph.types import Array, TensorType
from lucid.ops.attention import kernel as attention_kernel
from lucid.ops.attention import tiles as attention_tiles
from lucid.ops.attention.call import AttentionOptions
from lucid.ops.attention.calm import at_once, for_blas
from lucid.ops.attention.tiles import Visibility


def planned(
    queries: TensorType, keys: TensorType, values: TensorType, options: AttentionOptions
) -> Callable[..., Array] | None:
    """`attention_kernel.attention` for arrays of these types, without a mask or a past, of which all but the arrays is
    known before a call. None for more scores, whose computing is what takes time, and for options that need a tile."""
    (n, heads, length, width), dtype = map(int, queries.shape), queries.dtype.numpy
    _, kv_heads, seen, _ = map(int, keys.shape)
    shape = (n, length, heads, int(values.shape[3]))
    if heads != kv_heads or options.softcap or not attention_tiles.are_few(n * heads, length, seen) or 0 in shape:
        return None
    visibility, scale = Visibility(seen, 0, options.ahead, options.window), options.scale_of(width)

    def computed(query: Array, key: Array, value: Array, *_: None) -> Array:
        result = np.empty(shape, dtype)
        if at_once(query, for_blas(key), for_blas(value), scale, visibility, result):
            return result.transpose(0, 2, 1, 3)
        return attention_kernel.attention(query, key, value, None, options)

    return computed
