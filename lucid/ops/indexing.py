"""Indexing: slices, gathers and the ``x[...]`` notation made of them."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from lucid.core.graph.types import Array, TensorType, broadcast, int64, show_shape
from lucid.core.sizes.dims import Dim, Shape, Size, SymbolicSizeError, same
from lucid.core.torch_names.argument_names import torch_names
from lucid.core.words.other_libraries import type_name
from lucid.ops.op import function, primitive
from lucid.ops.shaping import concat, expand, normalize_axis, permute, reshape, squeeze, unsqueeze
from lucid.ops.tensor.tensor import Tensor, TensorLike


class Cut(NamedTuple):
    """A slice of one axis, with no negative axis or index. A negative step runs from `start` down to `stop + 1`."""

    axis: int
    start: Size
    stop: Size
    step: int

    @property
    def length(self) -> Size:
        """The number of elements it selects."""
        return -(-(self.stop - self.start) // self.step)


def _slice_rule(x: TensorType, *, cuts: tuple[Cut, ...]) -> TensorType:
    shape = list(x.shape)
    for cut in cuts:
        shape[cut.axis] = cut.length
    return x.with_shape(shape)


def _slice_kernel(x: Array, *, cuts: tuple[Cut, ...]) -> Array:
    index = [slice(None)] * x.ndim
    for axis, start, stop, step in cuts:
        index[axis] = slice(start, None if stop < 0 else stop, step)
    return x[tuple(index)]


@primitive(kernel=_slice_kernel, rule=_slice_rule)
def slice_op(x: Tensor, *, cuts: tuple[Cut, ...]) -> Tensor:  # type: ignore[empty-body]
    """Slices of some axes."""


def _take_rule(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    _check_integers("take", indices)
    return x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@primitive(kernel=lambda x, indices, *, axis: np.take(x, indices, axis), rule=_take_rule)
def take_op(x: Tensor, indices: TensorLike, *, axis: int) -> Tensor:  # type: ignore[empty-body]
    """Elements of an axis by their index; negative ones count from the end."""


@function
def take(x: Tensor, indices: TensorLike, axis: int = 0) -> Tensor:
    """Elements of an axis by their index: the shape of `indices` replaces the axis.

    Raises:
        IndexError: eagerly, for an index out of range.
        TypeError: for indices that are not integers.
    """
    return take_op(x, _as_indices(indices), axis=normalize_axis("take", axis, x.ndim))


@torch_names
def take_elements(x: Tensor, indices: TensorLike, axis: int | None = None) -> Tensor:
    """`lucid.take`, as in torch and NumPy: without an axis, elements of the flattened tensor; else `lucid.ops.take`."""
    return take(reshape(x, (-1,)), indices, 0) if axis is None else take(x, indices, axis)


def _as_indices(indices: TensorLike) -> Tensor:
    picks = indices if isinstance(indices, Tensor) else Tensor(indices, None)
    small = picks.dtype.kind == "int" and picks.dtype.itemsize < 4  # ONNX takes only int32 and int64 indices
    return picks.astype(int64) if small else picks


def _take_along_rule(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    _check_integers("take_along", indices)
    return x.with_shape(indices.shape)


@primitive(
    kernel=lambda x, indices, *, axis: np.take_along_axis(x, indices, axis),
    rule=_take_along_rule,
    onnx="GatherElements",
)
def take_along_op(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:  # type: ignore[empty-body]
    """Elements by their index along an axis, for each position of `indices`; the other axes have the same sizes."""


@function
def take_along(x: Tensor, indices: TensorLike, *, axis: int) -> Tensor:
    """For each position of `indices`, the element of x at that position with the axis replaced by the index.

    The other axes broadcast, as in NumPy's take_along_axis.

    Raises:
        IndexError: eagerly, for an index out of range.
        TypeError: for indices that are not integers.
        ValueError: for indices with another number of axes than x, or sizes that do not broadcast.
    """
    picks, axis = _as_indices(indices), normalize_axis("take_along", axis, x.ndim)
    if picks.ndim != x.ndim:
        raise ValueError(
            f"take_along: indices {show_shape(picks.shape)} have {picks.ndim} axes, expected the {x.ndim} of "
            f"{show_shape(x.shape)}"
        )
    others = [(*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (x, picks)]
    shape = broadcast("take_along", *others)
    x, picks = (expand(t, (*shape[:axis], t.shape[axis], *shape[axis + 1 :])) for t in (x, picks))
    return take_along_op(x, picks, axis=axis)


def _gather_nd_rule(x: TensorType, indices: TensorType) -> TensorType:
    _check_integers("gather_nd", indices)
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    return x.with_shape((*indices.shape[:-1], *x.shape[depth:]))


@primitive(
    kernel=lambda x, indices: np.asarray(x[tuple(np.moveaxis(indices, -1, 0))]), rule=_gather_nd_rule, onnx="GatherND"
)
def gather_nd(x: Tensor, indices: TensorLike) -> Tensor:  # type: ignore[empty-body]
    """Elements of the leading axes by index tuples, which run along the last axis of `indices` (int64)."""


def _check_integers(name: str, indices: TensorType) -> None:
    if indices.dtype.kind != "int":
        raise TypeError(
            f"{name}: indices are {indices}, expected integers; use .astype(lucid.int64), or for an input of the model "
            "lucid.spec(..., dtype=lucid.int64)"
        )


@function
def getitem(x: Tensor, index: Any) -> Tensor:
    """``x[index]`` with integers, slices, None, ``...``, integer tensors and (eagerly) boolean tensors, as in torch.

    The axes that tensors select stand in the place of the first tensor, or in front if a slice, None or ``...`` is
    between the tensors. Integers, and tensors without axes, select before that, where NumPy counts them as tensors:
    ``x[0, :, indices]`` is ``x[0][:, indices]``.

    On an axis of symbolic size, a bound given as a number is assumed to be in range; a bound -L counts from the end, so
    L is assumed to be 1 or more, and a difference such as L - 4 from the front, so it is assumed to be 0 or more.

    Raises:
        IndexError: for too many indices or one that is out of range.
        TypeError: for an index of another kind, or a boolean tensor while tracing, which selects an unknown number of
            elements.
    """
    items = _complete(x, index if isinstance(index, tuple) else (index,))
    cuts: list[Cut] = []
    dropped: list[int] = []
    added: list[int] = []
    tensors: dict[int, Tensor] = {}  # by axis after slices, dropped axes and new axes
    axis = kept = 0
    for item in items:
        if item is ...:
            continue
        if item is None:
            added.append(kept)
        elif isinstance(item, Tensor):
            tensors[kept] = item
        else:
            cut = _cut(x, axis, item)
            if not same(cut.length, x.shape[axis]) or cut.step != 1:
                cuts.append(cut)
            if not isinstance(item, slice):
                dropped.append(axis)
        kept += not isinstance(item, (int, Dim))
        axis += item is not None
    result = slice_op(x, cuts=tuple(cuts)) if cuts else x
    result = squeeze(result, dropped) if dropped else result
    result = unsqueeze(result, added) if added else result
    return _gather(result, tensors) if tensors else result


def _place(tensors: dict[int, Tensor]) -> int:
    """The position of the axes that tensors select, as in torch, where numbers select before tensors do.

    It is that of the first tensor, or in front if a slice, None or ... separates the tensors.
    """
    dropped = [axis for axis, tensor in tensors.items() if not tensor.ndim]
    places = [axis - sum(gone < axis for gone in dropped) for axis, tensor in tensors.items() if tensor.ndim]
    return 0 if not places or places[-1] - places[0] >= len(places) else places[0]


def _complete(x: Tensor, index: tuple[Any, ...]) -> list[Any]:
    """One item per axis, plus None and ..., with masks as integer tensors and full slices for a ... in the middle.

    Axes after the last item are left alone.
    """
    if len(index) <= x.ndim and all(item.__class__ is slice or item.__class__ is int for item in index):
        return list(index)
    items: list[Any] = []
    for item in index:
        if isinstance(item, (list, np.ndarray)) or (isinstance(item, np.generic) and item.ndim):
            array = np.asarray(item)
            item = Tensor(array.astype(np.int64) if isinstance(item, list) and not array.size else array)
        if isinstance(item, bool):
            raise TypeError(
                f"indexing: got bool: {item} adds an axis in torch; write x[None], or x[None][:0] for False"
            )
        if not isinstance(item, (int, np.integer, Dim, slice, Tensor, type(None), type(...))):
            raise TypeError(
                f"indexing: got {type_name(item)}, expected an integer, a slice, None, ... or an integer tensor"
            )
        if isinstance(item, Tensor) and item.dtype.kind == "float":
            raise TypeError(f"indexing: got a tensor of {item.dtype}, expected integers or booleans")
        items.append(int(item) if isinstance(item, np.integer) else item)
    used = sum(_count_axes(item) for item in items)
    if used > x.ndim or sum(item is ... for item in items) > 1:
        raise IndexError(f"indexing: {used} indices for the {x.ndim} axes of {show_shape(x.shape)}")
    where = next((i for i, item in enumerate(items) if item is ...), len(items))
    between = [slice(None)] * (x.ndim - used) if where + 1 < len(items) else []
    complete: list[Any] = []
    axis = 0
    for item in items[: where + 1] + between + items[where + 1 :]:
        mask = isinstance(item, Tensor) and item.dtype.kind == "bool"
        complete.extend(_positions(item, x.shape[axis : axis + item.ndim]) if mask else [item])
        axis += _count_axes(item)
    return complete


def _count_axes(item: Any) -> int:
    """The number of axes that an item of an index takes."""
    if isinstance(item, Tensor) and item.dtype.kind == "bool":
        return item.ndim
    return int(item is not None and item is not ...)


def _positions(mask: Tensor, sizes: Shape) -> list[Tensor]:
    """The indices at which a boolean mask is true: one integer tensor per axis."""
    if mask.is_traced:
        raise TypeError(
            "indexing: a traced boolean mask selects a number of elements that is unknown while tracing; "
            "use lucid.where(mask, x, 0) or x.masked_fill(mask, value)"
        )
    if not mask.ndim:
        raise TypeError(
            "indexing: got a boolean without axes, expected a mask over axes; use lucid.where(condition, a, b)"
        )
    if any(isinstance(size, int) and size != n for size, n in zip(sizes, mask.numpy().shape, strict=True)):
        raise IndexError(
            f"indexing: got a mask of shape {show_shape(mask.shape)}, expected {show_shape(sizes)} as its axes"
        )
    return [Tensor(positions) for positions in np.nonzero(mask.numpy())]


def from_front(position: Size, size: Size) -> Size:
    """A position counted from the front. Negative ones count from the end, also -L, with L taken as 1 or more."""
    try:
        negative = position <= 0 if isinstance(position, Dim) else position < 0
    except SymbolicSizeError:  # it is known only at run time
        negative = False
    return size + position if negative else position


def _bound(position: Any) -> Any:
    return position.to_size() if isinstance(position, Tensor) else position


def _cut(x: Tensor, axis: int, item: int | Dim | slice) -> Cut:
    size = x.shape[axis]
    if not isinstance(item, slice):
        start = from_front(item, size)
        if isinstance(start, int) and (start < 0 or (isinstance(size, int) and start >= size)):
            raise IndexError(f"indexing: {item} is out of range for axis {axis} of {show_shape(x.shape)}")
        return Cut(axis, start, start + 1, 1)
    step = 1 if item.step is None else operator.index(item.step)
    item = slice(_bound(item.start), _bound(item.stop), step)
    if step == 0:
        raise ValueError("indexing: a slice has step 0")
    if isinstance(size, int) and not isinstance(item.start, Dim) and not isinstance(item.stop, Dim):
        start, stop, step = item.indices(size)
        if step < 0 and start < 0:  # before the first element: nothing, where -1 would be the last one
            return Cut(axis, 0, 0, 1)
        return Cut(axis, start, max(start, stop) if step > 0 else min(start, stop), step)
    if step < 0 and (item.start is not None or item.stop is not None):
        raise ValueError(f"indexing: a step of {step} with bounds needs a known size; axis {axis} has {size}")
    if step < 0:
        return Cut(axis, size - 1, -1, step)
    start = 0 if item.start is None else from_front(item.start, size)
    return Cut(axis, start, size if item.stop is None else from_front(item.stop, size), step)


def _gather(x: Tensor, tensors: dict[int, Tensor]) -> Tensor:
    """Select by one integer tensor per axis."""
    axes, place = list(tensors), _place(tensors)
    if len(axes) == 1:
        picked, at, width = take(x, tensors[axes[0]], axes[0]), axes[0], tensors[axes[0]].ndim
    else:  # make the axes leading, with the index tuples along a new last axis
        shape = broadcast("indexing", *(t.shape for t in tensors.values()))
        indices = concat([unsqueeze(expand(t.astype(int64), shape), -1) for t in tensors.values()], -1)
        rest = [axis for axis in range(x.ndim) if axis not in axes]
        picked, at, width = gather_nd(permute(x, axes + rest), indices), 0, len(shape)
    others = [axis for axis in range(picked.ndim) if not at <= axis < at + width]
    return permute(picked, others[:place] + list(range(at, at + width)) + others[place:])
