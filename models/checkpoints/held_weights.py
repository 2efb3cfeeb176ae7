"""What a checkpoint may hold for a key: an array, or a weight that is stored in another way."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lucid import DType, nn
from lucid.nn.quantized import Activations
from lucid.quantization import Blocks, Grid8, Rows

Array = np.ndarray[Any, Any]


class Int8(NamedTuple):
    """A weight (N, K) in signed bytes, and what its inputs are rounded to: what an `nn.Int8Weight` is made of."""

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


Held: TypeAlias = Array | Blocks | Int8


def numbers_of(held: Held) -> Array:
    """A weight as an array, which it may be already."""
    return held.dequantized() if isinstance(held, (Blocks, Int8)) else held


def stored_weight(held: Blocks | Int8, dtype: DType) -> nn.QuantizedWeight | nn.Int8Weight:
    """The module that takes the place of a parameter, its scales in this element type."""
    if isinstance(held, Blocks):
        return nn.QuantizedWeight(held, dtype)
    return nn.Int8Weight(held.rows, dtype, held.activations, held.grid)
