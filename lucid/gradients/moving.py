"""Gradient rules of ops that move elements, and of reductions."""

from __future__ import annotations

import numpy as np

from lucid import ops
from lucid.core.graph.types import normalize_axis
from lucid.core.sizes.dims import Shape, Size, product, same
from lucid.gradients.tape import RULES, Rule, filled
from lucid.ops.creation import size_op, zeros
from lucid.ops.indexing import Cut, slice_op, take_along_op
from lucid.ops.reduction import Reduction
from lucid.ops.scattering import cut_to, scatter_op
from lucid.ops.tensor.tensor import Tensor

Pair = tuple[Tensor, Tensor | None]


# Shape and order -----------------------------------------------------------------------------------------------------


def _tile(g: Tensor, y: Tensor, x: Tensor, *, repeats: Shape) -> Tensor:
    apart = [size for pair in zip(repeats, x.shape, strict=True) for size in pair]
    return ops.sum(ops.reshape(g, apart), axis=tuple(range(0, len(apart), 2)))


def _pad(g: Tensor, y: Tensor, x: Tensor, *, before: Shape, after: Shape, value: float) -> Tensor:
    cuts = [
        Cut(axis, start, start + x.shape[axis], 1)
        for axis, (start, stop) in enumerate(zip(before, after, strict=True))
        if not (same(start, 0) and same(stop, 0))
    ]
    return slice_op(g, cuts=tuple(cuts)) if cuts else g


def _slice(g: Tensor, y: Tensor, x: Tensor, *, cuts: tuple[Cut, ...]) -> Tensor:
    before: list[Size] = [0] * x.ndim
    after: list[Size] = [0] * x.ndim
    for axis, start, _, step in cuts:
        count, size = g.shape[axis], x.shape[axis]
        if step < 0:  # from the last element on, in ascending order
            g, start, step = ops.flip(g, axis), start + (count - 1) * step, -step
        if step == 1:
            before[axis], after[axis] = start, size - start - count
        elif isinstance(start, int) and start < step and same(count * step, size):  # one of each `step` elements
            apart = [start if i == axis + 1 else 0 for i in range(g.ndim + 1)]
            rest = [step - 1 - start if i == axis + 1 else 0 for i in range(g.ndim + 1)]
            g = ops.pad(ops.unsqueeze(g, axis + 1), before=tuple(apart), after=tuple(rest))
            g = ops.reshape(g, (*g.shape[:axis], size, *g.shape[axis + 2 :]))
        else:
            places = ops.unsqueeze(ops.arange(count) * step + start, tuple(i for i in range(g.ndim) if i != axis))
            whole = zeros((*g.shape[:axis], size, *g.shape[axis + 1 :]), dtype=g.dtype)
            g = _added(g, whole, ops.expand(places, g.shape), axis)
    return ops.pad(g, before=tuple(before), after=tuple(after))


# Indices -------------------------------------------------------------------------------------------------------------


def _added(g: Tensor, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Elements of a gradient added up at their indices along an axis of x."""
    return scatter_op(zeros(x.shape, dtype=g.dtype), indices, g, axis=axis, reduction="add")


def _take(g: Tensor, y: Tensor, x: Tensor, indices: Tensor, *, axis: int) -> Pair:
    times = _repeats(x, indices, axis)
    if times:
        apart = ops.reshape(g, (*x.shape[: axis + 1], times, *x.shape[axis + 1 :]))
        return ops.sum(apart, axis=(axis + 1,)), None
    count = product(indices.shape)
    flat = ops.reshape(g, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    places = ops.unsqueeze(ops.reshape(indices, (count,)), tuple(i for i in range(x.ndim) if i != axis))
    return _added(flat, x, ops.expand(places, flat.shape), axis), None


def _repeats(x: Tensor, indices: Tensor, axis: int) -> int:
    """How often known indices take each element of an axis in turn, as those that repeat heads do; 0 for others."""
    size = x.shape[axis]
    if indices.is_traced or indices.ndim != 1 or not isinstance(size, int) or not size:
        return 0
    times = indices.numpy().size // size
    return times if np.array_equal(indices.numpy(), np.repeat(np.arange(size), times)) else 0


def _gather_nd(g: Tensor, y: Tensor, x: Tensor, indices: Tensor) -> Pair:
    depth = int(indices.shape[-1])
    flat_index: Tensor | None = None
    for axis in range(depth):
        index, size = indices[..., axis], size_op(size=x.shape[axis])
        index = ops.where(index < 0, index + size, index)
        flat_index = index if flat_index is None else flat_index * size + index
    assert flat_index is not None
    count, rest = product(indices.shape[:-1]), product(x.shape[depth:])
    rows = zeros((product(x.shape[:depth]), rest), dtype=g.dtype)
    places = ops.expand(ops.reshape(flat_index, (count, 1)), (count, rest))
    return ops.reshape(_added(ops.reshape(g, (count, rest)), rows, places, 0), x.shape), None


def _scatter(
    g: Tensor, y: Tensor, x: Tensor, indices: Tensor, values: Tensor, *, axis: int, reduction: str
) -> tuple[Tensor, None, Tensor]:
    """Of equal extremes in one place, each gets an equal share."""

    def there(x: Tensor) -> Tensor:
        return take_along_op(cut_to(x, indices, axis), indices, axis=axis)

    def joined(x: Tensor, values: Tensor, how: str) -> Tensor:
        return scatter_op(x, indices, values, axis=axis, reduction=how)

    if reduction == "none":
        return joined(g, zeros(indices.shape, dtype=g.dtype), "none"), None, there(g)
    if reduction == "add":
        return g, None, there(g)
    if reduction == "mul":
        totals = list(map(joined, _factors(x), _factors(values), ("mul", "add", "add")))
        return g * _others(x, *totals), None, there(g) * _others(values, *map(there, totals))
    hits = (x == y).astype(g.dtype), (values == there(y)).astype(g.dtype)
    share = g / joined(*hits, "add")
    return hits[0] * share, None, hits[1] * there(share)


def _write_at(
    g: Tensor, y: Tensor, buffer: Tensor, new: Tensor, starts: Tensor, *, axis: int
) -> tuple[Tensor, Tensor, None]:
    place = normalize_axis("write_at", axis, buffer.ndim)
    others = tuple(i for i in range(buffer.ndim) if i not in (0, place))
    written = ops.unsqueeze(ops.unsqueeze(starts, 1) + ops.arange(new.shape[place]), others)
    to_new = ops.take_along(g, ops.expand(written, new.shape), axis=place)
    return ops.write_at(g, zeros(new.shape, dtype=g.dtype), starts, axis=axis), to_new, None


# Reductions ----------------------------------------------------------------------------------------------------------


def _reduced_axes(x: Tensor, axis: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axis is None else tuple(normalize_axis("gradient", a, x.ndim) for a in axis)


def _kept(reduced: Tensor, x: Tensor, axis: tuple[int, ...] | None, keepdims: bool) -> Tensor:
    """The result of a reduction with the reduced axes at size 1."""
    return reduced if keepdims else ops.unsqueeze(reduced, tuple(sorted(_reduced_axes(x, axis))))


def _mean(g: Tensor, y: Tensor, x: Tensor, *, axis: tuple[int, ...] | None, keepdims: bool) -> Tensor:
    count = product(x.shape[a] for a in _reduced_axes(x, axis))
    share = g * (1 / count) if isinstance(count, int) and count else g / size_op(size=count).astype(g.dtype)
    return ops.expand(_kept(share, x, axis, keepdims), x.shape)


def _extremum(extreme: Reduction) -> Rule:
    """Equal elements share the gradient. The extreme is that of x as it is here, which may be rounded otherwise."""

    def gradients(g: Tensor, y: Tensor, x: Tensor, *, axis: tuple[int, ...] | None, keepdims: bool) -> Tensor:
        hit = ops.equal(x, _kept(extreme(x, axis=axis, keepdims=keepdims), x, axis, keepdims)).astype(g.dtype)
        share = _kept(g, x, axis, keepdims) / ops.sum(hit, axis=_reduced_axes(x, axis), keepdims=True)
        return hit * share

    return Rule(gradients)


def _prod(g: Tensor, y: Tensor, x: Tensor, *, axis: tuple[int, ...] | None, keepdims: bool) -> Tensor:
    reductions, axes = (ops.prod, ops.sum, ops.sum), _reduced_axes(x, axis)
    totals = (reduced(part, axis=axes, keepdims=True) for reduced, part in zip(reductions, _factors(x), strict=True))
    return _kept(g, x, axis, keepdims) * _others(x, *totals)


def _factors(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of a product that are not 0, which are those, and the ones that are."""
    zero = x == 0
    return ops.where(zero, 1.0, x), zero.astype(x.dtype), ops.where(zero, x, 0.0)


def _others(x: Tensor, product: Tensor, count: Tensor, nulls: Tensor) -> Tensor:
    """The product of the factors besides each: of those that are not 0, and of the only other one that is, if there is.

    `product`, `count` and `nulls` are the product of the first and the sums of the other two of `_factors`.
    """
    factor, zero, null = _factors(x)
    others = product / factor * ops.where(count == zero, 1.0, nulls - null)
    return ops.where(count - zero > 1, 0.0, others)


RULES |= {
    "reshape": Rule(lambda g, y, x, *, shape: ops.reshape(g, x.shape)),
    "squeeze": Rule(lambda g, y, x, *, axes: ops.unsqueeze(g, axes)),
    "unsqueeze": Rule(lambda g, y, x, *, axes: ops.squeeze(g, axes)),
    "permute": Rule(lambda g, y, x, *, axes: ops.permute(g, np.argsort(axes).tolist())),
    "expand": Rule(lambda g, y, x, *, shape: g),  # is summed over the new axes
    "tile": Rule(_tile),
    "pad": Rule(_pad),
    "concat": Rule(lambda g, y, *parts, axis: ops.split(g, [part.shape[axis] for part in parts], axis)),
    "split": Rule(lambda g, y, x, *, sizes, axis: ops.concat(filled(g, y), axis)),
    "slice": Rule(_slice),
    "tril": Rule(lambda g, y, x, *, diagonal: ops.tril(g, diagonal=diagonal)),
    "triu": Rule(lambda g, y, x, *, diagonal: ops.triu(g, diagonal=diagonal)),
    "take": Rule(_take),
    "take_along": Rule(lambda g, y, x, i, *, axis: (_added(g, x, i, axis), None)),
    "gather_nd": Rule(_gather_nd),
    "scatter": Rule(_scatter),
    "topk": Rule(lambda g, y, x, *, axis, **_: scatter_op(ops.zeros_like(x), y[1], g[0], axis=axis)),
    "write_at": Rule(_write_at),
    "sum": Rule(lambda g, y, x, *, axis, keepdims: ops.expand(_kept(g, x, axis, keepdims), x.shape)),
    "mean": Rule(_mean),
    "max": _extremum(ops.max),
    "min": _extremum(ops.min),
    "prod": Rule(_prod),
    "cumsum": Rule(lambda g, y, x, *, axis: ops.flip(ops.cumsum(ops.flip(g, axis), axis=axis), axis)),
}
