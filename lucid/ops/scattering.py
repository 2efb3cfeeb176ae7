"""Reading and writing elements at indices, with torch's names and shapes: gather, scatter, nonzero."""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np

from lucid.core.graph.types import Array, DType, TensorType, broadcast, int64, same_shape, show_shape
from lucid.core.sizes.dims import product, same
from lucid.core.torch_names.argument_names import torch_names
from lucid.ops.creation import arange_op, full, zeros
from lucid.ops.elementwise import maximum
from lucid.ops.elementwise import where as select
from lucid.ops.indexing import take, take_along_op
from lucid.ops.op import function, primitive
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.reduction import cumsum
from lucid.ops.shaping import concat, expand, normalize_axis, reshape, unsqueeze
from lucid.ops.tensor.tensor import Tensor, TensorLike, TracedValueError


def _scatter_rule(x: TensorType, indices: TensorType, values: TensorType, *, axis: int, reduction: str) -> TensorType:
    if x.dtype != values.dtype:
        raise TypeError(f"scatter: got {x} and values {values}, expected one element type; use .astype(...)")
    if reduction != "none" and x.dtype.kind == "bool":
        raise TypeError(f"scatter: got {x} to combine with, expected numbers; convert it with .astype(...)")
    if not same_shape(indices.shape, values.shape):
        raise ValueError(
            f"scatter: indices {show_shape(indices.shape)} and values {show_shape(values.shape)} differ in shape"
        )
    return x


_COMBINED = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_kernel(x: Array, indices: Array, values: Array, *, axis: int, reduction: str) -> Array:
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    if reduction == "none":
        result = x.copy()
        result[tuple(places)] = values
        return result
    wide = x.astype(np.float32 if x.dtype.itemsize == 2 else x.dtype)  # half precision is rounded once, at the end
    _COMBINED[reduction].at(wide, tuple(places), values.astype(wide.dtype))
    return wide.astype(x.dtype, copy=False)


@primitive(kernel=_scatter_kernel, rule=_scatter_rule)
def scatter_op(x: Tensor, indices: Tensor, values: Tensor, *, axis: int, reduction: str = "none") -> Tensor:  # type: ignore[empty-body]
    """x with values written at indices along an axis, or combined with the elements there ("add", "mul", "max", "min").

    The other axes keep their position.
    """


def _placed(where: str, x: Tensor, axis: int, indices: TensorLike) -> tuple[Tensor, int]:
    """The indices as int64, and the axis counted from the front.

    Raises:
        IndexError: eagerly, for indices below 0.
        TypeError: for indices that are not integers.
        ValueError: for indices with another number of axes than x.
    """
    picks = as_tensor(where, indices)
    if picks.dtype.kind != "int":
        raise TypeError(f"{where}: indices are {picks.spec}, expected integers; use .long()")
    if picks.ndim != x.ndim:
        raise ValueError(
            f"{where}: indices {show_shape(picks.shape)} have {picks.ndim} axes, expected the {x.ndim} of "
            f"{show_shape(x.shape)}"
        )
    _check_not_negative(where, picks)
    return picks.astype(int64), normalize_axis(where, axis, x.ndim)


def _check_not_negative(where: str, picks: Tensor) -> None:
    """Refuse known indices below 0, as torch does. NumPy and ONNX would count them from the end."""
    if not picks.is_traced and picks.numpy().size and picks.numpy().min() < 0:
        raise IndexError(f"{where}: got the index {picks.numpy().min()}, expected 0 or more; write index % size")


def cut_to(x: Tensor, other: Tensor, axis: int | None = None) -> Tensor:
    """The first elements of each axis except `axis`, as many as another tensor has."""
    cuts = tuple(
        slice(None) if i == axis or same(a, b) else slice(b)
        for i, (a, b) in enumerate(zip(x.shape, other.shape, strict=True))
    )
    return x if all(cut == slice(None) for cut in cuts) else x[cuts]


@function
def index_select(x: Tensor, axis: int, indices: TensorLike) -> Tensor:
    """Elements of an axis by a vector of indices, or one of them by a number; x without axes is one element.

    Raises:
        IndexError: eagerly, for an index below 0 or out of range.
        TypeError: for indices that are not integers.
        ValueError: for indices of more than one axis.
    """
    picks = as_tensor("index_select", indices)
    if picks.ndim > 1:
        raise ValueError(f"index_select: indices are {picks.spec}, expected a vector; lucid.ops.take has others")
    _check_not_negative("index_select", picks)
    if not x.ndim:
        return take(reshape(x, (1,)), reshape(picks, ()), axis)
    return take(x, picks if picks.ndim else reshape(picks, (1,)), axis)


@function
def gather(x: Tensor, axis: int, indices: TensorLike) -> Tensor:
    """For each position of `indices`, the element of x at that position with the axis replaced by the index.

    `indices` may be smaller than x along the other axes.

    Raises:
        IndexError: eagerly, for an index below 0 or out of range.
        TypeError: for indices that are not integers.
        ValueError: for indices with another number of axes than x.
    """
    picks, axis = _placed("gather", x, axis, indices)
    return take_along_op(cut_to(x, picks, axis), picks, axis=axis)


@function
def scatter(x: Tensor, axis: int, indices: TensorLike, src: TensorLike) -> Tensor:
    """x with the elements of `src`, or one number, at the places that `indices` name along an axis.

    Of several values for one place, the last one stays.

    Raises:
        IndexError: eagerly, for an index below 0 or out of range.
        TypeError: for indices that are not integers, or values of another element type.
        ValueError: for indices with another number of axes than x.
    """
    picks, axis = _placed("scatter", x, axis, indices)
    if isinstance(src, (bool, int, float, np.generic)):
        return scatter_op(x, picks, full(picks.shape, src, x.dtype), axis=axis)
    return scatter_op(x, picks, cut_to(as_tensor("scatter", src), picks), axis=axis)


@function
def scatter_add(x: Tensor, axis: int, indices: TensorLike, src: Tensor) -> Tensor:
    """x with the elements of `src` added at the places that `indices` name along an axis.

    Raises:
        IndexError: eagerly, for an index below 0 or out of range.
        TypeError: for indices that are not integers, or values of another element type.
        ValueError: for indices with another number of axes than x.
    """
    picks, axis = _placed("scatter_add", x, axis, indices)
    return scatter_op(x, picks, cut_to(as_tensor("scatter_add", src), picks), axis=axis, reduction="add")


_REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@function
def scatter_reduce(
    x: Tensor, axis: int, indices: TensorLike, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """x with the elements of `src` combined at the places that `indices` name along an axis.

    Args:
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: whether the element of x at a place counts too.

    Raises:
        IndexError: eagerly, for an index below 0 or out of range.
        TypeError: for indices that are not integers, or values of another element type.
        ValueError: for indices with another number of axes than x, or another `reduce`.
    """
    if reduce not in _REDUCTIONS:
        raise ValueError(f"scatter_reduce: reduce is {reduce!r}, expected one of {', '.join(_REDUCTIONS)}")
    values = as_tensor("scatter_reduce", src)
    if not x.ndim:  # one element, as in torch
        one = as_tensor("scatter_reduce", indices).reshape(1)
        return scatter_reduce(x.reshape(1), 0, one, values.reshape(1), reduce, include_self=include_self)[0]
    picks, axis = _placed("scatter_reduce", x, axis, indices)
    values = cut_to(values, picks)
    start = x if include_self else scatter(x, axis, picks, neutral(reduce, x.dtype))
    result = scatter_op(start, picks, values, axis=axis, reduction=_REDUCTIONS[reduce])
    if reduce == "mean":
        ones = full(x.shape, 1, x.dtype)
        counted = ones if include_self else scatter(ones, axis, picks, 0)
        counts = maximum(scatter_add(counted, axis, picks, full(picks.shape, 1, x.dtype)), 1)
        result = result / counts if x.dtype.kind == "float" else result // counts
    return result


def neutral(reduce: str, dtype: DType) -> int | float:
    """The number that changes no result of a reduction of `scatter_reduce`."""
    if reduce not in ("amax", "amin"):
        return int(reduce == "prod")
    if dtype.kind == "bool":
        return reduce == "amin"
    if dtype.kind == "float":
        return -math.inf if reduce == "amax" else math.inf
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if reduce == "amax" else limits.max)


@function
def index_add(x: Tensor, axis: int, indices: TensorLike, source: Tensor) -> Tensor:
    """x with slices of `source` added at the indices of an axis, a vector with one for each slice.

    Raises:
        IndexError: eagerly, for an index below 0 or out of range.
        TypeError: for indices that are not integers, or values of another element type.
        ValueError: for indices that are not a vector, or slices of another shape.
    """
    picks = as_tensor("index_add", indices)
    if not x.ndim and not source.ndim:  # one element, as in torch
        return reshape(index_add(reshape(x, (1,)), axis, reshape(picks, (1,)), reshape(source, (1,))), ())
    axis = normalize_axis("index_add", axis, x.ndim)
    picks = picks if picks.ndim else reshape(picks, (1,))
    if picks.ndim != 1:
        raise ValueError(f"index_add: indices have shape {show_shape(picks.shape)}, expected a vector")
    picks = unsqueeze(picks, tuple(i for i in range(x.ndim) if i != axis))
    picks, axis = _placed("index_add", x, axis, picks)
    shape = (*x.shape[:axis], picks.shape[axis], *x.shape[axis + 1 :])
    if not same_shape(source.shape, shape):
        raise ValueError(f"index_add: source has shape {show_shape(source.shape)}, expected {show_shape(shape)}")
    return scatter_op(x, expand(picks, shape), source, axis=axis, reduction="add")


@function
def masked_scatter(x: Tensor, mask: TensorLike, source: Tensor) -> Tensor:
    """x with the elements of `source`, in order, where the mask is true; the mask broadcasts to x.

    Raises:
        TypeError: for a mask that is not boolean, or values of another element type.
        ValueError: eagerly, for fewer values than true elements of the mask.
    """
    chosen = as_tensor("masked_scatter", mask)
    if chosen.dtype.kind != "bool" or source.dtype != x.dtype:
        raise TypeError(
            f"masked_scatter: got a mask {chosen.spec} and values {source.spec}, expected a boolean mask and values of "
            f"{x.dtype}"
        )
    chosen = expand(chosen, broadcast("masked_scatter", chosen.shape, x.shape))
    if not chosen.is_traced and not source.is_traced and chosen.numpy().sum() > source.numpy().size:
        raise ValueError(
            f"masked_scatter: the mask is true {chosen.numpy().sum()} times, but there are {source.numpy().size} values"
        )
    # The n-th true element takes value n - 1. One more value keeps the indices of the rest in range.
    count = cumsum(reshape(chosen, (-1,)), axis=0)
    values = concat([zeros(1, dtype=source.dtype), reshape(source, (-1,))])
    return select(chosen, reshape(take(values, count), chosen.shape), expand(x, chosen.shape))


@function
def nonzero(x: Tensor, as_tuple: bool = False) -> Any:
    """The indices (count, axes) of the elements that are not 0; `as_tuple`: one vector for each axis.

    Raises:
        TracedValueError: while the tensor is traced.
    """
    if x.is_traced:
        raise TracedValueError(
            f"nonzero() of a traced {x.spec}: how many elements it finds is known only when the model runs. Choose by "
            "a mask with lucid.where(mask, x, 0) or x.masked_scatter(mask, values), give a number, "
            "lucid.argwhere(x, size=n), or make the indices outside of the model and give them as an input"
        )
    if not as_tuple:
        return Tensor(np.argwhere(x.numpy()).astype(np.int64))
    return tuple(Tensor(places.astype(np.int64)) for places in np.nonzero(np.atleast_1d(x.numpy())))


@overload
def where(condition: TensorLike) -> tuple[Tensor, ...]: ...
@overload
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor: ...
@torch_names
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where the condition is true, else y; all three broadcast.

    The condition alone gives the indices of its true elements, one vector for each axis (`nonzero`).

    Raises:
        TracedValueError: for the condition alone while it is traced, as the number of indices is then unknown.
    """
    if x is None and y is None:
        return nonzero(as_tensor("where", condition), as_tuple=True)
    return select(condition, x, y)


@function
def put_at(x: Tensor, index: Any, value: TensorLike, add: bool = False) -> Tensor:
    """x with a value at x[index], in place of the elements or added to them; the value broadcasts to x[index].

    The value takes the element type of x, as in torch's ``x[index] = value``. Of several values for one place the last
    one stays; with `add` all of them are added. A mask of the first axes takes one value for each of its true elements,
    in order, or what broadcasts to the other axes.

    Raises:
        IndexError, TypeError, ValueError: as for ``x[index]``, and for values that do not broadcast to it.
    """
    source = as_tensor("at", value, x.dtype).astype(x.dtype)
    mask = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if isinstance(mask, (Tensor, np.ndarray)) and as_tensor("at", mask).dtype.kind == "bool":
        mask = as_tensor("at", mask)
        others = x.ndim - mask.ndim
        if others < 0:
            raise IndexError(f"at: the mask has shape {show_shape(mask.shape)}, and x {show_shape(x.shape)}")
        places = unsqueeze(mask, tuple(range(mask.ndim, x.ndim))) if others else mask
        if source.ndim <= others:
            return select(places, x + source if add else source, x)
        return masked_scatter(x, places, x[mask] + source if add else source)
    places = reshape(arange_op(start=0, stop=product(x.shape)), x.shape)[index]
    source = reshape(expand(source, places.shape), (-1,))
    flat = reshape(x, (-1,))
    return reshape(
        scatter_op(flat, reshape(places, (-1,)), source, axis=0, reduction="add" if add else "none"), x.shape
    )
