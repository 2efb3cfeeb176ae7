"""Attention while scores are *calm*: weights are powers of them, and no maximum is subtracted.

Calm scores are in units of log 2 where NumPy has a vector loop for 2^x, twice as fast as the one for e^x.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.introspect import opt_func_info

from lucid.core.graph.types import Array
from lucid.ops.attention.tiles import Visibility

CALM = -60.0  # scores above this need no maximum subtracted
LEAST = 2.0**-20  # if a query's weights add up to less, small weighted values may become denormal

_loops = str(opt_func_info(func_name="^exp2$", signature="float32").get("exp2")).split("available")[0]
_fast = sys.platform == "linux" and ("AVX512" in _loops or "V4" in _loops)
power, UNIT = (np.exp2, math.log2(math.e)) if _fast else (np.exp, 1.0)
_LOWEST = math.log(LEAST) * UNIT


def at_once(query: Array, key: Array, value: Array, scale: float, visibility: Visibility, result: Array) -> bool:
    """Attention of as many key heads as query heads with all scores in one array; see `attention_kernel.attention`.

    Args:
        result: (N, L, H, d_v), filled.

    Returns:
        False if it is not right: a weight is small, a sum overflows, a query sees no key, or an operand is not finite.
    """
    dtype = query.dtype
    scores = np.matmul(query * dtype.type(scale * UNIT), key.swapaxes(-1, -2))
    if not np.minimum.reduce(scores, None) >= _LOWEST:
        return False
    weights = power(scores, out=scores)
    for part, seen in visibility.limits(weights, 0, 0, visibility.keys):
        part *= seen
    total = np.matmul(weights, ones(visibility.keys, dtype))  # faster than np.sum
    output = np.matmul(weights, value, out=result.transpose(0, 2, 1, 3))
    output /= total
    # A sum of squares is finite only if all numbers are.
    return math.isfinite(np.vdot(total, total)) and math.isfinite(np.vdot(result, result))


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
