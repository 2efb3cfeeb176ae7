"""A weight in signed bytes, in the place of the parameter that it stands for, whose inputs are rounded to bytes."""

from __future__ import annotations

import copy
from typing import Literal, Self, TypeAlias

from lucid import ops
from lucid.core.graph.types import DType, convert
from lucid.nn.module import Parameter
from lucid.nn.stored import StoredWeight
from lucid.ops.tensor.tensor import Tensor
from lucid.quantization import Grid8, Rows

Activations: TypeAlias = Literal["dynamic", "dynamic_rows", "static"]


class Int8Weight(StoredWeight):
    """A weight (N outputs, K inputs) in 8 bits, multiplied with inputs in 8 bits; or a table (entries, width).

    It takes the place of the `weight` of a layer, which `F.linear` and `F.embedding` accept like a parameter.

    State: `codes` (N, K) int8 and `scales` (N,); with a grid also `input_scale` () and `input_zero_point` () uint8.
    """

    bits = 8

    def __init__(self, rows: Rows, dtype: DType, activations: Activations | None, grid: Grid8 | None = None) -> None:
        """`dtype`: of the scales, and of what a table gives. `activations`: what inputs are rounded to; None: they are
        not, as for a table that is only indexed. `grid`: that of the inputs; of "static" alone.

        Raises:
            ValueError: for "static" without a grid, or a grid without "static".
            OverflowError: for a scale that `dtype` cannot hold.
        """
        if (activations == "static") != (grid is not None):
            raise ValueError(f'Int8Weight: activations is "{activations}", and a grid is for "static", which needs one')
        self.activations = activations
        self.shape = (rows.codes.shape[0], rows.codes.shape[1])
        self.codes: Tensor = Parameter(rows.codes)
        self.scales: Tensor = Parameter(convert(rows.scales, dtype, "scales"))
        self.input_scale = None if grid is None else Parameter(convert(grid.scale, dtype, "input_scale"))
        self.input_zero_point = None if grid is None else Parameter(grid.zero)

    @property
    def dtype(self) -> DType:
        """The element type of the scales."""
        return self.scales.dtype

    def forward(self, x: Tensor) -> Tensor:
        if self.input_scale is not None and self.input_zero_point is not None:
            return ops.int8_linear_static(x, self.codes, self.scales, self.input_scale, self.input_zero_point)
        if self.activations is None:
            return ops.linear(x, self[:])
        if self.activations == "dynamic_rows":
            return ops.int8_linear_rows(x, self.codes, self.scales)
        return ops.int8_linear_dynamic(x, self.codes, self.scales)

    def rows(self, indices: Tensor) -> Tensor:
        return ops.int8_embedding(indices, self.codes, self.scales)

    def part(self, start: int, stop: int, suffix: str) -> Self:
        """As every weight, but what its inputs are rounded to is that of the whole weight."""
        made = copy.copy(self)
        made.shape = (stop - start, self.shape[1])
        made.codes, made.scales = (whole[start:stop].part_of(whole, suffix) for whole in (self.codes, self.scales))
        return made

    def extra_repr(self) -> str:
        inputs = "" if self.activations is None else f", activations={self.activations!r}"
        return f"{self.shape[0]}, {self.shape[1]}{inputs}"
