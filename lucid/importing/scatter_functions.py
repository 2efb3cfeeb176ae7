"""Functions of torch's operators that put values at indices and combine them; arguments in ATen's order."""

from __future__ import annotations

from typing import Any

from lucid import ops
from lucid.importing import functions as f
from lucid.nn import functional as F
from lucid.ops.tensor.tensor import Tensor


def index_reduce(
    x: Tensor, axis: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`scatter_reduce` of slices."""
    places = index.reshape(*(-1 if each == axis % x.ndim else 1 for each in range(x.ndim))).expand(*source.shape)
    reduce = {"amax": "amax", "amin": "amin", "mean": "mean", "prod": "prod"}[reduce]
    return ops.scatter_reduce(x, axis, places, source, reduce, include_self=include_self)


def scatter_combined(x: Tensor, axis: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    """`scatter` that adds to the elements or multiplies them."""
    source = source if isinstance(source, Tensor) else ops.full(index.shape, source, x.dtype)
    cut = tuple(slice(0, size) for size in index.shape)
    return ops.scatter_reduce(x, axis, index, source[cut], {"add": "sum", "multiply": "prod"}[reduce])


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Values at indices of the flattened tensor."""
    return f.index_put(x.flatten(), [index.flatten()], source.flatten(), accumulate).reshape(*x.shape)


def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """A diagonal of two axes replaced."""
    moved = x.movedim((axis1, axis2), (-2, -1))
    rows, columns = moved.shape[-2:]
    row, column = ops.arange(rows).unsqueeze(1), ops.arange(columns)
    place = ops.minimum(row if offset >= 0 else column, source.shape[-1] - 1).expand(rows, columns)
    spread = source[..., place]
    return ops.where(column - row == offset, spread, moved).movedim((-2, -1), (axis1, axis2))


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad: bool = False,
    mode: int = 0,
    sparse: bool = False,
    factors: Tensor | None = None,
    include_last: bool = False,
    padding: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums (0), means (1) or maxima (2) of rows of a table in bags, which begin at offsets; the bag of each index, the
    numbers of rows, and the places of maxima, which are not computed.
    """
    result = F.embedding_bag(
        indices,
        weight,
        offsets,
        mode=("sum", "mean", "max")[mode],
        per_sample_weights=factors,
        include_last_offset=include_last,
        padding_idx=None if padding < 0 else padding,
    )
    bags, place = offsets.shape[0] - int(include_last), ops.arange(indices.shape[0])
    bag = (offsets[:bags] <= place.unsqueeze(1)).sum(1) - 1
    inside = (bag == ops.arange(bags).unsqueeze(1)) & (indices != padding)
    if include_last:  # the last offset ends the last bag
        inside = inside & (place < offsets[bags])
    counts = inside.sum(1)
    return result, bag, counts, counts
