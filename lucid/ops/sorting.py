"""The largest elements along an axis, and elements in order."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from lucid.core.graph.scope import is_differentiated
from lucid.core.graph.types import Array, TensorType, int32, int64, show_shape
from lucid.core.number_ranges import is_whole
from lucid.core.sizes.dims import Size, as_size
from lucid.ops.elementwise import isnan, maximum, minimum, neg
from lucid.ops.indexing import take_along
from lucid.ops.op import function, primitive
from lucid.ops.operand_conversion import as_tensor, known_alike
from lucid.ops.reduction import argmax, max_, min_
from lucid.ops.shaping import normalize_axis, reshape, squeeze
from lucid.ops.tensor.tensor import Tensor, TensorLike


class Ordered(NamedTuple):
    """Elements in order, and where they were along the axis (int64)."""

    values: Tensor
    indices: Tensor


def _topk_rule(x: TensorType, *, k: Size, axis: int, largest: bool) -> tuple[TensorType, TensorType]:
    if x.dtype.kind == "bool":
        raise TypeError(f"topk: got {x}, expected numbers; convert it with .long()")
    size = x.shape[axis]
    if isinstance(k, int) and (k < 0 or (isinstance(size, int) and k > size)):
        raise ValueError(f"topk: k is {k}, expected 0 to {size}, the size of axis {axis} of {show_shape(x.shape)}")
    values = x.with_shape((*x.shape[:axis], k, *x.shape[axis + 1 :]))
    return values, values.with_dtype(int64)


def _topk_kernel(x: Array, *, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    keys = np.where(np.isnan(x), math.inf, x) if x.dtype.kind not in "iub" else x
    if largest:  # by the complement, which exists for the lowest integer too, so that equal elements keep their order
        keys = np.negative(keys) if keys.dtype.kind not in "iu" else np.invert(keys)
    order = np.argsort(keys, axis=axis, kind="stable")
    picks = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, picks, axis), picks.astype(np.int64)


@primitive(kernel=_topk_kernel, rule=_topk_rule)
def topk_op(x: Tensor, *, k: Size, axis: int, largest: bool) -> tuple[Tensor, Tensor]:  # type: ignore[empty-body]
    """The k largest (or least) elements along an axis in order, and their int64 indices.

    Of equal elements the first comes first. NaN counts as infinity.
    """


@function
def topk(x: Tensor, k: Size, axis: int = -1, largest: bool = True, sorted: bool = True) -> Ordered:
    """The k largest (or least) elements along an axis and their indices, always in order.

    Raises:
        TypeError: for a k that is not a whole number.
        ValueError: for more elements than the axis has.
    """
    count = as_size("topk: k", k)
    return Ordered(*topk_op(x, k=count, axis=normalize_axis("topk", axis, x.ndim), largest=largest))


@function
def sort(x: Tensor, axis: int = -1, descending: bool = False) -> Ordered:
    """The elements along an axis in order, and their indices. Equal ones keep their order; NaN counts as infinity."""
    axis = normalize_axis("sort", axis, x.ndim)
    return Ordered(*topk_op(x, k=x.shape[axis], axis=axis, largest=descending))


@function
def argmin(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """The index of the first minimum along an axis."""
    turned = neg(x) if x.dtype.kind == "float" else -1 - x.astype(int64)  # the complement: -lowest does not exist
    return argmax(turned, axis=axis, keepdims=keepdims)


@function
def extreme(
    x: Tensor, name: str, dim: Any, keepdim: bool | None, other: Any, axis: tuple[int, ...] | None, keepdims: bool
) -> Tensor | Ordered:
    """The result of the methods `max` and `min`, with torch's arguments, or with NumPy's `axis` and `keepdims`.

    Raises:
        TypeError: for several axes as `dim`, or arguments of both libraries that exclude each other.
    """
    if other is None and isinstance(dim, (Tensor, np.ndarray)):
        dim, other = None, dim
    if dim is None and keepdim is not None:
        raise TypeError(f"{name}: keepdim without dim; write {name}(keepdims=...) to reduce all axes")
    if other is not None:
        return (maximum if name == "max" else minimum)(x, other)
    if dim is None:
        return (max_ if name == "max" else min_)(x, axis=axis, keepdims=keepdims)
    if axis is not None or not is_whole(dim):
        raise TypeError(
            f"{name}: dim is {dim!r}{'' if axis is None else f' and axis is {axis!r}'}, expected one axis: "
            f"{name}(dim=...) is a pair (values, indices); a{name}(dim=...) gives the values, over several axes too"
        )
    kept = bool(keepdim) or keepdims
    place = argmax if name == "max" else argmin
    if is_differentiated():  # the gradient goes to the element at the index, as in torch
        indices = place(x, axis=dim, keepdims=True)
        pair = take_along(x, indices, axis=dim), indices
        return Ordered(*(pair if kept else (squeeze(each, dim) for each in pair)))
    values = (max_ if name == "max" else min_)(x, axis=(dim,), keepdims=kept)
    return Ordered(values, place(x, axis=dim, keepdims=kept))


@function
def place_of_extreme(x: Tensor, name: str, axis: int | None, keepdims: bool) -> Tensor:
    """The result of the methods `argmax` and `argmin`: without an axis, the index in the flattened tensor."""
    index = argmax if name == "argmax" else argmin
    if axis is not None:
        return index(x, axis=axis, keepdims=keepdims)
    place = index(reshape(x, (-1,)), axis=0)
    return reshape(place, (1,) * x.ndim) if keepdims else place


@function
def bucketize(x: TensorLike, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """How many boundaries, which ascend, are below each number; with `right`, below or equal (int64 or int32).

    NaN is above all of them.
    """
    boundaries = as_tensor("bucketize", boundaries)
    x = as_tensor("bucketize", x, None if isinstance(x, Tensor) else boundaries.dtype)
    dtype = int32 if out_int32 else int64
    if boundaries.ndim == 1 and not x.is_traced and not boundaries.is_traced:  # without a truth for each pair
        bounds, numbers = known_alike(boundaries, x)
        return Tensor(np.searchsorted(bounds, numbers, "right" if right else "left").astype(dtype.numpy))
    x = x.unsqueeze(-1)
    below = boundaries <= x if right else boundaries < x
    below = below | isnan(x) if x.dtype.kind == "float" else below
    return below.sum(-1, dtype=dtype)
