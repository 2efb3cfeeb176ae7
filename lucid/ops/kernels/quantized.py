"""Products with quantized weights in NumPy: a few rows of the weight at a time are dequantized and multiplied.

Dequantizing a whole weight would write it to memory and read it again for every token of a text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.process.threads import buffer, share
from lucid.quantization.blocks import unpack

_PIECE = 1 << 17  # numbers dequantized at once: half a megabyte, which stays in a core's cache
# The two codes in a byte as float32, both in one float64: one load and one store for each byte.
_PAIRS = np.stack([np.arange(256) & 15, np.arange(256) >> 4], axis=-1).astype(np.float32).view(np.float64)[:, 0]


def quantized_linear(
    x: Array,
    packed: Array,
    scales: Array,
    zero_points: Array | None = None,
    minimums: Array | None = None,
    *,
    bits: int,
    block: int,
) -> Array:
    """`ops.quantized_linear` on arrays that have been checked."""
    wide = np.dtype(np.float64 if scales.dtype == np.float64 else np.float32)
    (rows, count), size = scales.shape, x.shape[-1]
    factors = scales.astype(wide, copy=False)[:, :, None]
    least = None if minimums is None else minimums.astype(wide, copy=False)[:, :, None]
    zeros: Array = np.full((rows, 1), 1 << (bits - 1), np.float32)
    if zero_points is not None:
        zeros = unpack(zero_points, bits)[:, :count].astype(np.float32)
    inputs = x.reshape(math.prod(x.shape[:-1]), size).astype(wide, copy=False)
    result = np.empty((len(inputs), rows), wide)
    step = max(1, _PIECE // max(1, count * block))

    def work(starts: Iterator[int]) -> None:
        for start in starts:
            some = slice(start, min(start + step, rows))
            codes = buffer("codes", (some.stop - start, count, block), np.dtype(np.float32))
            if bits == 8:
                codes[...] = packed[some]
            else:  # no index is outside the table; "clip" lets NumPy write to the buffer directly
                np.take(_PAIRS, packed[some], out=codes.view(np.float64), mode="clip")
            if least is None:
                codes -= zeros[some, :, None]
            weight = codes if wide == codes.dtype else buffer("weight", codes.shape, wide)
            np.multiply(codes, factors[some], out=weight)
            if least is not None:
                weight += least[some]
            np.matmul(inputs, weight.reshape(len(weight), -1)[:, :size].T, out=result[:, some])

    share(range(0, rows, step), work)
    return result.reshape(*x.shape[:-1], rows).astype(x.dtype, copy=False)
