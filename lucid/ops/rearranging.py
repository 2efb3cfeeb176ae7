"""Functions that move elements, made of those in `shaping` and `indexing`: rolls, repeats, slices of axes, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid.core.graph.types import bool_, broadcast, int64, show_shape
from lucid.core.sizes.dims import Dim, Size, as_multiples, as_size, product, same
from lucid.core.torch_names.argument_names import torch_names
from lucid.ops.creation import arange_op, size_op
from lucid.ops.elementwise import abs_, maximum, minimum
from lucid.ops.indexing import from_front, take, take_op
from lucid.ops.op import function
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.reduction import cumsum
from lucid.ops.shaping import (
    concat,
    each_axis,
    expand,
    normalize_axis,
    permute,
    reshape,
    split,
    squeeze,
    transpose,
    unsqueeze,
)
from lucid.ops.shaping import pad as pad_op
from lucid.ops.sorting import bucketize
from lucid.ops.tensor.tensor import Tensor, TensorLike, TracedValueError


@function
def flip(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """The elements along one or several axes in reverse order.

    Raises:
        ValueError: for an axis that is named twice.
    """
    places = [normalize_axis("flip", each, x.ndim) for each in each_axis(axis)]
    if len(set(places)) != len(places):
        raise ValueError(f"flip: axis {tuple(each_axis(axis))} names an axis twice")
    return x[tuple(slice(None, None, -1 if place in places else None) for place in range(x.ndim))]


@function
def roll(x: Tensor, shifts: Size | Sequence[Size], axis: int | Sequence[int] | None = None) -> Tensor:
    """The elements moved by `shifts` along axes; those that leave at the end enter at the front.

    Without an axis, all elements are moved as one row.

    Raises:
        ValueError: for another number of shifts than axes.
    """
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shifts, 0), x.shape)
    steps = [as_size("roll", shift) for shift in (shifts if isinstance(shifts, (tuple, list)) else (shifts,))]
    axes = each_axis(axis)
    if len(steps) != len(axes):
        raise ValueError(f"roll: got {len(steps)} shifts for {len(axes)} axes, expected as many")
    for step, place in zip(steps, axes, strict=True):
        x = _rolled(x, step, normalize_axis("roll", place, x.ndim))
    return x


def _rolled(x: Tensor, step: Size, axis: int) -> Tensor:
    size = x.shape[axis]
    if isinstance(step, int) and not step:
        return x
    if isinstance(size, Dim) or isinstance(step, Dim):
        return take(x, (arange_op(start=0, stop=size) - step) % maximum(size_op(size=size), 1), axis)
    step = step % size if size else 0
    if not step:
        return x
    front, back = split(x, [size - step, step], axis)
    return concat([back, front], axis)


@function
def unbind(x: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without it.

    Raises:
        SymbolicSizeError: for an axis whose size is known only at run time.
    """
    axis = normalize_axis("unbind", axis, x.ndim)
    count = x.shape[axis].__index__()
    return tuple(squeeze(slice_, axis) for slice_ in split(x, [1] * count, axis)) if count else ()


@function
def repeat_interleave(
    x: Tensor, repeats: Size | TensorLike, axis: int | None = None, *, output_size: Size | None = None
) -> Tensor:
    """Each element repeated in place, along an axis or (without one) all elements in a row.

    Args:
        repeats: one size for all elements, or a vector with a number for each.
        output_size: the sum of the numbers, where they are computed while tracing.

    Raises:
        TracedValueError: for numbers that are computed while tracing, without `output_size`.
        TypeError: for numbers with fractions.
        ValueError: for another number of repeats than elements, and another `output_size` than their sum.
    """
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    axis = normalize_axis("repeat_interleave", axis, x.ndim)
    size = x.shape[axis]
    if isinstance(repeats, Tensor) and repeats.is_traced:
        if output_size is None:
            raise TracedValueError(
                f"repeat_interleave: repeats are a traced {repeats.spec}, so the size of the result is known only when "
                "the model runs; give their sum as output_size=, or one size for all elements"
            )
        ends = cumsum(expand(repeats, (size,)).astype(int64), axis=0)
        return take(x, bucketize(arange_op(start=0, stop=output_size), ends, right=True), axis)
    if not isinstance(repeats, (int, Dim)):
        counts = np.atleast_1d(np.asarray(repeats))
        if counts.dtype.kind not in "iu":
            raise TypeError(f"repeat_interleave: repeats have dtype {counts.dtype}, expected whole numbers")
        if counts.shape != (1,):
            if counts.ndim != 1 or not same(size, len(counts)):
                raise ValueError(f"repeat_interleave: got repeats of shape {counts.shape}, expected ({size},)")
            _check_total(int(counts.sum()), output_size)
            return take(x, Tensor(np.repeat(np.arange(len(counts)), counts)), axis)
        repeats = int(counts[0])
    if isinstance(repeats, int) and repeats < 0:
        raise ValueError(f"repeat_interleave: repeats is {repeats}, expected 0 or more")
    _check_total(size * repeats, output_size)
    wide = expand(unsqueeze(x, axis + 1), (*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :]))
    return reshape(wide, (*x.shape[:axis], size * repeats, *x.shape[axis + 1 :]))


def _check_total(total: Size, output_size: Size | None) -> None:
    if isinstance(total, int) and isinstance(output_size, int) and total != output_size:
        raise ValueError(f"repeat_interleave: output_size is {output_size}, but the repeats add up to {total}")


@function
def unflatten(x: Tensor, axis: int, sizes: Sequence[Size]) -> Tensor:
    """An axis split into several; one of their sizes may be -1.

    Raises:
        ValueError: for sizes whose product is not the size of the axis.
    """
    axis = normalize_axis("unflatten", axis, x.ndim)
    inner = [as_size("unflatten", size) for size in sizes]
    if any(same(size, -1) for size in inner):
        known = product(size for size in inner if not same(size, -1))
        inner = [x.shape[axis] // known if same(size, -1) else size for size in inner]
    if not same(product(inner), x.shape[axis]):
        raise ValueError(
            f"unflatten: axis {axis} of {show_shape(x.shape)} does not divide into {show_shape(sizes)}"
            + as_multiples(inner)
        )
    return reshape(x, (*x.shape[:axis], *inner, *x.shape[axis + 1 :]))


@function
def narrow(x: Tensor, axis: int, start: Size, length: Size) -> Tensor:
    """`length` elements of an axis from `start` on; a negative start counts from the end.

    Raises:
        IndexError: for elements outside the axis.
    """
    axis = normalize_axis("narrow", axis, x.ndim)
    size = x.shape[axis]
    first = from_front(start, size)
    known = isinstance(size, int) and isinstance(first, int) and isinstance(length, int)
    if known and not 0 <= first <= first + length <= size:
        raise IndexError(f"narrow: {length} elements from {start} are outside axis {axis} of {show_shape(x.shape)}")
    return x[(*[slice(None)] * axis, slice(first, first + length))]


@function
def movedim(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Axes moved to other places; the rest keep their order.

    Raises:
        ValueError: for different numbers of sources and destinations, or an axis named twice.
    """
    pairs = map(each_axis, (source, destination))
    before, after = ([normalize_axis("movedim", axis, x.ndim) for axis in axes] for axes in pairs)
    if len(before) != len(after) or len(set(before)) != len(before) or len(set(after)) != len(after):
        raise ValueError(f"movedim: got source {source} and destination {destination}, expected as many different axes")
    order = [axis for axis in range(x.ndim) if axis not in before]
    for place, axis in sorted(zip(after, before, strict=True)):
        order.insert(place, axis)
    return permute(x, order)


@function
def matrix_transpose(x: Tensor) -> Tensor:
    """A matrix transposed; a vector as it is.

    Raises:
        ValueError: for more than 2 axes.
    """
    if x.ndim > 2:
        raise ValueError(f"t: got {x.spec}, expected at most 2 axes; write x.transpose(axis0, axis1)")
    return transpose(x, 0, 1).named_after(x, ".T") if x.ndim == 2 else x


@torch_names
def meshgrid(*parts: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Vectors as grids: result i has the values of vector i along axis i, or for "xy" along axes 1 and 0.

    Raises:
        ValueError: for another indexing, or a tensor of 2 or more axes.
    """
    if indexing not in ("ij", "xy"):
        raise ValueError(f'meshgrid: indexing is {indexing!r}, expected "ij" or "xy"')
    several = parts[0] if len(parts) == 1 and isinstance(parts[0], (list, tuple)) else parts
    vectors = [as_tensor("meshgrid", part) for part in several]
    if any(vector.ndim > 1 for vector in vectors):
        shapes = ", ".join(show_shape(vector.shape) for vector in vectors)
        raise ValueError(f"meshgrid: got shapes {shapes}, expected vectors")
    vectors = [reshape(vector, (-1,)) for vector in vectors]
    places = list(range(len(vectors)))
    if indexing == "xy" and len(places) > 1:
        places[:2] = [1, 0]
    aligned = [
        reshape(vector, [vector.shape[0] if axis == place else 1 for axis in range(len(vectors))])
        for vector, place in zip(vectors, places, strict=True)
    ]
    shape = broadcast("meshgrid", *(vector.shape for vector in aligned))
    return tuple(expand(vector, shape) for vector in aligned)


@torch_names
def hstack(parts: Sequence[TensorLike]) -> Tensor:
    """Join tensors along the second axis; vectors along their only one."""
    tensors = [x if x.ndim else reshape(x, (1,)) for x in (as_tensor("hstack", part) for part in parts)]
    return concat(tensors, 1 if tensors and tensors[0].ndim > 1 else 0)


@torch_names
def pad(x: Tensor, pad: Sequence[Size], mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements added before and after those of the last axes.

    Args:
        pad: (before, after) of the last axis, then of the one before it, and so on; negative ones take elements away.
        mode: "constant" adds `value` (0); "reflect", "replicate" and "circular" repeat elements of x.

    Raises:
        ValueError: for an odd number of numbers, more than there are axes, another mode, or a reflection or repetition
            longer than the axis allows, or of other axes than those after the first one or two.
    """
    amounts = [as_size("pad", amount) for amount in pad]
    if len(amounts) % 2 or len(amounts) > 2 * x.ndim:
        raise ValueError(
            f"pad: got {len(amounts)} numbers for {show_shape(x.shape)}, expected a pair for each axis padded"
        )
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise ValueError(f'pad: mode is {mode!r}, expected "constant", "reflect", "replicate" or "circular"')
    if mode != "constant" and x.ndim - len(amounts) // 2 not in (1, 2):
        raise ValueError(
            f"pad: mode {mode!r} takes a pair for each axis after N and C, or after C; got {len(amounts) // 2} pairs "
            f"for {show_shape(x.shape)}; give zeros for axes that stay"
        )
    before, after = ([*[0] * (x.ndim - len(amounts) // 2), *reversed(amounts[i::2])] for i in (0, 1))
    for axis, pair in enumerate(zip(before, after, strict=True)):
        less = [isinstance(n, int) and n <= 0 for n in pair]
        repeated = mode in ("reflect", "replicate") and not all(less)  # also elements that are taken away
        rest = sum((n for n, is_less in zip(pair, less, strict=True) if is_less or repeated), start=x.shape[axis])
        if isinstance(rest, int) and rest < 0:
            raise ValueError(f"pad: {pair} takes more elements than axis {axis} of {show_shape(x.shape)} has")
        if not repeated:
            x = _shortened(x, axis, *pair)
            before[axis], after[axis] = (0 if is_less else n for n, is_less in zip(pair, less, strict=True))
    if mode == "constant":
        if all(isinstance(n, int) and not n for n in (*before, *after)):
            return x
        return pad_op(x, before=tuple(before), after=tuple(after), value=0.0 if value is None else value)
    for axis in range(x.ndim):
        x = _repeated(x, axis, before[axis], after[axis], mode)
    return x


def _shortened(x: Tensor, axis: int, before: Size, after: Size) -> Tensor:
    """Remove the elements that negative amounts take away."""
    front, back = (-n if isinstance(n, int) and n < 0 else 0 for n in (before, after))
    if not front and not back:
        return x
    return x[(*[slice(None)] * axis, slice(front, x.shape[axis] - back))]


def _repeated(x: Tensor, axis: int, before: Size, after: Size, mode: str) -> Tensor:
    """Pad an axis with elements of its own."""
    if isinstance(before, int) and isinstance(after, int) and not before and not after:
        return x
    size = x.shape[axis]
    limit = {"reflect": size - 1, "circular": size}.get(mode)
    for amount in (before, after):
        if isinstance(limit, int) and isinstance(amount, int) and amount > limit:
            raise ValueError(
                f"pad: {amount} elements by mode {mode!r}, expected at most {limit} for {show_shape(x.shape)}"
            )
    place, last = arange_op(start=0, stop=before + size + after) - before, size_op(size=size) - 1
    if mode == "replicate":
        source = maximum(minimum(place, last), 0)
    elif mode == "reflect":
        source = last - abs_(last - abs_(place))
    else:
        source = place % size_op(size=size)
    return take_op(x, source, axis=axis)


@function
def diff(x: Tensor, n: int = 1, axis: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The differences of neighbours along an axis, `n` times until none is left; of booleans whether they differ.

    `prepend` and `append` are joined to the axis before.

    Raises:
        ValueError: for an `n` below 0.
    """
    if n < 0:
        raise ValueError(f"diff: n is {n}, expected 0 or more")
    axis = normalize_axis("diff", axis, x.ndim)
    parts = [part for part in (prepend, x, append) if part is not None]
    x = concat(parts, axis) if len(parts) > 1 else x
    size = x.shape[axis]
    for _ in range(min(n, size) if isinstance(size, int) else n):
        later, earlier = (narrow(x, axis, start, x.shape[axis] - 1) for start in (1, 0))
        x = later ^ earlier if x.dtype is bool_ else later - earlier
    return x
