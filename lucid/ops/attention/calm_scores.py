"""Attention while scores are *calm*: weights are their exponentials, and no maximum is subtracted."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from lucid.core.graph.types import Array
from lucid.ops.attention.call import AttentionOptions
from lucid.ops.attention.tiles import Visibility

CALM = -60.0  # scores above this need no maximum subtracted
LEAST = 2.0**-20  # if a query's weights add up to less, small weighted values may become denormal

_LOWEST = math.log(LEAST)


def at_once(query: Array, key: Array, value: Array, options: AttentionOptions, past: int) -> Array | None:
    """Attention with all scores in one array, for as many key heads as query heads; see `kernel.attention`.

    None where this would be inexact: a weight is small, a sum overflows, a query sees no key, or an operand is not
    finite.
    """
    n, heads, length, width = query.shape
    keys, dtype = key.shape[2], query.dtype
    scores = np.matmul(query * dtype.type(options.scale_of(width)), key.swapaxes(-1, -2))
    if not np.minimum.reduce(scores, None) >= _LOWEST:
        return None
    weights = np.exp(scores, out=scores)
    if options.ahead is not None or options.window is not None:
        for part, seen in Visibility(keys, past, options.ahead, options.window).limits(weights, 0, 0, keys):
            part *= seen
    total = np.matmul(weights, ones(keys, dtype))  # faster than np.sum
    result = np.empty((n, length, heads, value.shape[3]), dtype)
    output = np.matmul(weights, value, out=result.transpose(0, 2, 1, 3))
    output /= total
    # A sum of squares is finite only if all numbers are.
    return output if math.isfinite(np.vdot(total, total)) and math.isfinite(np.vdot(result, result)) else None


@lru_cache(maxsize=64)
def ones(rows: int, dtype: np.dtype[Any]) -> Array:
    """A column of ones."""
    return np.ones((rows, 1), dtype)


def for_blas(array: Array) -> Array:
    """The array, copied only if BLAS cannot read its rows in place (np.matmul would then not use BLAS)."""
    if array.flags.c_contiguous:
        return array
    rows, columns = array.strides[-2:]
    readable = columns == array.itemsize and rows % array.itemsize == 0 and rows >= array.shape[-1] * array.itemsize
    return array if readable else np.ascontiguousarray(array)
