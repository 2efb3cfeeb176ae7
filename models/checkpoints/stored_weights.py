"""Quantized checkpoints as Lucid writes them: a folder that `lucid.models.load` reads as it was.

config.json has the options of the model and a ``quantization_config``; model.safetensors the state of the model, under
its own keys. A quantized weight X is there as X.packed, X.scales, and X.zero_points or X.minimums or neither, in the
layout of `nn.QuantizedWeight`; one in signed bytes as X.codes and X.scales, with X.input_scale and X.input_zero_point
if it has a grid, as `nn.Int8Weight` has them::

    "quantization_config": {"quant_method": "lucid", "weights": {
        "lm_head.weight": [4, 32, 2048],                # the bits, the block and the number of inputs
        "layer.0.weight": {"activations": "static"},    # what inputs are rounded to; null: they are not
    }, "ignored_options": ["is_causal"]}                # what the checkpoint had and the model was read without
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lucid
from lucid import nn
from lucid.files.atomic import write_atomically
from lucid.models.checkpoints.config import Config
from lucid.models.checkpoints.held_weights import Held
from lucid.models.checkpoints.stored_formats import PARTS, Parts, StoredFormat, format_of, read_format
from lucid.nn.quantized import WeightModule

METHOD, OPTION, IGNORED = "lucid", "quantization_config", "ignored_options"


def write_checkpoint(
    model: nn.Module, options: Mapping[str, Any], folder: str | os.PathLike[str], ignored: Sequence[str] = ()
) -> None:
    """Write config.json and model.safetensors to a folder that exists.

    Args:
        model: with or without quantized weights.
        options: of the config.json that the model was made by.
        folder: where to write.
        ignored: the options that the model was read without on request.

    Raises:
        ValueError: for a weight that is stored in another way than as `nn.QuantizedWeight` or `nn.Int8Weight`.
        OSError: if a file cannot be written.
    """
    weights: dict[str, Any] = {}
    for path, module in model.named_modules():
        if isinstance(module, WeightModule):
            found = format_of(module)
            if found is None:
                raise ValueError(
                    f"{path} is a {type(module).__name__}, which a checkpoint does not hold; export the model"
                )
            weights[path] = found.told()
    told = {name: value for name, value in options.items() if name != OPTION}
    if weights or ignored:
        record = {IGNORED: list(ignored)} if ignored else {}
        told[OPTION] = {"quant_method": METHOD, "weights": weights, **record}
    with write_atomically(Path(folder) / "config.json") as file:
        file.write(json.dumps(told, indent=2).encode())
    lucid.save(Path(folder) / "model.safetensors", model.state_dict(), {"format": "lucid"})


def with_stored_weights(config: Config) -> Config:
    """The same options without `quantization_config`, and the weights that it names as they were stored.

    Raises:
        ConfigError: for weights that are described in another way.
    """
    where = f"{config.where}, {OPTION}"
    section = config.section(OPTION)
    section.only("quant_method", METHOD)
    told = section.get("weights", dict)
    ignored = section.get(IGNORED, list, [])
    if not all(isinstance(name, str) for name in ignored):
        raise section.wrong(IGNORED, "expected a list of names")
    section.done()
    formats = {name: read_format(name, kind, where) for name, kind in told.items()}
    weights = cache(lambda: StoredWeights(config.weights, formats, config.where))
    options = {name: value for name, value in config.options.items() if name != OPTION}
    found = config.with_weights(weights, lambda: weights().shapes, options)
    found.dropped = (*ignored, *config.dropped)
    return found


class StoredWeights(Mapping[str, Held]):
    """The weights of a checkpoint: those that have a format in it, other arrays as they are."""

    def __init__(self, arrays: Mapping[str, Held], formats: Mapping[str, StoredFormat], where: str) -> None:
        self._arrays, self._formats, self._where = arrays, formats, where
        parts = {f"{name}.{part}" for name in formats for part in PARTS}
        self._keys = [key for key in arrays if key not in parts] + list(formats)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by key; nothing is unpacked."""
        return {
            key: self._formats[key].shape(self._parts(key)) if key in self._formats else self._arrays[key].shape
            for key in self
        }

    def __getitem__(self, key: str) -> Held:
        return self._formats[key].read(self._parts(key)) if key in self._formats else self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def _parts(self, name: str) -> Parts:
        return Parts(self._arrays, name, self._where)
