"""The experts of gpt-oss as stored in checkpoints: in MXFP4, or in floating point with inputs before outputs.

MXFP4 (Open Compute Project 2023, "Microscaling Formats", 5.3.3) has numbers of 4 bits, two in a byte, the first in the
low half, and for 32 of them along the inputs one exponent: ``gate_up_proj_blocks`` uint8 (E, 2 I, H / 32, 16) and
``gate_up_proj_scales`` uint8 (E, 2 I, H / 32), and the same for ``down_proj``. They are dequantized, which is exact in
bfloat16.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping

import numpy as np

import lucid
from lucid import WeightsError
from lucid.models.checkpoints.config import QUANTIZATION, Array, Config
from lucid.models.checkpoints.quantized_weights import Weight, as_array

METHOD = "mxfp4"
_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_LUT = np.concatenate([_VALUES, -_VALUES])
_NAME = re.compile(r"(.*\bmlp)\.experts\.(gate_up|down)_proj(_blocks|_scales|_bias|)")
_log = logging.getLogger("lucid.models")


def oss_experts(weights: Mapping[str, Weight]) -> Mapping[str, Weight]:
    """The same weights; those of gpt-oss's experts get the names and axes of the model."""
    return _OssExperts(weights) if any(key.endswith(".experts.gate_up_proj_bias") for key in weights) else weights


class _OssExperts(Mapping[str, Weight]):
    def __init__(self, weights: Mapping[str, Weight]) -> None:
        self._weights, self._sources = weights, dict[str, str]()
        for key in weights:
            match = _NAME.fullmatch(key)
            own = key if match is None else f"{match[1]}.{match[2]}{'_bias' if match[3] == '_bias' else ''}"
            self._sources[own] = key

    def __getitem__(self, key: str) -> Weight:
        source = self._sources[key]
        if source == key or source.endswith("_bias"):
            return self._weights[source]
        if source.endswith(("_blocks", "_scales")):
            name = source[: -len("_blocks")]
            return dequantized(name, *(self._weights.get(f"{name}_{part}") for part in ("blocks", "scales")))
        return as_array(self._weights[source]).swapaxes(1, 2)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def dequantized(name: str, blocks: Weight | None, scales: Weight | None) -> Array:
    """(E, N, K) bfloat16 of blocks (E, N, K / 32, 16) and scales (E, N, K / 32), both uint8.

    Raises:
        WeightsError: for arrays of other shapes or element types, or where one is missing.
    """
    if (
        not isinstance(blocks, np.ndarray)
        or not isinstance(scales, np.ndarray)
        or blocks.ndim != 4
        or blocks.shape != (*scales.shape, 16)
        or {blocks.dtype.name, scales.dtype.name} != {"uint8"}
    ):
        kinds = [
            "nothing" if part is None else f"{as_array(part).dtype} {list(part.shape)}" for part in (blocks, scales)
        ]
        raise WeightsError(
            f"{name}: _blocks are {kinds[0]} and _scales {kinds[1]}, expected uint8 [E, N, K / 32, 16] and "
            "[E, N, K / 32]; get an intact copy of the checkpoint"
        )
    experts, rows, groups, _ = blocks.shape
    result = np.empty((experts, rows, groups * 32), lucid.bfloat16.numpy)
    for expert in range(experts):
        values = np.empty((rows, groups, 32), np.float32)
        values[..., ::2], values[..., 1::2] = _LUT[blocks[expert] & 15], _LUT[blocks[expert] >> 4]
        values = np.ldexp(values, scales[expert].astype(np.int32)[..., None] - 127)
        result[expert] = values.reshape(rows, groups * 32)
    return result


def without_quantization(config: Config) -> Config:
    """The same options without `quantization_config`: `oss_experts` knows such weights by their names."""
    config.section(QUANTIZATION).done(["quant_method", "modules_to_not_convert"])
    _log.info("%s: dequantized to bfloat16: experts in MXFP4", config.where)
    return config.with_formats(dict)
