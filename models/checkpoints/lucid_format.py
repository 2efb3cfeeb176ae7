"""Quantized checkpoints as Lucid writes them: a folder from which `lucid.models.load` makes the same model again.

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

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, get_args

import numpy as np

import lucid
from lucid import nn
from lucid.core.words.safe_text import show
from lucid.models.checkpoints.config import QUANTIZATION, Config, ConfigError, write_json
from lucid.models.checkpoints.quantized_weights import Int8, Parts
from lucid.nn.quantized import Activations, WeightModule
from lucid.quantization import Blocks, Grid8, Rows
from lucid.quantization.blocks import blocks_of, check_format, unpack

METHOD, IGNORED = "lucid", "ignored_options"


def write_checkpoint(
    model: nn.Module,
    options: Mapping[str, Any],
    folder: str | os.PathLike[str],
    ignored: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> None:
    """Write config.json and model.safetensors to a folder that exists.

    Args:
        model: with or without quantized weights.
        options: of the config.json that the model was made by.
        folder: where to write.
        ignored: the options that the model was read without on request.
        names: of weights in the file, by the model's own; None: those of a file that only Lucid reads.

    Raises:
        ValueError: for a weight that is stored in another way than as `nn.QuantizedWeight` or `nn.Int8Weight`.
        OSError: if a file cannot be written.
    """
    weights: dict[str, Any] = {}
    for path, module in model.named_modules():
        if isinstance(module, WeightModule):
            format_ = format_of(module)
            if format_ is None:
                raise ValueError(
                    f"{path} is a {type(module).__name__}, which a checkpoint does not hold; export the model"
                )
            weights[path] = format_.told()
    config = {name: value for name, value in options.items() if name != QUANTIZATION}
    if weights or ignored:
        record = {IGNORED: list(ignored)} if ignored else {}
        config[QUANTIZATION] = {"quant_method": METHOD, "weights": weights, **record}
    write_json(Path(folder) / "config.json", config)
    state = {(names or {}).get(name, name): tensor for name, tensor in model.state_dict().items()}
    lucid.save(Path(folder) / "model.safetensors", state, {"format": "lucid" if names is None else "pt"})


def with_lucid_weights(config: Config) -> Config:
    """The same options without `quantization_config`, and the weights that it names as they were written.

    Raises:
        ConfigError: for weights that are described in another way.
    """
    where = f"{config.where}, {QUANTIZATION}"
    section = config.section(QUANTIZATION)
    section.only("quant_method", METHOD)
    entries = section.get("weights", dict)
    ignored = section.get(IGNORED, list, [])
    if not all(isinstance(name, str) for name in ignored):
        raise section.wrong(IGNORED, "expected a list of names")
    section.done()
    formats = {name: (read_format(name, kind, where), name) for name, kind in entries.items()}
    result = config.with_formats(lambda: formats, "get an intact copy of the folder, or quantize again")
    result.dropped = (*ignored, *config.dropped)
    return result


Format: TypeAlias = "InBlocks | ByRow"
"""How Lucid stores a quantized weight."""


@dataclass(frozen=True)
class InBlocks:
    """An `nn.QuantizedWeight`: X.packed, X.scales, and X.zero_points or X.minimums or neither, in its layout."""

    parts: ClassVar[tuple[str, ...]] = ("packed", "scales", "zero_points", "minimums")
    bits: int
    block: int
    inputs: int

    def told(self) -> Any:
        return [self.bits, self.block, self.inputs]

    def shape(self, parts: Parts) -> tuple[int, int]:
        return parts.shape("packed", axes=3)[0], self.inputs

    def read(self, parts: Parts) -> Blocks:
        bits, block, inputs = self.bits, self.block, self.inputs
        rows, count = self.shape(parts)[0], blocks_of(inputs, block)
        reason = f"{inputs} inputs in {bits} bits and blocks of {block}"
        packed = parts.need("packed", "uint8", (rows, count, block * bits // 8), reason)
        scales = parts.need("scales", "float", (rows, count), reason)
        zeros = parts.get("zero_points", "uint8", (rows, blocks_of(count * bits, 8)), reason)
        minimums = parts.get("minimums", "float", (rows, count), reason)
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
            raise parts.wrong(f": {error}") from error


@dataclass(frozen=True)
class ByRow:
    """An `nn.Int8Weight`: X.codes and X.scales, for "static" also X.input_scale and X.input_zero_point."""

    parts: ClassVar[tuple[str, ...]] = ("codes", "scales", "input_scale", "input_zero_point")
    KEY: ClassVar[str] = "activations"
    activations: Activations | None

    def told(self) -> Any:
        return {self.KEY: self.activations}

    def shape(self, parts: Parts) -> tuple[int, int]:
        rows, columns = parts.shape("codes", axes=2)
        return rows, columns

    def read(self, parts: Parts) -> Int8:
        shape = self.shape(parts)
        reason = f"{shape[1]} inputs in 8 bits by row"
        codes = parts.need("codes", "int8", shape, reason)
        scales = parts.need("scales", "float", shape[:1], reason).astype(np.float32)
        grid = None
        if self.activations == "static":
            reason = 'activations "static"'
            step = parts.need("input_scale", "float", (), reason).astype(np.float32)
            if not 0 < step < np.inf:
                raise parts.wrong(f".input_scale is {step}, expected a finite number above 0")
            grid = Grid8(step, parts.need("input_zero_point", "uint8", (), reason))
        if not np.isfinite(scales).all():
            raise parts.wrong(".scales has NaN or infinity")
        return Int8(Rows(codes, scales), self.activations, grid)


def format_of(weight: WeightModule) -> Format | None:
    """The format of a weight; None if checkpoints do not hold it."""
    if isinstance(weight, nn.QuantizedWeight):
        return InBlocks(weight.bits, weight.block, int(weight.shape[1]))
    return ByRow(weight.activations) if isinstance(weight, nn.Int8Weight) else None


def read_format(name: str, entry: object, where: str) -> Format:
    """The format that config.json tells of a weight.

    Raises:
        ConfigError: for one that does not exist.
    """
    if isinstance(entry, list) and len(entry) == 3 and all(type(number) is int for number in entry):
        try:
            check_format(show(name), *entry[:2])
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
        return InBlocks(*entry)
    ways = (None, *get_args(Activations))
    if isinstance(entry, dict) and list(entry) == [ByRow.KEY] and entry[ByRow.KEY] in ways:
        return ByRow(entry[ByRow.KEY])
    raise ConfigError(
        f'{where}: {show(name)} is {show(entry)}, expected [bits, block, inputs] or {{"activations": one of '
        f"{', '.join('null' if way is None else way for way in ways)}}}"
    )
