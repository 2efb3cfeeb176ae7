"""The steps of random programs that combine elements: reductions, running sums, products."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import lucid
from lucid import Tensor, ops
from lucid.core.graph.types import bfloat16, float16
from lucid.core.sizes.dims import dim, same
from tests.fuzz.programs import FLOATS, INTEGERS, Drafting, Maker, Step, among
from tests.fuzz.steps import SMOOTH, is_float, is_number
from tests.fuzz.values import Recipe, odd_recipe

SUMS: list[Maker] = []


@among(SUMS)
def reduced(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: not any(same(size, 0) for size in v.type.shape))
    if x is None:
        return None
    value = draft.values[x]
    kind, keepdims = value.type.dtype.kind, draft.flag()
    names = {"bool": ["any", "all"], "int": ["sum", "max", "min", "prod"], "float": ["mean", "max", "min"]}[kind]
    name = draft.choose(names)
    axes = tuple(axis for axis in range(value.rank) if draft.flag()) or None
    exact = name in ("max", "min", "any", "all")
    text = f"{name} {axes}{' kept' if keepdims else ''}"
    return Step(text, (x,), lambda v: ops.OPS[name](v, axis=axes, keepdims=keepdims), exact=exact)


@among(SUMS)
def quantified(draft: Drafting) -> Step | None:
    """Whether any, or every, element of a row passes a test: of booleans, or of numbers that no backend rounds."""
    x = draft.pick(lambda v: v.exact and v.rank >= 1)
    if x is None:
        return None
    name, keepdims = draft.choose(["any", "all"]), draft.flag()
    axis = draft.number(0, draft.values[x].rank - 1)

    def apply(v: Tensor) -> Tensor:
        passed = v if v.dtype.kind == "bool" else v > 0
        return ops.OPS[name](passed, axis=(axis,), keepdims=keepdims)

    return Step(f"{name} > 0 of axis {axis}", (x,), apply, exact=True)


@among(SUMS)
def largest(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.exact and is_number(v) and v.rank >= 1)
    if x is None:
        return None
    axis, keepdims = draft.number(-draft.values[x].rank, draft.values[x].rank - 1), draft.flag()
    return Step(f"argmax {axis}", (x,), lambda v: v.argmax(axis, keepdims), exact=True)


@among(SUMS)
def running_sum(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: is_number(v) and v.rank >= 1)
    if x is None:
        return None
    axis = draft.number(-draft.values[x].rank, draft.values[x].rank - 1)
    return Step(f"cumsum {axis}", (x,), lambda v: ops.cumsum(v, axis=axis))


@among(SUMS)
def reduced_afresh(draft: Drafting) -> Step | None:
    """A reduction of a new input: long rows, with numbers for which implementations of sums and extremes differ."""
    dtype = draft.choose([*FLOATS, *INTEGERS])
    x = draft.input(dtype, [draft.choose([dim("N"), dim("L")]), draft.choose([dim("L"), 3, 40, 300])], odd_recipe)
    axis = draft.number(0, 1)
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "cumsum": lambda v: ops.cumsum(v, axis=axis),
        "sum": lambda v: v.sum(axis),
        "max": lambda v: v.max(axis=axis),
        "min": lambda v: v.min(axis=axis),
        "argmax": lambda v: v.argmax(axis),
        **({"mean": lambda v: v.mean(axis)} if dtype.kind == "float" else {}),
    }
    name = draft.choose(list(table))
    return Step(f"{name} of axis {axis}", (x,), table[name], exact=name in ("max", "min"))


@among(SUMS)
def computed_afresh(draft: Drafting) -> Step | None:
    """A function of one or two new inputs, with numbers for which implementations differ."""
    dtype = draft.choose([t for t in FLOATS if t is not lucid.float64])
    names = [dim("N"), 4]
    x = draft.input(dtype, names, odd_recipe)
    name = draft.choose([*SMOOTH, *SMOOTH, "maximum", "minimum"])
    if name in SMOOTH:
        return Step(name, (x,), SMOOTH[name])
    return Step(name, (x, draft.input(dtype, names, odd_recipe)), ops.OPS[name], exact=True)


@among(SUMS)
def softmaxed(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: is_float(v) and v.rank >= 1)
    if x is None:
        return None
    axis = draft.number(-draft.values[x].rank, draft.values[x].rank - 1)
    if draft.flag():
        return Step(f"log_softmax {axis}", (x,), lambda v: ops.log_softmax(v, axis=axis))
    return Step(f"softmax {axis}", (x,), lambda v: v.softmax(axis))


@among(SUMS)
def product(draft: Drafting) -> Step | None:
    x = draft.pick(
        lambda v: is_number(v) and v.rank >= 1 and isinstance(v.type.shape[-1], int) and v.type.shape[-1] > 0
    )
    if x is None:
        return None
    value = draft.values[x]
    width = int(value.type.shape[-1])
    if draft.flag() and value.rank >= 2:  # with itself: every size of the result is one of the input

        def apply(v: Tensor) -> Tensor:
            return v @ v.mT if v.dtype.kind == "int" else (v * (1 / math.sqrt(width))) @ v.mT

        return Step("x @ x.mT", (x,), apply)
    matrix = np.random.default_rng(width).integers(-2, 3, (width, draft.number(1, 4)))
    return Step(f"x @ {matrix.tolist()}", (x,), lambda v: v @ Tensor(matrix).astype(v.dtype))


AFRESH = [reduced_afresh, computed_afresh]


def added_in_half(draft: Drafting) -> Step | None:
    """A long sum of a large number and many ones, which are lost if they are added in half precision."""
    power = draft.choose([3, 4])
    x = draft.input(draft.choose([float16, bfloat16]), [dim("N"), 300], lambda *_: Recipe("ones", power))
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "cumsum": lambda v: ops.cumsum(v, axis=1),
        "sum": lambda v: v.sum(1),
        "mean": lambda v: v.mean(1),
    }
    name = draft.choose(list(table))
    return Step(f"{name} of axis 1", (x,), table[name])
