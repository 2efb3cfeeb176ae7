"""The weights of a checkpoint: arrays, and quantized weights that several arrays of the file describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from lucid import DType, WeightsError, nn
from lucid.nn.quantized import Activations
from lucid.quantization import Blocks, Grid8, Rows

Array = np.ndarray[Any, Any]
_FLOATS = ("float16", "bfloat16", "float32", "float64")


class Int8(NamedTuple):
    """A weight (N, K) in signed bytes, and how its inputs are rounded: the content of an `nn.Int8Weight`."""

    rows: Rows
    activations: Activations | None
    grid: Grid8 | None

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.rows.codes.shape[0], self.rows.codes.shape[1]

    def dequantized(self) -> Array:
        """(N, K) float32."""
        return self.rows.dequantized()


Weight: TypeAlias = Array | Blocks | Int8
"""A weight of a checkpoint."""


def as_array(weight: Weight) -> Array:
    """A weight as an array, dequantized where it is not one already."""
    return weight.dequantized() if isinstance(weight, (Blocks, Int8)) else weight


def quantized_module(weight: Blocks | Int8, dtype: DType) -> nn.QuantizedWeight | nn.Int8Weight:
    """The module that takes the place of a parameter, its scales in this element type."""
    if isinstance(weight, Blocks):
        return nn.QuantizedWeight(weight, dtype)
    return nn.Int8Weight(weight.rows, dtype, weight.activations, weight.grid)


class Parts:
    """The arrays of one quantized weight: X.scales and so on, where the weight's name is X."""

    def __init__(self, arrays: Mapping[str, Weight], name: str, where: str, remedy: str) -> None:
        """`where` starts the messages, `remedy` ends them."""
        self._arrays, self.name, self._where, self._remedy = arrays, name, where, remedy

    def shape(self, part: str, axes: int) -> tuple[int, ...]:
        """The shape of an array that must be there."""
        array = self._arrays.get(f"{self.name}.{part}")
        if array is None:
            raise self.wrong(f".{part} is missing, which quantization_config names")
        if len(array.shape) != axes:
            raise self.wrong(f".{part} has shape {list(array.shape)}, expected {axes} axes")
        return array.shape

    def get(self, part: str, kind: str, shape: tuple[int, ...], reason: str) -> Array | None:
        """An array, if there is one. `kind` is its element type, or "float" for any; `reason` explains the shape."""
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
        """The error for a weight that is not as its format wants it; the problem follows its name."""
        return WeightsError(f"{self._where}: {self.name}{problem}; {self._remedy}")


class QuantizedFormat(Protocol):
    """How a quantized weight is stored."""

    parts: ClassVar[tuple[str, ...]]
    """The ends of the names of its arrays."""

    def shape(self, parts: Parts) -> tuple[int, int]:
        """(N, K); nothing is unpacked."""

    def read(self, parts: Parts) -> Weight:
        """The weight."""


class QuantizedWeights(Mapping[str, Weight]):
    """The weights of a checkpoint: those that have a format in it, and other arrays as they are.

    Args:
        arrays: the checkpoint.
        formats: by the key of a quantized weight its format, and what the names of its arrays begin with, before a dot.
        where: starts the messages.
        remedy: ends them.
    """

    def __init__(
        self, arrays: Mapping[str, Weight], formats: Mapping[str, tuple[QuantizedFormat, str]], where: str, remedy: str
    ) -> None:
        self._arrays, self._formats, self._where, self._remedy = arrays, formats, where, remedy
        parts = {f"{name}.{part}" for known, name in formats.values() for part in known.parts}
        self._keys = [key for key in arrays if key not in parts] + sorted(formats)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by key; nothing is unpacked."""
        return {
            key: self._formats[key][0].shape(self._parts(key)) if key in self._formats else self._arrays[key].shape
            for key in self
        }

    def is_zero_bias(self, key: str) -> bool:
        """Whether this is a bias of zeros of a quantized layer: AutoGPTQ gives one to all of them."""
        layer, bias = key.removesuffix(".bias"), self._arrays.get(key)
        return layer != key and f"{layer}.weight" in self._formats and isinstance(bias, np.ndarray) and not bias.any()

    def __getitem__(self, key: str) -> Weight:
        return self._formats[key][0].read(self._parts(key)) if key in self._formats else self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def _parts(self, key: str) -> Parts:
        return Parts(self._arrays, self._formats[key][1], self._where, self._remedy)
