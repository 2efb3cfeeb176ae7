"""The types of GGUF tensors that are quantized weights as they are: blocks of 32 numbers, each with a scale.

Source: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. The numbers d and m are float16:

====  ===========================================================================  ==========
Q4_0  d, then 16 bytes: byte i has the code i in its low half and i + 16 above it  d (q - 8)
Q4_1  d, m, then 16 bytes as above                                                 d q + m
Q8_0  d, then 32 signed bytes                                                      d q
====  ===========================================================================  ==========
"""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType

from lucid.models.checkpoints.config import Array
from lucid.quantization import Blocks

KEPT = (GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0)
_SIZE = 32


def read_blocks(kind: GGMLQuantizationType, raw: Array) -> Blocks:
    """A tensor of a type in `KEPT`, from the bytes of its rows (N, n) uint8.

    Raises:
        ValueError: for scales or minimums with NaN or infinity.
    """
    halves = 2 if kind == GGMLQuantizationType.Q4_1 else 1
    bits = 8 if kind == GGMLQuantizationType.Q8_0 else 4
    parts = raw.reshape(len(raw), -1, 2 * halves + _SIZE * bits // 8)
    numbers = np.ascontiguousarray(parts[..., : 2 * halves]).view("<f2").astype(np.float32)
    stored = parts[..., 2 * halves :]
    codes = stored ^ 128 if bits == 8 else np.concatenate([stored & 15, stored >> 4], axis=-1)
    minimums = np.ascontiguousarray(numbers[..., 1]) if halves == 2 else None
    return Blocks(
        codes.reshape(len(raw), -1), np.ascontiguousarray(numbers[..., 0]), None, bits, _SIZE, minimums=minimums
    )
