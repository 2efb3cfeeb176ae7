"""A weight in few bits, in the place of the parameter that it stands for, and the functions that take both."""

from __future__ import annotations

from typing import Any

from lucid import ops
from lucid.nn.module import Module, Parameter
from lucid.ops.tensor import Tensor
from lucid.quantization import Blocks
from lucid.types import DType


class StoredWeight(Module):
    """What `F.linear` and `F.embedding` accept in the place of a parameter: it multiplies and gives rows in its own
    way.

    Attributes:
        shape: of the weight that it stands for: (N outputs, K inputs), or (entries, width) of a table.
    """

    shape: tuple[Any, ...]

    @property
    def dtype(self) -> DType:
        """The element type of the products and rows that it gives."""
        raise NotImplementedError(f"{type(self).__name__} has no dtype")

    def forward(self, x: Tensor) -> Tensor:
        """x @ weight.T: (..., K) to (..., N)."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def rows(self, indices: Tensor) -> Tensor:
        """Rows by index: (...) integers to (..., K)."""
        raise NotImplementedError(f"{type(self).__name__} has no rows()")


class QuantizedWeight(StoredWeight):
    """A weight (N outputs, K inputs) or table (entries, width) in few bits.

    It takes the place of the `weight` of a layer, which `F.linear` and `F.embedding` accept like a parameter.

    State: `packed` (N, B, block * bits / 8) uint8, `scales` (N, B), and `zero_points` (N, ceil(B * bits / 8)) uint8 if
    it is not symmetric, B = ceil(K / block): the layout of com.microsoft MatMulNBits.
    """

    def __init__(self, blocks: Blocks, dtype: DType) -> None:
        """`dtype`: of the scales, and of what a table gives."""
        self.bits, self.block = blocks.bits, blocks.block
        self.shape = (blocks.codes.shape[0], blocks.codes.shape[1])
        self.packed = Parameter(blocks.packed())
        self.scales = Parameter(blocks.scales.astype(dtype.numpy))
        zeros = blocks.packed_zeros()
        self.zero_points = None if zeros is None else Parameter(zeros)

    @property
    def dtype(self) -> DType:
        """The element type of the scales."""
        return self.scales.dtype

    def forward(self, x: Tensor) -> Tensor:
        return ops.quantized_linear(x, self.packed, self.scales, self.zero_points, bits=self.bits, block=self.block)

    def rows(self, indices: Tensor) -> Tensor:
        return ops.quantized_embedding(
            indices, self.packed, self.scales, self.zero_points, bits=self.bits, block=self.block, width=self.shape[1]
        )

    def extra_repr(self) -> str:
        return f"{self.shape[0]}, {self.shape[1]}, bits={self.bits}, block={self.block}"


def linear(x: Tensor, weight: Tensor | StoredWeight, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias: (..., in) with weight (out, in) to (..., out)."""
    if isinstance(weight, StoredWeight):
        product = weight(x)
        return product if bias is None else product + bias
    return ops.linear(x, weight, bias)


def embedding(indices: Tensor, weight: Tensor | StoredWeight) -> Tensor:
    """Rows of a table (entries, width) by index: (...) integers to (..., width).

    Raises:
        IndexError: eagerly, for an index outside the table.
    """
    return weight.rows(indices) if isinstance(weight, StoredWeight) else ops.embedding(indices, weight)
