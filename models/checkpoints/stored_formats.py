"""The formats of weights in checkpoints that Lucid writes: what config.json tells of each, and the arrays of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, get_args

import numpy as np

from lucid import WeightsError, nn
from lucid.models.checkpoints.config import Array, ConfigError, show
from lucid.models.checkpoints.held_weights import Held, Int8
from lucid.nn.quantized import Activations, WeightModule
from lucid.quantization import Blocks, Grid8, Rows
from lucid.quantization.blocks import blocks_of, check_format, unpack

PARTS = ("packed", "scales", "zero_points", "minimums", "codes", "input_scale", "input_zero_point")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


class Parts:
    """The arrays of one weight of a checkpoint: X.packed, X.scales and so on."""

    def __init__(self, arrays: Mapping[str, Held], name: str, where: str) -> None:
        """`where` starts the messages."""
        self._arrays, self.name, self._where = arrays, name, where

    def rows(self, part: str) -> tuple[int, ...]:
        """The shape of an array that must be there."""
        array = self._arrays.get(f"{self.name}.{part}")
        if array is None or not array.shape:
            raise self.wrong(f".{part} is missing, which quantization_config names")
        return array.shape

    def get(self, part: str, kind: str, shape: tuple[int, ...], reason: str) -> Array | None:
        """An array, if it is there. `kind`: its element type, or "float" for any; `reason`: of the shape."""
        array = self._arrays.get(f"{self.name}.{part}")
        if not isinstance(array, np.ndarray):
            return None
        right = array.dtype.name in _FLOATS if kind == "float" else array.dtype.name == kind
        if array.shape != shape or not right:
            raise self.wrong(
                f".{part} is {array.dtype} {list(array.shape)}, expected {kind} {list(shape)} for {reason}"
            )
        return array

    def need(self, part: str, kind: str, shape: tuple[int, ...], reason: str) -> Array:
        """An array that must be there."""
        array = self.get(part, kind, shape, reason)
        if array is None:
            raise self.wrong(f" has no {part}")
        return array

    def wrong(self, problem: str) -> WeightsError:
        return WeightsError(f"{self._where}: {self.name}{problem}; get an intact copy of the folder, or quantise again")


class StoredFormat(Protocol):
    """How a weight is stored."""

    def told(self) -> Any:
        """What config.json says of it."""

    def shape(self, parts: Parts) -> tuple[int, int]:
        """(N, K); nothing is unpacked."""

    def read(self, parts: Parts) -> Blocks | Int8:
        """The weight."""


@dataclass(frozen=True)
class InBlocks:
    """An `nn.QuantizedWeight`: X.packed, X.scales, and X.zero_points or X.minimums or neither, in its layout."""

    bits: int
    block: int
    inputs: int

    def told(self) -> Any:
        return [self.bits, self.block, self.inputs]

    def shape(self, parts: Parts) -> tuple[int, int]:
        return parts.rows("packed")[0], self.inputs

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

    activations: Activations | None
    KEY: ClassVar[str] = "activations"

    def told(self) -> Any:
        return {self.KEY: self.activations}

    def shape(self, parts: Parts) -> tuple[int, int]:
        rows, *rest = parts.rows("codes")
        if len(rest) != 1:
            raise parts.wrong(f".codes is {[rows, *rest]}, expected [outputs, inputs]")
        return rows, rest[0]

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


def format_of(weight: WeightModule) -> StoredFormat | None:
    """The format of a weight; None if checkpoints do not hold it."""
    if isinstance(weight, nn.QuantizedWeight):
        return InBlocks(weight.bits, weight.block, int(weight.shape[1]))
    return ByRow(weight.activations) if isinstance(weight, nn.Int8Weight) else None


def read_format(name: str, told: object, where: str) -> StoredFormat:
    """The format that config.json tells of a weight.

    Raises:
        ConfigError: for one that does not exist.
    """
    if isinstance(told, list) and len(told) == 3 and all(type(number) is int for number in told):
        try:
            check_format(show(name), *told[:2])
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
        return InBlocks(*told)
    ways = (None, *get_args(Activations))
    if isinstance(told, dict) and list(told) == [ByRow.KEY] and told[ByRow.KEY] in ways:
        return ByRow(told[ByRow.KEY])
    raise ConfigError(
        f'{where}: {show(name)} is {show(told)}, expected [bits, block, inputs] or {{"activations": one of '
        f"{', '.join('null' if way is None else way for way in ways)}}}"
    )
