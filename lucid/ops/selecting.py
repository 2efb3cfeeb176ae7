"""Elements by their rank or by a mask, and their places: medians, quantiles, searches, masked selections.

How many elements a mask selects is known only when it runs. Traced, these functions take that number as `size`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid.core.graph.scope import is_differentiated
from lucid.core.graph.types import bool_, broadcast, int32, int64
from lucid.core.sizes.dims import Size, as_size, product, same, sym_max
from lucid.core.torch_names.argument_names import torch_names_and
from lucid.ops.composed import lerp
from lucid.ops.creation import arange, full
from lucid.ops.elementwise import ceil, floor, isfinite, isnan, minimum, round_, stop_gradient, where
from lucid.ops.indexing import take
from lucid.ops.op import function
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.reduction import any_, argmax, cumsum, max_
from lucid.ops.scattering import nonzero, scatter
from lucid.ops.shaping import expand, flatten, normalize_axis, reshape, squeeze, stack, unsqueeze
from lucid.ops.sorting import Ordered, bucketize, sort
from lucid.ops.tensor.tensor import UNUSED, Tensor, TensorLike, TracedValueError

# By rank --------------------------------------------------------------------------------------------------------------


@function
def kthvalue(x: Tensor, k: Size, axis: int = -1, keepdims: bool = False) -> Ordered:
    """The k-th smallest elements along an axis, counted from 1, and their indices; NaN is larger than any number.

    Raises:
        ValueError: for a known k below 1, or above the size of the axis.
    """
    if x.dtype.kind != "float":
        return _ranked("kthvalue", x, k, axis, keepdims)
    numbers = (~isnan(x)).sum(axis if x.ndim else None, keepdims=True)
    return _ranked("kthvalue", x, k, axis, keepdims, numbers < k)


def _ranked(name: str, x: Tensor, k: Size, axis: int, keepdims: bool, missing: Tensor | None = None) -> Ordered:
    """The k-th smallest elements and their indices; where a NaN is `missing`, NaN and the index of the first one."""
    size = x.shape[normalize_axis(name, axis, x.ndim)] if x.ndim else 1
    if isinstance(k, int) and (k < 1 or (isinstance(size, int) and k > size)):
        raise ValueError(f"{name}: element {k} of {size} along axis {axis} of {x.spec}, expected 1 to {size}")
    if not x.ndim:
        return Ordered(x, full((), 0, int64))
    value, index = (each.narrow(axis, k - 1, 1) for each in sort(x, axis))
    if missing is not None:  # in order, NaN is among the infinities
        value = where(missing, math.nan, where(isnan(value), math.inf, value))
        alike = where(missing, isnan(x), x == math.inf)
        index = where(isfinite(value) | (value < 0), index, argmax(alike.astype(int32), axis=axis, keepdims=True))
    return Ordered(value, index) if keepdims else Ordered(squeeze(value, axis), squeeze(index, axis))


@function
def median(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Any:
    """The lower of the elements in the middle: of all, or along an axis with their indices. NaN where there is NaN.

    Raises:
        ValueError: for no elements, except for all of a tensor of numbers with fractions, which give NaN.
    """
    if axis is None:
        nothing = x.dtype.kind == "float" and same(product(x.shape), 0)
        if nothing or not is_differentiated():
            return full((), math.nan, x.dtype) if nothing else median(flatten(x), 0)[0]
        middle = median(flatten(stop_gradient(x)), 0)[0]
        equals = where(x == middle, x, -math.inf)  # elements that are equal to it share the gradient, as in torch
        return where(isnan(middle), middle, max_(equals))
    axis = normalize_axis("median", axis, max(x.ndim, 1))
    missing = any_(isnan(x), axis=(axis,) if x.ndim else None, keepdims=True) if x.dtype.kind == "float" else None
    return _ranked("median", x, (x.shape[axis] + 1) // 2 if x.ndim else 1, axis, keepdims, missing)


@function
def quantile(
    x: Tensor, q: TensorLike, axis: int | None = None, keepdims: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The elements along an axis, or of all, below which the fractions `q` of them are; NaN where there is NaN.

    Args:
        q: a number from 0 to 1, or a vector of them, which is then the first axis of the result.
        interpolation: of a rank between two elements: "linear", "lower", "higher", "midpoint" or "nearest".

    Raises:
        ValueError: for another interpolation, known fractions outside of 0 to 1, or more than a vector of them.
    """
    ways = ("linear", "lower", "higher", "midpoint", "nearest")
    if interpolation not in ways:
        raise ValueError(f"quantile: interpolation is {interpolation!r}, expected one of {', '.join(ways)}")
    fractions = as_tensor("quantile", q, x.dtype).astype(x.dtype)
    known = fractions.numpy() if not fractions.is_traced else np.zeros(0)
    if fractions.ndim > 1 or (known < 0).any() or (known > 1).any():
        raise ValueError(f"quantile: q is {q}, expected a number from 0 to 1, or a vector of them")
    whole = axis is None or not x.ndim
    place = 0 if axis is None or not x.ndim else normalize_axis("quantile", axis, x.ndim)
    rows = reshape(x, (-1,)) if whole else x.movedim(place, -1)
    last = as_tensor("quantile", rows.shape[-1], x.dtype) - 1
    rank = minimum(reshape(fractions, (-1,)) * last, last)
    if interpolation in ("lower", "higher", "nearest"):
        rank = {"lower": floor, "higher": ceil, "nearest": round_}[interpolation](rank)
    below = floor(rank)
    ordered = sort(rows, -1)[0]
    values = take(ordered, below.astype(int64), -1)
    if interpolation in ("linear", "midpoint"):
        above = take(ordered, ceil(rank).astype(int64), -1)
        values = lerp(values, above, 0.5 if interpolation == "midpoint" else rank - below)
    values = where(any_(isnan(rows), axis=(-1,), keepdims=True), math.nan, values)
    values = values.movedim(-1, 0)
    if keepdims and x.ndim:
        values = reshape(values, (-1, *(1,) * x.ndim)) if whole else unsqueeze(values, place + 1)
    return values if fractions.ndim else squeeze(values, 0)


@function
def searchsorted(
    sorted_sequence: Tensor,
    values: TensorLike,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many elements of an ascending row are below each number, or with `right` below or equal: `bucketize` by row.

    Args:
        sorted_sequence: (M), or (..., M) with a row for each of the values (..., K).
        side: "right" is `right`.
        sorter: the indices that sort the rows, if they are not in order.

    Raises:
        ValueError: for another side, or `right` with side "left".
    """
    if side not in (None, "left", "right") or (right and side == "left"):
        raise ValueError(f"searchsorted: side is {side!r} and right {right}, expected 'left' or 'right'")
    rows = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    rows = unsqueeze(rows, -2) if rows.ndim > 1 else rows
    return bucketize(values, rows, out_int32=out_int32, right=right or side == "right")


# By a mask ------------------------------------------------------------------------------------------------------------


def _first(user: str, values: Tensor, chosen: Tensor, size: Size, fill: Any) -> Tensor:
    """The first `size` of the values (n) that are chosen, and then a number."""
    if isinstance(size, int) and size < 0:
        raise ValueError(f"{user}: size is {size}, expected 0 or more")
    place = cumsum(chosen.astype(int64), axis=0) - 1
    place = where(chosen & (place < size), place, size)  # the last one is cut off
    return scatter(full((size + 1,), fill, values.dtype), 0, place, values)[:size]


@function
def masked_select(x: Tensor, mask: TensorLike, *, size: Size | None = None, fill_value: float = 0) -> Tensor:
    """The elements where a mask is true, in a row; both broadcast.

    Args:
        size: how many, while tracing: of more the first ones, and in the place of missing ones `fill_value`.

    Raises:
        TypeError: for a mask that is not boolean.
        TracedValueError: while tracing, without `size`.
    """
    chosen = as_tensor("masked_select", mask)
    if chosen.dtype != bool_:
        raise TypeError(f"masked_select: got a mask {chosen.spec}, expected booleans")
    shape = broadcast("masked_select", x.shape, chosen.shape)
    values, chosen = flatten(expand(x, shape)), flatten(expand(chosen, shape))
    if size is not None:
        return _first("masked_select", values, chosen, as_size("masked_select: size", size), fill_value)
    if chosen.is_traced or values.is_traced:
        raise TracedValueError(
            f"masked_select of a traced {x.spec}: how many elements it selects is known only when the model runs; give "
            "a number, lucid.masked_select(x, mask, size=n), or write lucid.where(mask, x, 0)"
        )
    return values[chosen]


@function
def nonzero_static(x: Tensor, *, size: Size, fill_value: int = -1) -> Tensor:
    """The indices (size, axes) of the first `size` elements that are not 0, and then rows of `fill_value`."""
    chosen = flatten(x != 0)
    count = as_size("nonzero_static: size", size)
    if not x.ndim:
        return full((count, 0), 0, int64)
    places = _first("nonzero_static", arange(product(x.shape)), chosen, count, -1)
    sizes = [sym_max(axis, 1) for axis in x.shape]  # nothing is divided by 0
    return where(unsqueeze(places < 0, 1), fill_value, stack(unravel_index(where(places < 0, 0, places), sizes), -1))


@function
def argwhere(x: Tensor, *, size: Size | None = None, fill_value: int = -1) -> Tensor:
    """The indices (count, axes) of the elements that are not 0; with `size` those of `nonzero_static`.

    Raises:
        TracedValueError: while tracing, without `size`.
    """
    indices: Tensor = nonzero(x) if size is None else nonzero_static(x, size=size, fill_value=fill_value)
    return indices


# Places ---------------------------------------------------------------------------------------------------------------


@function
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The index along each axis of a shape, of indices into its elements in a row (int64)."""
    indices, coordinates = indices.astype(int64), []
    for size in reversed(tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)):
        coordinates.append(indices % size)
        indices = indices // size
    return tuple(reversed(coordinates))


def _triangle(name: str, upper: bool, rows: Size, columns: Size, offset: int, dtype: Any) -> Tensor:
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise TracedValueError(
            f"{name}: got the sizes {rows} and {columns}, which are known only when the model runs; choose by a mask: "
            f"lucid.ones(rows, columns).{name[:4]}()"
        )
    places = np.triu_indices(rows, offset, columns) if upper else np.tril_indices(rows, offset, columns)
    return Tensor(np.stack(places)).astype(dtype)


@torch_names_and(*UNUSED)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64) -> Tensor:
    """The row and the column (2, count) of each element on and above a diagonal of a matrix.

    Raises:
        TracedValueError: for sizes that are known only at run time.
    """
    return _triangle("triu_indices", True, row, col, offset, dtype)


@torch_names_and(*UNUSED)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64) -> Tensor:
    """The row and the column (2, count) of each element on and below a diagonal of a matrix.

    Raises:
        TracedValueError: for sizes that are known only at run time.
    """
    return _triangle("tril_indices", False, row, col, offset, dtype)
