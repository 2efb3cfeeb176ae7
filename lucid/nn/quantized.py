"""Quantized weights in the places of parameters, and the functions that take both."""

from __future__ import annotations

import copy
from typing import Any, Literal, NoReturn, Self, TypeAlias, TypeVar, cast

from lucid import ops
from lucid.core.graph.scope import is_differentiated
from lucid.core.graph.types import DType, convert
from lucid.core.sizes.dims import Dim, Size
from lucid.core.torch_names.argument_names import refuse, torch_names
from lucid.nn._checks import padding_row
from lucid.nn.module import Module
from lucid.nn.parameters import Parameter
from lucid.ops.indexing import from_front
from lucid.ops.operand_conversion import UnreadableOperand
from lucid.ops.tensor.tensor import Tensor
from lucid.quantization import Blocks, Grid8, Rows


class WeightModule(UnreadableOperand, Module):
    """The base of modules in the place of a parameter (N, K), which compute products and rows in their own way.

    `F.linear` and `F.embedding` accept it. The first axis of its parameters is the rows of the weight. Any other use of
    a parameter, such as `weight.mT`, is an error.

    Attributes:
        shape: the shape of the parameter: (N outputs, K inputs), or (entries, width) of a table.
        bits: the bits of one number.
        quantized: whether its numbers are stored as integers.
    """

    shape: tuple[Any, ...]
    bits: int
    quantized = True
    is_traced = True  # no array holds its rows, so `Tensor.named_after` names none after it

    @property
    def dtype(self) -> DType:
        """The element type of its products and rows."""
        raise NotImplementedError(f"{type(self).__name__} has no dtype")

    def forward(self, x: Tensor) -> Tensor:
        """x @ weight.T: (..., K) to (..., N)."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def rows(self, indices: Tensor) -> Tensor:
        """Rows by index: (...) integers to (..., K)."""
        raise NotImplementedError(f"{type(self).__name__} has no rows()")

    def slice_rows(self, start: int, stop: int, suffix: str) -> Self:
        """The rows from `start` up to `stop` as a weight, whose parameters are named with the suffix in an export."""
        rows = copy.copy(self)
        rows.shape = (stop - start, self.shape[1])
        for name, whole in self.state_dict().items():
            setattr(rows, name, whole[start:stop].named_after(whole, suffix))
        return rows

    def __getitem__(self, rows: Size | slice | Tensor) -> Tensor:
        """Rows as numbers, by index or as `weight[start:stop]`, as models read tables of positions."""
        if isinstance(rows, Tensor):
            return self.rows(rows)
        if isinstance(rows, (int, Dim)):
            first = from_front(rows, self.shape[0])
            return self.rows(ops.arange(first, first + 1))[0]
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            self.refuse(f"weight[{rows}]")
        start, stop, size = rows.start, rows.stop, self.shape[0]
        if isinstance(start, Dim) or isinstance(stop, Dim):
            start, stop = (
                from_front(0 if start is None else start, size),
                from_front(size if stop is None else stop, size),
            )
        else:
            start, stop, _ = rows.indices(size)  # as NumPy counts from the end and cuts off
            stop = max(start, stop)
        return self.rows(ops.arange(start, stop))

    def refuse(self, use: str, error: type[Exception] = TypeError) -> NoReturn:
        raise error(
            f"{use}: got {self!r}, which is not a tensor; use F.linear(x, weight), F.embedding(indices, weight) "
            'or weight[rows], or keep the parameter of this layer: lucid.quantize(..., skip="path of the layer")'
        )


W = TypeVar("W", bound=Tensor | WeightModule)


@torch_names
def linear(x: Tensor, weight: Tensor | WeightModule, bias: Tensor | None = None, *, transposed: bool = False) -> Tensor:
    """x @ weight.T + bias: (..., in) with weight (out, in) to (..., out), or with one row (in) to (...).

    `transposed`: a tensor is stored as (in, out), as GPT-2's are; a `WeightModule` never is.
    """
    if transposed and isinstance(weight, Tensor):
        product = x @ weight
    elif isinstance(weight, WeightModule):
        product = weight(x)
    elif isinstance(weight, Tensor) and weight.ndim == 1:
        product = ops.squeeze(ops.linear(x, ops.unsqueeze(weight, 0)), -1)
    else:
        return ops.linear(x, weight, bias)
    return product if bias is None else product + bias


@torch_names
def embedding(
    indices: Tensor,
    weight: Tensor | WeightModule,
    padding_idx: int | None = None,
    max_norm: None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table (entries, width) by index: (...) integers to (..., width). That of `padding_idx` has no gradient.

    The arguments after it are torch's for training: `max_norm` is None, the others change nothing.

    Raises:
        IndexError: eagerly, for an index outside the table.
        ValueError: for a `padding_idx` that is no row.
        TypeError: for a `max_norm`.
    """
    if max_norm is not None:
        refuse("embedding", "max_norm")
    rows = weight.rows(indices) if isinstance(weight, WeightModule) else ops.embedding(indices, weight)
    padding = padding_row("embedding", padding_idx, weight.shape[0])
    if padding is None or not is_differentiated():
        return rows
    return ops.where((indices == padding).unsqueeze(-1), rows.detach(), rows)


def rows_of(weight: W, start: int, stop: int, suffix: str) -> W:
    """Some rows of a weight as a weight; its name in an exported model is the whole weight's name plus the suffix."""
    if isinstance(weight, WeightModule):
        return weight.slice_rows(start, stop, suffix)
    return cast(W, weight[start:stop].named_after(weight, suffix))


class QuantizedWeight(WeightModule):
    """A quantized weight (N outputs, K inputs) or table (entries, width).

    It takes the place of the `weight` of a layer, which `F.linear` and `F.embedding` accept like a parameter.

    State: `packed` (N, B, block * bits / 8) uint8, `scales` (N, B), and `zero_points` (N, ceil(B * bits / 8)) uint8 if
    it is not symmetric, B = ceil(K / block): the layout of com.microsoft MatMulNBits; or `minimums` (N, B).
    """

    def __init__(self, blocks: Blocks, dtype: DType) -> None:
        """`dtype`: the element type of scales and minimums, and of a table's rows.

        Raises:
            OverflowError: for a scale or minimum that `dtype` cannot hold.
        """
        self.bits, self.block = int(blocks.bits), int(blocks.block)
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


Activations: TypeAlias = Literal["dynamic", "dynamic_rows", "static"]


class Int8Weight(WeightModule):
    """A weight (N outputs, K inputs) in 8 bits, multiplied with inputs in 8 bits; or a table (entries, width).

    It takes the place of the `weight` of a layer, which `F.linear` and `F.embedding` accept like a parameter.

    State: `codes` (N, K) int8 and `scales` (N,); with a grid also `input_scale` () and `input_zero_point` () uint8.
    """

    bits = 8

    def __init__(self, rows: Rows, dtype: DType, activations: Activations | None, grid: Grid8 | None = None) -> None:
        """`dtype`: the element type of the scales and of a table's rows. `activations`: how inputs are rounded; None:
        not at all, as for a table that is only indexed. `grid`: the grid of the inputs, for "static" only.

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

    def slice_rows(self, start: int, stop: int, suffix: str) -> Self:
        """These rows as a separate weight; its inputs are rounded as for the whole weight."""
        rows = copy.copy(self)
        rows.shape = (stop - start, self.shape[1])
        rows.codes, rows.scales = (whole[start:stop].named_after(whole, suffix) for whole in (self.codes, self.scales))
        return rows

    def extra_repr(self) -> str:
        inputs = "" if self.activations is None else f", activations={self.activations!r}"
        return f"{self.shape[0]}, {self.shape[1]}{inputs}"
