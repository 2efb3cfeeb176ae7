"""Quantized tensors of GGUF files as blocks of codes, with exactly the numbers of the file.

Source: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. A tensor of any type in `LAYOUTS` consists of
blocks of 32 numbers, or of 256 with a small scale for each 16 or 32 of them (the K-quants). A number is
``d * scale * code``, plus or minus the block's minimum where the type has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from gguf import GGMLQuantizationType

from lucid.models.checkpoints.config import Array
from lucid.quantization import Blocks
from lucid.quantization.blocks import middle


class Layout(NamedTuple):
    """How a block is stored."""

    # The bytes of each part, in the file's order: "d" and "m" (float16), "scales" of small blocks, and the "low" and
    # "high" bits of codes.
    fields: Mapping[str, int]
    # low, high: the bits that each byte has of one code, and how many bytes come before the next bits of the first:
    # with (4, 16) byte i holds codes i and i + 16.
    low: tuple[int, int]
    high: tuple[int, int] | None = None
    block: int = 32  # how many codes share a scale
    zero: int | None = None  # the code that stands for 0; None where a block has a minimum

    @property
    def bits(self) -> int:
        """The bits of a code in `Blocks`."""
        return 4 if self.low[0] + (0 if self.high is None else self.high[0]) <= 4 else 8


LAYOUTS = {
    GGMLQuantizationType.Q4_0: Layout({"d": 2, "low": 16}, (4, 16), zero=8),
    GGMLQuantizationType.Q4_1: Layout({"d": 2, "m": 2, "low": 16}, (4, 16)),
    GGMLQuantizationType.Q5_0: Layout({"d": 2, "high": 4, "low": 16}, (4, 16), (1, 1), zero=16),
    GGMLQuantizationType.Q5_1: Layout({"d": 2, "m": 2, "high": 4, "low": 16}, (4, 16), (1, 1)),
    GGMLQuantizationType.Q8_0: Layout({"d": 2, "low": 32}, (8, 32), zero=0),
    GGMLQuantizationType.Q2_K: Layout({"scales": 16, "low": 64, "d": 2, "m": 2}, (2, 32), block=16),
    GGMLQuantizationType.Q3_K: Layout(
        {"high": 32, "low": 64, "scales": 12, "d": 2}, (2, 32), (1, 32), block=16, zero=4
    ),
    GGMLQuantizationType.Q4_K: Layout({"d": 2, "m": 2, "scales": 12, "low": 128}, (4, 32)),
    GGMLQuantizationType.Q5_K: Layout({"d": 2, "m": 2, "scales": 12, "high": 32, "low": 128}, (4, 32), (1, 32)),
    GGMLQuantizationType.Q6_K: Layout(
        {"low": 128, "high": 64, "scales": 16, "d": 2}, (4, 64), (2, 32), block=16, zero=32
    ),
}
"""The types that `Blocks` can hold."""


def read_blocks(kind: GGMLQuantizationType, raw: Array) -> Blocks:
    """A tensor of a type in `LAYOUTS`, from the bytes of its rows (N, n) uint8.

    Codes of 2 and 3 bits are stored in 4, of 5 and 6 bits in 8.

    Raises:
        ValueError: for scales or minimums with NaN or infinity.
    """
    layout, rows = LAYOUTS[kind], len(raw)
    parts = raw.reshape(rows, -1, sum(layout.fields.values()))
    ends = np.cumsum([*layout.fields.values()])
    fields = dict(zip(layout.fields, np.split(parts, ends[:-1], axis=-1), strict=True))
    codes = _codes(fields["low"], *layout.low)
    if layout.high is not None:
        codes |= _codes(fields["high"], *layout.high) << layout.low[0]
    if layout.zero is not None:
        codes += np.uint8(middle(layout.bits) - layout.zero)  # of signed bytes, which wrap around
    scales, minimums = _halves(fields["d"]), _halves(fields["m"]) if "m" in fields else None
    if "scales" in fields:
        factors, least = _small_scales(kind, fields["scales"])
        scales, minimums = scales * factors, None if minimums is None else minimums * -least
    scales, minimums = scales.reshape(rows, -1), None if minimums is None else minimums.reshape(rows, -1)
    return Blocks(codes.reshape(rows, -1), scales, None, layout.bits, layout.block, minimums=minimums)


def _codes(packed: Array, bits: int, stride: int) -> Array:
    """Codes (..., 8 n / bits) from bytes (..., n): as `Layout` says of the low and high bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    spread = packed.reshape(*packed.shape[:-1], -1, 1, stride) >> shifts & np.uint8(2**bits - 1)
    return np.asarray(spread.reshape(*packed.shape[:-1], -1))


def _halves(stored: Array) -> Array:
    """(..., 1) float32 from the bytes of a float16."""
    return np.ascontiguousarray(stored).view("<f2").astype(np.float32)


def _small_scales(kind: GGMLQuantizationType, stored: Array) -> tuple[Array, Array]:
    """The factors of d and m for each small block in a block of 256, (..., 8 or 16) float32."""
    least: Array = np.zeros(1, np.float32)
    scales: Array
    if kind == GGMLQuantizationType.Q6_K:
        scales = stored.view(np.int8)
    elif kind == GGMLQuantizationType.Q2_K:
        scales, least = stored & 15, stored >> 4
    elif kind == GGMLQuantizationType.Q3_K:
        scales = (_codes(stored[..., :8], 4, 8) | _codes(stored[..., 8:], 2, 4) << 4).view(np.int8) - 32
    else:  # Q4_K, Q5_K: 6 bits each, those of the last four blocks apart
        first, second, last = np.split(stored, 3, axis=-1)
        scales = np.concatenate([first & 63, last & 15 | first >> 2 & 48], axis=-1)
        least = np.concatenate([second & 63, last >> 4 | second >> 2 & 48], axis=-1)
    return scales.astype(np.float32), least.astype(np.float32)
