"""Ops that move elements and compute nothing: shape, order, joining and splitting, copies.

Each family is a strict primitive (all sizes resolved) and a convenience function that calls it (-1, axes counted from
the end, numbers or lists), which is also the method of `Tensor`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid.core.graph.types import Array, DType, TensorType, broadcast, same_shape, show_shape
from lucid.core.graph.types import normalize_axis as normalize_axis
from lucid.core.sizes.dims import Shape, Size, as_multiples, as_size, product, same
from lucid.ops.op import function, primitive
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.tensor.tensor import Axes, Tensor, TensorLike


def each_axis(axes: int | Sequence[int]) -> tuple[int, ...]:
    """One axis or several as a tuple."""
    return tuple(axes) if isinstance(axes, Sequence) else (axes,)


# shape ------------------------------------------------------------------------------------------------------------


@primitive(kernel=lambda x, *, shape: x.reshape(shape), rule=lambda x, *, shape: x.with_shape(shape))
def reshape_op(x: Tensor, *, shape: Shape) -> Tensor:  # type: ignore[empty-body]
    """The same elements in another shape."""


@function
def reshape(x: Tensor, shape: Sequence[Size]) -> Tensor:
    """The same elements in another shape; one size may be -1 and is inferred from the others.

    Raises:
        TypeError: for an element type: torch's `view` reinterprets the bits.
        ValueError: if the numbers of elements differ.
    """
    if shape and isinstance(shape[0], DType):
        raise TypeError(
            f"reshape: got the element type {shape[0]}, expected sizes; x.to(lucid.{shape[0]}) converts numbers; "
            "their bits cannot be read as another type"
        )
    shape = target = [as_size("reshape", size) for size in shape]
    unknown = [axis for axis, size in enumerate(shape) if same(size, -1)]
    total, known = product(x.shape), product(size for size in shape if not same(size, -1))
    fits = len(unknown) <= 1
    if len(unknown) == 1:
        fits = not same(known, 0) and same(total % known, 0)
        inferred = total // known if fits else 0
        shape = [inferred if axis in unknown else size for axis, size in enumerate(shape)]
    elif fits:
        fits = same(total, known)
    if not fits:
        raise ValueError(
            f"reshape: {show_shape(x.shape)} has {total} elements, {show_shape(target)} does not hold as many"
            + (f": {total} is no multiple of {known}" if len(unknown) == 1 else "")
            + (": only one size may be -1" if len(unknown) > 1 else "")
            + as_multiples(target)
        )
    return x if same_shape(shape, x.shape) else reshape_op(x, shape=tuple(shape))


@function
def flatten(x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """Join the axes from `start` to `end` (both included) into one.

    Raises:
        ValueError: for a start after the end.
        IndexError: for an axis that x does not have.
    """
    if x.ndim == 0:
        for axis in (start, end):
            normalize_axis("flatten", axis, 1)
        return reshape(x, (1,))
    first, last = normalize_axis("flatten", start, x.ndim), normalize_axis("flatten", end, x.ndim)
    if first > last:
        raise ValueError(f"flatten: start {start} is after end {end} in a tensor of {x.ndim} axes")
    return reshape(x, (*x.shape[:first], product(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def _squeeze_rule(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    for axis in axes:
        if not same(x.shape[axis], 1):
            raise ValueError(f"squeeze: axis {axis} of {show_shape(x.shape)} has size {x.shape[axis]}, expected 1")
    return x.with_shape([size for axis, size in enumerate(x.shape) if axis not in axes])


@primitive(kernel=lambda x, *, axes: np.squeeze(x, axes), rule=_squeeze_rule)
def squeeze_op(x: Tensor, *, axes: tuple[int, ...]) -> Tensor:  # type: ignore[empty-body]
    """Drop the given axes, all of size 1."""


@function
def squeeze(x: Tensor, axis: Axes = None) -> Tensor:
    """Drop axes of size 1: of the given ones, or by default of all whose size is certainly 1. Others stay.

    Raises:
        ValueError: for a given axis of symbolic size: only running the exported model tells whether it is 1.
    """
    if axis is None:
        axes = [i for i, size in enumerate(x.shape) if same(size, 1)]
    else:
        named = [normalize_axis("squeeze", a, x.ndim) for a in each_axis(axis)]
        for a in named:
            if not isinstance(x.shape[a], int):
                raise ValueError(
                    f"squeeze: axis {a} of {show_shape(x.shape)} has size {x.shape[a]}, and whether that is 1 is known "
                    "only at run time: leave the axis, write x.select(axis, 0) for its first element, or fix the size "
                    "with a number"
                )
        axes = [a for a in named if x.shape[a] == 1]
    return squeeze_op(x, axes=tuple(axes)) if axes else x


def _unsqueeze_rule(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    sizes = iter(x.shape)
    return x.with_shape([1 if axis in axes else next(sizes) for axis in range(x.rank + len(axes))])


@primitive(kernel=lambda x, *, axes: np.expand_dims(x, axes), rule=_unsqueeze_rule)
def unsqueeze_op(x: Tensor, *, axes: tuple[int, ...]) -> Tensor:  # type: ignore[empty-body]
    """Insert axes of size 1, counted in the result."""


@function
def unsqueeze(x: Tensor, axis: Axes) -> Tensor:
    """Insert axes of size 1, counted in the result."""
    axes = () if axis is None else each_axis(axis)
    places = sorted(normalize_axis("unsqueeze", a, x.ndim + len(axes)) for a in axes)
    return unsqueeze_op(x, axes=tuple(places)) if places else x


# order and copies -------------------------------------------------------------------------------------------------


@primitive(
    kernel=lambda x, *, axes: x.transpose(axes), rule=lambda x, *, axes: x.with_shape([x.shape[axis] for axis in axes])
)
def permute_op(x: Tensor, *, axes: tuple[int, ...]) -> Tensor:  # type: ignore[empty-body]
    """Axis i of the result is axis axes[i] of x."""


@function
def permute(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Reorder all axes.

    Raises:
        ValueError: if `axes` is not a permutation of them.
    """
    order = tuple(normalize_axis("permute", axis, x.ndim) for axis in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(
            f"permute: axes {tuple(axes)} are not a permutation of the {x.ndim} axes of {show_shape(x.shape)}"
        )
    return x if order == tuple(range(x.ndim)) else permute_op(x, axes=order)


@function
def transpose(x: Tensor, axis0: int, axis1: int) -> Tensor:
    """Exchange two axes."""
    order = list(range(x.ndim))
    first, second = normalize_axis("transpose", axis0, x.ndim), normalize_axis("transpose", axis1, x.ndim)
    order[first], order[second] = second, first
    return permute(x, order)


def _expand_rule(x: TensorType, *, shape: Shape) -> TensorType:
    if not same_shape(broadcast("expand", x.shape, shape), shape):
        raise ValueError(f"expand: {show_shape(x.shape)} does not broadcast to {show_shape(shape)}")
    return x.with_shape(shape)


@primitive(kernel=lambda x, *, shape: np.broadcast_to(x, shape), rule=_expand_rule)
def expand_op(x: Tensor, *, shape: Shape) -> Tensor:  # type: ignore[empty-body]
    """Repeat axes of size 1 up to the given shape."""


@function
def expand(x: Tensor, shape: Sequence[Size]) -> Tensor:
    """Repeat axes of size 1 up to a shape; -1 keeps a size, new axes are leading.

    Raises:
        ValueError: if x does not broadcast to the shape, or for a new axis of size -1.
    """
    offset = len(shape) - x.ndim
    shape = [as_size("expand", size) for size in shape]
    sizes = tuple(x.shape[i - offset] if same(size, -1) and i >= offset else size for i, size in enumerate(shape))
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ValueError(f"expand: {show_shape(shape)}: a new axis needs a size of 0 or more")
    return x if same_shape(sizes, x.shape) else expand_op(x, shape=sizes)


def _tile_rule(x: TensorType, *, repeats: tuple[int, ...]) -> TensorType:
    return x.with_shape([size * times for size, times in zip(x.shape, repeats, strict=True)])


@primitive(kernel=lambda x, *, repeats: np.tile(x, repeats), rule=_tile_rule)
def tile(x: Tensor, *, repeats: tuple[Size, ...]) -> Tensor:  # type: ignore[empty-body]
    """Repeat the tensor along each axis."""


@function
def repeat(x: Tensor, repeats: Sequence[Size]) -> Tensor:
    """Repeat the tensor along each axis; more numbers than axes add leading axes, missing leading numbers are 1.

    Raises:
        ValueError: for a negative number.
    """
    repeats = [as_size("repeat", times) for times in repeats]
    if any(isinstance(times, int) and times < 0 for times in repeats):
        raise ValueError(f"repeat: repeats {tuple(repeats)} has a negative number, expected 0 or more")
    padded = reshape(x, (*([1] * (len(repeats) - x.ndim)), *x.shape))
    repeats = [*[1] * (padded.ndim - len(repeats)), *repeats]
    return padded if all(same(times, 1) for times in repeats) else tile(padded, repeats=tuple(repeats))


def _pad_rule(x: TensorType, *, before: Shape, after: Shape, value: float) -> TensorType:
    if not len(before) == len(after) == x.rank:
        raise ValueError(
            f"pad: before {before} and after {after} need one number for each axis of {show_shape(x.shape)}"
        )
    return x.with_shape([b + size + a for b, size, a in zip(before, x.shape, after, strict=True)])


def _pad_kernel(x: Array, *, before: tuple[int, ...], after: tuple[int, ...], value: float) -> Array:
    return np.pad(x, list(zip(before, after, strict=True)), constant_values=value)


@primitive(kernel=_pad_kernel, rule=_pad_rule)
def pad(x: Tensor, *, before: Shape, after: Shape, value: float = 0.0) -> Tensor:  # type: ignore[empty-body]
    """Add a constant before and after the elements of each axis."""


# joining and splitting -------------------------------------------------------------------------------------------


def _concat_rule(*parts: TensorType, axis: int) -> TensorType:
    first = parts[0]
    total: Size = 0
    for part in parts:
        rest = [size for i, size in enumerate(part.shape) if i != axis]
        if not same_shape(rest, [size for i, size in enumerate(first.shape) if i != axis]):
            shown = " and ".join(show_shape(p.shape) for p in parts)
            raise ValueError(f"concat: shapes {shown} differ in an axis other than {axis}")
        total = total + part.shape[axis]
    return first.with_shape([total if i == axis else size for i, size in enumerate(first.shape)])


@primitive(kernel=lambda *parts, axis: np.concatenate(parts, axis), rule=_concat_rule, promoted=slice(None))
def concat_op(*parts: TensorLike, axis: int) -> Tensor:  # type: ignore[empty-body]
    """Join tensors along an axis, given as an index of 0 or more."""


@function
def concat(parts: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """Join tensors along an axis.

    Raises:
        ValueError: for no tensors, or shapes that differ in another axis.
    """
    tensors = [as_tensor("concat", part) for part in parts]
    if not tensors:
        raise ValueError("concat: got no tensors, expected at least one")
    place = normalize_axis("concat", axis, tensors[0].ndim)
    return concat_op(*tensors, axis=place) if len(tensors) > 1 else tensors[0]


@function
def stack(parts: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis."""
    return concat([unsqueeze(as_tensor("stack", part), axis) for part in parts], axis)


def _split_rule(x: TensorType, *, sizes: Shape, axis: int) -> tuple[TensorType, ...]:
    return tuple(x.with_shape([size if i == axis else n for i, n in enumerate(x.shape)]) for size in sizes)


@primitive(
    kernel=lambda x, *, sizes, axis: tuple(np.split(x, np.cumsum(sizes[:-1], dtype=int), axis)), rule=_split_rule
)
def split_op(x: Tensor, *, sizes: Shape, axis: int) -> tuple[Tensor, ...]:  # type: ignore[empty-body]
    """Split an axis into pieces of the given sizes."""


@function
def split(x: Tensor, sizes: Size | Sequence[Size], axis: int = 0) -> tuple[Tensor, ...]:
    """Split an axis into pieces of one size (the last may be smaller), or of the given sizes.

    Raises:
        ValueError: if the sizes do not add up to that of the axis, or one is negative.
    """
    axis = normalize_axis("split", axis, x.ndim)
    total = x.shape[axis]
    lengths = [as_size("split", size) for size in (sizes if isinstance(sizes, Sequence) else (sizes,))]
    if any(isinstance(size, int) and size < 0 for size in lengths):
        raise ValueError(f"split: sizes {sizes}: a size is negative")
    if not isinstance(sizes, Sequence):
        (size,) = lengths
        if same(size, 0):
            raise ValueError("split: got pieces of size 0, expected 1 or more")
        whole, rest = int(total // size), total % size
        lengths = [size] * whole + ([] if same(rest, 0) and whole else [rest])
    sizes = lengths
    if not same(sum(sizes, start=0), total):
        raise ValueError(f"split: sizes {show_shape(sizes)} add up to {sum(sizes, start=0)}, expected {total}")
    if len(sizes) == 1:
        return (x,)
    return split_op(x, sizes=tuple(sizes), axis=axis)


@function
def chunk(x: Tensor, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Split an axis into a number of equal pieces; the last is smaller if the size is not a multiple.

    Raises:
        ValueError: for less than 1 chunk.
    """
    if chunks < 1:
        raise ValueError(f"chunk: got {chunks} chunks, expected 1 or more")
    size = x.shape[normalize_axis("chunk", axis, x.ndim)]
    if same(size % chunks, 0):
        return split(x, [size // chunks] * chunks, axis)
    return split(x, -(-size // chunks), axis)
