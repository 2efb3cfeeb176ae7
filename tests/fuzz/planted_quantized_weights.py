"""Faults of quantized weights to plant: in their layout, in their ops, and in the forms that write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid.core.graph.types import Array
from lucid.export.builder import Builder
from lucid.export.forms import quantized as forms
from lucid.nn.quantized import WeightModule
from lucid.ops import quantized
from lucid.quantization import blocks
from tests.fuzz.planting import Faults, Patch, before, changed

QUANTIZED_WEIGHTS = Faults()


def _high_bits_first(right: Any, packed: Array, *, bits: int) -> Array:
    codes: Array = right(packed, bits=bits)
    return codes if bits == 8 else codes.reshape(*codes.shape[:-1], -1, 2)[..., ::-1].reshape(codes.shape)


QUANTIZED_WEIGHTS.kernel("the high bits of a byte come first", quantized.unpack_codes, _high_bits_first)


@QUANTIZED_WEIGHTS.fault("the padding of the last block comes before the row")
def _(patch: Patch) -> None:
    def padded(values: Array, block: int) -> Array:
        missing = -values.shape[1] % block
        return np.pad(values, ((0, 0), (missing, 0))).reshape(len(values), -1, block)

    patch.setattr(blocks, "in_blocks", padded)


@QUANTIZED_WEIGHTS.fault("every part of a weight begins with its first row")
def _(patch: Patch) -> None:
    right = WeightModule.slice_rows
    patch.setattr(WeightModule, "slice_rows", lambda self, start, stop, suffix: right(self, 0, stop - start, suffix))


@QUANTIZED_WEIGHTS.fault("signed codes keep the bit that unsigned ones have")
def _(patch: Patch) -> None:
    def wrong(right: Any, build: Builder, codes: Array, original: Any, bits: int, signed: bool) -> str:
        name: str = right(build, codes ^ np.uint8(signed << (bits - 1)), original, bits, signed)
        return name

    patch.setattr(forms, "_stored", before(forms._stored, wrong))


QUANTIZED_WEIGHTS.exported(
    "a zero point is one too large", quantized.quantized_linear, changed(3, lambda zeros: zeros + np.uint8(1))
)
QUANTIZED_WEIGHTS.exported(
    "a block has the scale of the one before", quantized.quantized_linear, changed(2, lambda s: np.roll(s, 1, 1))
)
QUANTIZED_WEIGHTS.exported(
    "all rows of a table have the zero points of the first",
    quantized.quantized_embedding,
    changed(3, lambda zeros: np.repeat(zeros[:1], len(zeros), 0)),
)


def _scales_in_rows(build: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    turned = inputs[1].numpy()
    inputs[1] = np.ascontiguousarray(turned.T).reshape(turned.shape)


def _without_zeros(build: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    inputs[3:] = []


def _in_4_bits(build: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    if attributes["accuracy_level"] == 4:
        four = np.asarray(4, np.float32)
        inputs[0] = build.op("Div", build.op("Round", build.op("Mul", inputs[0], four)), four)


QUANTIZED_WEIGHTS.written("scales are not transposed with their weight", "DequantizeLinear", _scales_in_rows)
QUANTIZED_WEIGHTS.written("MatMulNBits gets no zero points", "MatMulNBits", _without_zeros)
QUANTIZED_WEIGHTS.written("level 4 rounds inputs to quarters", "MatMulNBits", _in_4_bits)
