"""Weights in FP8 with a scale for each rectangle of numbers, as in DeepSeek-V3 and many others.

A layer has ``weight`` float8_e4m3fn (N, K) and ``weight_scale_inv`` (N / rows, K / columns), rounded up; a number is
the product of both (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", 3.3). No kernel takes such weights, so they are
dequantized to float32 when they are read. Inputs are not rounded to 8 bits, as they are on GPUs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lucid.models.checkpoints.config import QUANTIZATION, Array, Config
from lucid.models.checkpoints.quantized_weights import Parts, QuantizedFormat
from lucid.quantization.blocks import blocks_of, first_wrong

METHOD, _SCALE = "fp8", "weight_scale_inv"
_HARMLESS = ["modules_to_(not_)?convert|ignored_layers|dequantize|scale_fmt|fmt"]
_log = logging.getLogger("lucid.models")


@dataclass(frozen=True)
class Fp8Format:
    """Weights with one scale for each rectangle of `rows` and `columns`."""

    parts: ClassVar[tuple[str, ...]] = ("weight", _SCALE)
    rows: int
    columns: int

    def shape(self, parts: Parts) -> tuple[int, int]:
        rows, columns = parts.shape("weight", axes=2)
        return rows, columns

    def read(self, parts: Parts) -> Array:
        """(N, K) float32."""
        outputs, inputs = shape = self.shape(parts)
        reason = f"fp8 in blocks of {self.rows} x {self.columns}"
        codes = parts.need("weight", "float8_e4m3fn", shape, reason)
        count = blocks_of(outputs, self.rows), blocks_of(inputs, self.columns)
        scales = parts.need(_SCALE, "float", count, reason).astype(np.float32)
        weight = codes.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            for row in range(count[0]):
                rows = slice(row * self.rows, (row + 1) * self.rows)
                weight[rows] *= np.repeat(scales[row], self.columns)[:inputs]
        if wrong := first_wrong(weight, np.isfinite(weight)):
            raise parts.wrong(f".weight times its scale is {wrong}, expected finite numbers")
        return weight


def with_fp8_weights(config: Config) -> Config:
    """The same options without `quantization_config`, and the weights that it describes in float32.

    Raises:
        ConfigError: for a variant of the format that is not read.
    """
    section = config.section(QUANTIZATION)
    section.get("quant_method", str)
    section.only("activation_scheme", "dynamic")
    section.only("expert_dtype", "fp8")
    sizes = section.get("weight_block_size", list, [128, 128])
    if len(sizes) != 2 or not all(type(size) is int and size > 0 for size in sizes):
        raise section.wrong("weight_block_size", "expected two whole numbers, the rows and columns of a block")
    section.done(_HARMLESS)
    known = Fp8Format(*sizes)

    def formats() -> dict[str, tuple[QuantizedFormat, str]]:
        layers = [key.removesuffix(f".{_SCALE}") for key in config.weights if key.endswith(f".{_SCALE}")]
        _log.info("%s: dequantized to float32: %d weights in FP8", config.where, len(layers))
        return {f"{layer}.weight": (known, layer) for layer in layers}

    return config.with_formats(formats)
