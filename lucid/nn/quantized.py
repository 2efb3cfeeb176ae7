"""A quantized weight, in the place of the parameter that it stands for."""

from __future__ import annotations

from lucid import ops
from lucid.core.graph.types import DType, convert
from lucid.nn.module import Parameter
from lucid.nn.stored import StoredWeight
from lucid.ops.tensor.tensor import Tensor
from lucid.quantization import Blocks


class QuantizedWeight(StoredWeight):
    """A quantized weight (N outputs, K inputs) or table (entries, width).

    It takes the place of the `weight` of a layer, which `F.linear` and `F.embedding` accept like a parameter.

    State: `packed` (N, B, block * bits / 8) uint8, `scales` (N, B), and `zero_points` (N, ceil(B * bits / 8)) uint8 if
    it is not symmetric, B = ceil(K / block): the layout of com.microsoft MatMulNBits; or `minimums` (N, B).
    """

    def __init__(self, blocks: Blocks, dtype: DType) -> None:
        """`dtype`: of scales and minimums, and of what a table gives.

        Raises:
            OverflowError: for a scale or minimum that `dtype` cannot hold.
        """
        self.bits, self.block = blocks.bits, blocks.block
        self.shape = (blocks.codes.shape[0], blocks.codes.shape[1])
        self.packed = Parameter(blocks.packed())
        self.scales = Parameter(convert(blocks.scales, dtype, "scales"))
        zeros = blocks.packed_zeros()
        self.zero_points = None if zeros is None else Parameter(zeros)
        self.minimums = None if blocks.minimums is None else Parameter(convert(blocks.minimums, dtype, "minimums"))

    @property
    def dtype(self) -> DType:
        """The element type of the scales."""
        return self.scales.dtype

    def forward(self, x: Tensor) -> Tensor:
        return ops.quantized_linear(
            x, self.packed, self.scales, self.zero_points, self.minimums, bits=self.bits, block=self.block
        )

    def rows(self, indices: Tensor) -> Tensor:
        return ops.quantized_embedding(
            indices,
            self.packed,
            self.scales,
            self.zero_points,
            self.minimums,
            bits=self.bits,
            block=self.block,
            width=self.shape[1],
        )

    def extra_repr(self) -> str:
        return f"{self.shape[0]}, {self.shape[1]}, bits={self.bits}, block={self.block}"
