"""Weights that are stored in another way than as a parameter, and the functions that take both."""

from __future__ import annotations

import copy
from typing import Any, NoReturn, Self, TypeVar, cast

from lucid import ops
from lucid.core.graph.types import DType
from lucid.core.sizes.dims import Dim, Size
from lucid.core.torch_names.arguments import torch_names, torch_names_and
from lucid.nn.module import Module
from lucid.ops.indexing import from_front
from lucid.ops.opaque import Opaque
from lucid.ops.tensor.tensor import Tensor


class StoredWeight(Opaque, Module):
    """What `F.linear` and `F.embedding` accept in the place of a parameter (N, K): it multiplies and gives rows in its
    own way. Its parameters have the rows of the weight as their first axis.

    Everything else that reads a parameter, such as `weight.mT`, is an error.

    Attributes:
        shape: of the weight that it stands for: (N outputs, K inputs), or (entries, width) of a table.
        bits: of one of its numbers.
    """

    shape: tuple[Any, ...]
    bits: int
    is_traced = True  # no array holds its rows, so `Tensor.part_of` names none after it

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

    def part(self, start: int, stop: int, suffix: str) -> Self:
        """The rows from `start` up to `stop` as a weight, whose parameters are named with the suffix in an export."""
        made = copy.copy(self)
        made.shape = (stop - start, self.shape[1])
        for name, whole in self.state_dict().items():
            setattr(made, name, whole[start:stop].part_of(whole, suffix))
        return made

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

    def refuse(self, asked: str, error: type[Exception] = TypeError) -> NoReturn:
        raise error(
            f"{asked}: got {self!r}, which is no tensor; read it by F.linear(x, weight), F.embedding(indices, weight) "
            'or weight[rows], or keep the parameter of this layer: lucid.quantize(..., skip="path of the layer")'
        )


W = TypeVar("W", bound=Tensor | StoredWeight)


@torch_names
def linear(x: Tensor, weight: Tensor | StoredWeight, bias: Tensor | None = None, *, transposed: bool = False) -> Tensor:
    """x @ weight.T + bias: (..., in) with weight (out, in) to (..., out), or with one row (in) to (...).

    `transposed`: a tensor is stored as (in, out), as GPT-2's are; a `StoredWeight` never is.
    """
    if transposed and isinstance(weight, Tensor):
        product = x @ weight
    elif isinstance(weight, StoredWeight):
        product = weight(x)
    elif isinstance(weight, Tensor) and weight.ndim == 1:
        product = ops.squeeze(ops.linear(x, ops.unsqueeze(weight, 0)), -1)
    else:
        return ops.linear(x, weight, bias)
    return product if bias is None else product + bias


@torch_names_and("padding_idx", "scale_grad_by_freq", "sparse")
def embedding(indices: Tensor, weight: Tensor | StoredWeight) -> Tensor:
    """Rows of a table (entries, width) by index: (...) integers to (..., width).

    Raises:
        IndexError: eagerly, for an index outside the table.
    """
    return weight.rows(indices) if isinstance(weight, StoredWeight) else ops.embedding(indices, weight)


def rows_of(weight: W, start: int, stop: int, suffix: str) -> W:
    """Some rows of a weight as a weight, which has the name of the whole one and the suffix in an exported model."""
    if isinstance(weight, StoredWeight):
        return weight.part(start, stop, suffix)
    return cast(W, weight[start:stop].part_of(weight, suffix))
