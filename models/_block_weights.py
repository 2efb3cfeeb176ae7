"""Checkpoints in few bits as Lucid writes them: a folder that `lucid.models.load` reads as it was.

config.json has the options of the model and a ``quantization_config``; model.safetensors the state of the model, under
its own keys. A weight X in few bits is there as X.packed, X.scales, and X.zero_points or X.minimums or neither, in the
layout of `nn.QuantizedWeight`::

    "quantization_config": {"quant_method": "lucid", "weights": {"lm_head.weight": [4, 32, 2048], ...}}

with the bits, the block and the number of inputs of each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from lucid import WeightsError, nn
from lucid.files import write_atomically
from lucid.models._config import Array, Config, ConfigError, show
from lucid.nn.stored import StoredWeight
from lucid.quantization import Blocks
from lucid.quantization.blocks import blocks_of, check_format, unpack

METHOD, OPTION = "lucid", "quantization_config"
_PARTS = ("packed", "scales", "zero_points", "minimums")


def write_checkpoint(model: nn.Module, options: Mapping[str, Any], folder: str | os.PathLike[str]) -> None:
    """Write config.json and model.safetensors to a folder that exists.

    Args:
        model: with or without weights in few bits.
        options: of the config.json that the model was made by.
        folder: where to write.

    Raises:
        ValueError: for a weight that is stored in another way than as `nn.QuantizedWeight`.
        OSError: if a file cannot be written.
    """
    inside: set[int] = set()
    weights: dict[str, list[int]] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.QuantizedWeight):
            weights[path] = [module.bits, module.block, int(module.shape[1])]
            inside |= {id(each) for each in module.modules()}
        elif isinstance(module, StoredWeight) and id(module) not in inside:
            raise ValueError(f"{path} is a {type(module).__name__}, which a checkpoint does not hold; export the model")
    told = {name: value for name, value in options.items() if name != OPTION}
    if weights:
        told[OPTION] = {"quant_method": METHOD, "weights": weights}
    with write_atomically(Path(folder) / "config.json") as file:
        file.write(json.dumps(told, indent=2).encode())
    lucid.save(Path(folder) / "model.safetensors", model.state_dict(), {"format": "lucid"})


def with_block_weights(config: Config) -> Config:
    """The same options without `quantization_config`, and the weights that it names as blocks.

    Raises:
        ConfigError: for weights that are described in another way.
    """
    where = f"{config.where}, {OPTION}"
    section = Config(config.get(OPTION, dict), where)
    section.only("quant_method", METHOD)
    told = section.get("weights", dict)
    section.done()
    for name, kind in told.items():
        if not isinstance(kind, list) or len(kind) != 3 or not all(type(number) is int for number in kind):
            raise ConfigError(f"{where}: {show(name)} is {show(kind)}, expected [bits, block, inputs]")
        try:
            check_format(show(name), *kind[:2])
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
    weights = cache(lambda: BlockWeights(config.weights, told, config.where))
    options = {name: value for name, value in config.options.items() if name != OPTION}
    return Config(options, config.where, weights, lambda: weights().shapes)


class BlockWeights(Mapping[str, Array | Blocks]):
    """The weights of a checkpoint: blocks for those that are told, other arrays as they are."""

    def __init__(self, arrays: Mapping[str, Array | Blocks], told: Mapping[str, list[int]], where: str) -> None:
        self._arrays, self._told, self._where = arrays, told, where
        parts = {f"{name}.{part}" for name in told for part in _PARTS}
        self._keys = [key for key in arrays if key not in parts] + list(told)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by key; nothing is unpacked."""
        return {key: self._shape(key) if key in self._told else self._arrays[key].shape for key in self}

    def __getitem__(self, key: str) -> Array | Blocks:
        return self._blocks(key) if key in self._told else self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def _shape(self, name: str) -> tuple[int, int]:
        """(N, K)."""
        packed = self._arrays.get(f"{name}.packed")
        if packed is None or not packed.shape:
            raise self._wrong(f"{name}.packed is missing, which {OPTION} names")
        return packed.shape[0], self._told[name][2]

    def _blocks(self, name: str) -> Blocks:
        bits, block, inputs = self._told[name]
        rows = self._shape(name)[0]
        count = blocks_of(inputs, block)
        packed = self._part(name, "packed", "uint8", (rows, count, block * bits // 8))
        scales = self._part(name, "scales", "float", (rows, count))
        zeros = self._part(name, "zero_points", "uint8", (rows, blocks_of(count * bits, 8)))
        minimums = self._part(name, "minimums", "float", (rows, count))
        if packed is None or scales is None:
            raise self._wrong(f"{name} has no {'packed' if packed is None else 'scales'}")
        try:
            return Blocks(
                np.ascontiguousarray(unpack(packed, bits).reshape(rows, count * block)[:, :inputs]),
                scales.astype(np.float32),
                None if zeros is None else np.ascontiguousarray(unpack(zeros, bits)[:, :count]),
                bits,
                block,
                None if minimums is None else minimums.astype(np.float32),
            )
        except ValueError as error:
            raise self._wrong(f"{name}: {error}") from error

    def _part(self, name: str, part: str, kind: str, shape: tuple[int, ...]) -> Array | None:
        array = self._arrays.get(f"{name}.{part}")
        if array is None or isinstance(array, Blocks):
            return None
        right = array.dtype.name in ("float16", "bfloat16", "float32") if kind == "float" else array.dtype == np.uint8
        if array.shape != shape or not right:
            bits, block, inputs = self._told[name]
            raise self._wrong(
                f"{name}.{part} is {array.dtype} {list(array.shape)}, expected {kind} {list(shape)} for {inputs} "
                f"inputs in {bits} bits and blocks of {block}"
            )
        return array

    def _wrong(self, problem: str) -> WeightsError:
        return WeightsError(f"{self._where}: {problem}; get an intact copy of the folder, or quantise again")
