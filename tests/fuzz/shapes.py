"""The steps of random programs that move elements: shapes, slices, indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lucid
from lucid import Tensor, ops
from lucid.core.graph.types import float32, int64
from lucid.core.sizes.dims import same
from tests.fuzz.programs import Drafting, Maker, Step, Value, among
from tests.fuzz.steps import fixed_axes, is_bool, is_number, with_axes

SHAPES: list[Maker] = []


@among(SHAPES)
def permuted(draft: Drafting) -> Step | None:
    x = draft.pick(with_axes(2))
    if x is None:
        return None
    order = draft.choices.order(draft.values[x].rank)
    return Step(f"permute {order}", (x,), lambda v: v.permute(*order), exact=True)


@among(SHAPES)
def joined(draft: Drafting) -> Step | None:
    x = draft.pick(with_axes(2))
    if x is None:
        return None
    first = draft.number(0, draft.values[x].rank - 2)
    last = draft.number(first + 1, draft.values[x].rank - 1)
    return Step(f"flatten {first}..{last}", (x,), lambda v: v.flatten(first, last), exact=True)


@among(SHAPES)
def cut_up(draft: Drafting) -> Step | None:
    """An axis of even size becomes two, one of them given as -1."""
    x = draft.pick(lambda v: v.rank < 5 and any(same(size % 2, 0) and not same(size, 0) for size in v.type.shape))
    if x is None:
        return None
    shape = draft.values[x].type.shape
    axis = draft.choose([i for i, size in enumerate(shape) if same(size % 2, 0) and not same(size, 0)])
    inferred = draft.flag() and not any(same(size, 0) for size in shape)

    def apply(v: Tensor) -> Tensor:
        half = -1 if inferred else v.shape[axis] // 2
        return v.reshape(*v.shape[:axis], 2, half, *v.shape[axis + 1 :])

    return Step(f"reshape axis {axis} to 2, {'-1' if inferred else 'half'}", (x,), apply, exact=True)


@among(SHAPES)
def unsqueezed(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank < 4)
    if x is None:
        return None
    axis = draft.number(-draft.values[x].rank - 1, draft.values[x].rank)
    return Step(f"unsqueeze {axis}", (x,), lambda v: v.unsqueeze(axis), exact=True)


@among(SHAPES)
def squeezed(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: any(same(size, 1) for size in v.type.shape))
    if x is None:
        return None
    # The axes are named, since otherwise a size that happens to be 1 is dropped eagerly and kept if it is symbolic.
    axis = draft.choose([i for i, size in enumerate(draft.values[x].type.shape) if same(size, 1)])
    return Step(f"squeeze {axis}", (x,), lambda v: v.squeeze(axis), exact=True)


@among(SHAPES)
def expanded(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank < 4)
    if x is None:
        return None
    if draft.flag() and draft.values[0].rank:
        return Step("expand to batch", (x, 0), lambda v, first: v.expand(first.shape[0], *v.shape), exact=True)
    front = draft.number(2, 3)
    return Step(f"expand {front}, ...", (x,), lambda v: v.expand(front, *v.shape), exact=True)


@among(SHAPES)
def joined_along(draft: Drafting) -> Step | None:
    x = draft.pick(with_axes(1))
    if x is None:
        return None
    kind = draft.values[x].type
    axis = draft.number(0, kind.rank - 1)

    def fits(v: Value) -> bool:
        pairs = zip(v.type.shape, kind.shape, strict=False)
        rest = v.rank == kind.rank and all(same(a, b) for i, (a, b) in enumerate(pairs) if i != axis)
        return rest and is_bool(v) == (kind.dtype.kind == "bool")

    y = draft.pick(fits)
    if y is None:
        return None
    return Step(f"concat axis {axis}", (x, y), lambda a, b: ops.concat([a, b, a], axis), exact=True)


@among(SHAPES)
def stacked(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank < 4)
    if x is None:
        return None
    axis = draft.number(0, draft.values[x].rank)
    return Step(f"stack axis {axis}", (x,), lambda v: ops.stack([v, v], axis), exact=True)


@among(SHAPES)
def split_up(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: any(size > 1 for size in map(v.type.shape.__getitem__, fixed_axes(v))))
    if x is None:
        return None
    value = draft.values[x]
    axis = draft.choose([axis for axis in fixed_axes(value) if value.type.shape[axis] > 1])
    size = int(value.type.shape[axis])
    pieces = draft.number(2, min(3, size))
    return Step(f"chunk {pieces} axis {axis}", (x,), lambda v: v.chunk(pieces, axis), exact=True)


@among(SHAPES)
def sliced(draft: Drafting) -> Step | None:
    """Slices that are never empty: of an axis of any size, from the start or with step 2; of one of known size, any."""
    x = draft.pick(with_axes(1))
    if x is None:
        return None
    index: list[Any] = []
    for size in draft.values[x].type.shape:
        options: list[Any] = [slice(None), slice(None, None, 2), slice(None, None, -1)]
        if isinstance(size, int) and size > 1:
            options += [slice(1, None), slice(None, -1), slice(-1, None), slice(None, None, -2), 0, -1, size - 1]
        index.append(draft.choose(options))
    if draft.flag() and all(isinstance(item, slice) for item in index):
        index.insert(draft.number(0, len(index)), None)
    if draft.flag():
        index = [..., index[-1]]
    return Step(f"[{', '.join(map(str, index))}]", (x,), lambda v: v[tuple(index)], exact=True)


@among(SHAPES)
def taken(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: bool(fixed_axes(v)))
    if x is None:
        return None
    value = draft.values[x]
    axis = draft.choose(fixed_axes(value))
    size = int(value.type.shape[axis])
    i = draft.pick(lambda v: v.type.dtype in (lucid.int32, int64) and v.rank + value.rank <= 4)
    if i is None or draft.flag():
        constant = np.array([draft.number(-size, size - 1) for _ in range(draft.number(1, 3))])
        return Step(f"take {constant} axis {axis}", (x,), lambda v: ops.take(v, constant, axis), exact=True)
    return Step(f"take axis {axis}", (x, i), lambda v, j: ops.take(v, j % size, axis), exact=True)


@among(SHAPES)
def taken_along(draft: Drafting) -> Step | None:
    """One element of an axis for each position; indices of size 1 broadcast."""
    x = draft.pick(lambda v: bool(fixed_axes(v)))
    if x is None:
        return None
    value = draft.values[x]
    axis = draft.choose(fixed_axes(value))
    size, count = int(value.type.shape[axis]), draft.number(1, 3)
    shape = [count if i == axis else s if draft.number(0, 3) else 1 for i, s in enumerate(value.type.shape)]
    i = draft.input(int64, shape)
    return Step(f"take_along axis {axis}", (x, i), lambda v, j: ops.take_along(v, j % size, axis=axis), exact=True)


@among(SHAPES)
def tiled(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: 1 <= v.rank <= 3)
    if x is None:
        return None
    repeats = [draft.number(1, 2) for _ in range(draft.values[x].rank)]
    return Step(f"repeat {repeats}", (x,), lambda v: v.repeat(*repeats), exact=True)


@among(SHAPES)
def padded(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank >= 1 and is_number(v))
    if x is None:
        return None
    before, after = (tuple(draft.number(0, 2) for _ in range(draft.values[x].rank)) for _ in range(2))
    return Step(f"pad {before} {after}", (x,), lambda v: ops.pad(v, before=before, after=after, value=1.0), exact=True)


@among(SHAPES)
def triangle(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank >= 2 and is_number(v))
    if x is None:
        return None
    name, diagonal = draft.choose(["tril", "triu"]), draft.number(-2, 2)
    return Step(f"{name} {diagonal}", (x,), lambda v: ops.OPS[name](v, diagonal=diagonal), exact=True)


@among(SHAPES)
def from_sizes(draft: Drafting) -> Step | None:
    """Results that depend only on the sizes of a value."""
    x = draft.pick(with_axes(1))
    if x is None:
        return None
    axis = draft.number(0, draft.values[x].rank - 1)
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "arange": lambda v: lucid.arange(v.shape[axis]),
        "arange 2n": lambda v: lucid.arange(1, 2 * v.shape[axis] + 1, 2),
        "ones": lambda v: lucid.ones(v.shape[axis], 2),
        "x / size": lambda v: v.astype(float32) / (v.shape[axis] + 1),
        "positions": lambda v: v.astype(float32) + lucid.arange(v.shape[-1]),
    }
    name = draft.choose(list(table))
    return Step(f"{name} of axis {axis}", (x,), table[name], exact=False)
