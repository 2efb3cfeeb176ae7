"""The steps that random programs are made of: ops on whatever values there are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import lucid
from lucid import Tensor, ops
from lucid.dims import dim, same
from lucid.types import bool_, broadcast, float32, int64
from tests.fuzz.programs import FLOATS, INTEGERS, Drafting, Step, Value
from tests.fuzz.values import odd_recipe

MAKERS: list[Callable[[Drafting], Step | None]] = []


def maker(make: Callable[[Drafting], Step | None]) -> Callable[[Drafting], Step | None]:
    MAKERS.append(make)
    return make


def is_float(value: Value) -> bool:
    return value.type.dtype.kind == "float"


def is_number(value: Value) -> bool:
    return value.type.dtype.kind != "bool"


def is_bool(value: Value) -> bool:
    return value.type.dtype.kind == "bool"


def with_axes(count: int) -> Callable[[Value], bool]:
    return lambda value: value.rank >= count


def fixed_axes(value: Value) -> list[int]:
    """The axes whose size is a number of 1 or more."""
    return [axis for axis, size in enumerate(value.type.shape) if isinstance(size, int) and size]


def fits_with(value: Value) -> Callable[[Value], bool]:
    """Values that broadcast against one."""

    def fits(other: Value) -> bool:
        try:
            broadcast("fuzz", value.type.shape, other.type.shape)
        except ValueError:
            return False
        return value.rank + other.rank <= 8

    return fits


# Elementwise ------------------------------------------------------------------------------------------------------

SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "exp(-|x|)": lambda x: ops.exp(-ops.abs_(x)),
    "log(|x| + 1)": lambda x: ops.log(ops.abs_(x) + 1),
    "sqrt(|x| + 0.5)": lambda x: ops.sqrt(ops.abs_(x) + 0.5),
    "reciprocal(|x| + 1)": lambda x: ops.reciprocal(ops.abs_(x) + 1),
    "sin": ops.sin,
    "cos": ops.cos,
    "tanh": ops.tanh,
    "erf": ops.erf,
    "sigmoid": ops.sigmoid,
    "relu": ops.relu,
    "silu": ops.silu,
    "softplus": ops.softplus,
    "gelu": ops.gelu,
    "gelu tanh": lambda x: ops.gelu(x, approximate="tanh"),
    "x * 0.5 - 2": lambda x: x * 0.5 - 2,
    "x / 3": lambda x: x / 3,
    "clip": lambda x: ops.clip(x, -1.0, 0.5),
    "|x| ** 1.5": lambda x: (ops.abs_(x) + 0.25) ** 1.5,
}
STEPPED: dict[str, Callable[[Tensor], Tensor]] = {
    "floor": ops.floor,
    "ceil": ops.ceil,
    "round": ops.round_,
    "sign": ops.sign,
    "neg": ops.neg,
    "abs": ops.abs_,
    "isnan": ops.isnan,
}


def lacks_float64(name: str) -> bool:
    """onnxruntime has no float64 Erf."""
    return name in ("erf", "gelu")


@maker
def smooth(draft: Drafting) -> Step | None:
    x = draft.pick(is_float)
    name = draft.choose(list(SMOOTH))
    if x is None or (lacks_float64(name) and draft.values[x].type.dtype is lucid.float64):
        return None
    return Step(name, (x,), SMOOTH[name])


@maker
def stepped(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: is_float(v) and v.exact)
    name = draft.choose(list(STEPPED))
    return None if x is None else Step(name, (x,), STEPPED[name], exact=True)


@maker
def on_integers(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.type.dtype.kind == "int")
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "neg": ops.neg, "abs": ops.abs_, "sign": ops.sign, "x // 3": lambda v: v // 3, "x % 3": lambda v: v % 3,
        "x * 2 + 1": lambda v: v * 2 + 1, "x / 4": lambda v: v / 4,
    }  # fmt: skip
    name = draft.choose(list(table))
    return None if x is None else Step(name, (x,), table[name], exact=True)


@maker
def binary(draft: Drafting) -> Step | None:
    x = draft.pick(is_number)
    if x is None:
        return None
    fits = fits_with(draft.values[x])
    y = draft.pick(lambda v: is_number(v) and fits(v))
    if y is None:
        return None
    table: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "add": ops.add,
        "sub": ops.sub,
        "mul": lambda a, b: ops.mul(ops.tanh(a) if a.dtype.kind == "float" else a, b),
        "div": lambda a, b: a / (ops.abs_(b) + 1),
        "maximum": ops.maximum,
        "minimum": ops.minimum,
    }
    name = draft.choose(list(table))
    return Step(name, (x, y), table[name], exact=name in ("maximum", "minimum"))


@maker
def remainder(draft: Drafting) -> Step | None:
    """What is left of a division, and the whole part, by numbers that are not zero."""
    x = draft.pick(lambda v: v.exact and is_number(v))
    if x is None:
        return None
    integers = draft.values[x].type.dtype.kind == "int"
    by: Any = draft.choose([3, 7] if integers else [0.75, -1.5, 3.0])
    if draft.flag():
        return Step(f"x % {by}", (x,), lambda v: v % by, exact=True)
    return Step(f"x // {by}", (x,), lambda v: v // by, exact=True)


@maker
def comparison(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.exact)
    if x is None:
        return None
    fits = fits_with(draft.values[x])
    same_kind = is_bool if is_bool(draft.values[x]) else is_number
    y = draft.pick(lambda v: v.exact and same_kind(v) and fits(v))
    if y is None:
        return None
    names = ["equal", "not_equal"] + (
        [] if same_kind is is_bool else ["less", "less_equal", "greater", "greater_equal"]
    )
    name = draft.choose(names)
    return Step(name, (x, y), ops.OPS[name], exact=True)


@maker
def logic(draft: Drafting) -> Step | None:
    x = draft.pick(is_bool)
    if x is None:
        return None
    if draft.flag():
        return Step("logical_not", (x,), ops.logical_not, exact=True)
    fits = fits_with(draft.values[x])
    y = draft.pick(lambda v: is_bool(v) and fits(v))
    if y is None:
        return None
    name = draft.choose(["logical_and", "logical_or", "logical_xor"])
    return Step(name, (x, y), ops.OPS[name], exact=True)


@maker
def select(draft: Drafting) -> Step | None:
    condition = draft.pick(is_bool)
    x = draft.pick(fits_with(draft.values[condition])) if condition is not None else None
    if condition is None or x is None:
        return None
    number = True if is_bool(draft.values[x]) else draft.choose([0, 1.5, 2])
    if draft.flag():
        return Step(f"where c, x, {number}", (condition, x), lambda c, v: ops.where(c, v, number), exact=True)
    return Step(f"masked_fill {number}", (x, condition), lambda v, c: v.masked_fill(c, number), exact=True)


@maker
def convert(draft: Drafting) -> Step | None:
    wanted = draft.choose([*FLOATS, *INTEGERS, bool_])
    exact = wanted.kind != "float"
    x = draft.pick(lambda v: (v.exact or not exact) and not (wanted.name == "uint8" and is_float(v)))
    return None if x is None else Step(f"astype {wanted}", (x,), lambda v: v.astype(wanted), exact=exact)


# Shape ------------------------------------------------------------------------------------------------------------


@maker
def permuted(draft: Drafting) -> Step | None:
    x = draft.pick(with_axes(2))
    if x is None:
        return None
    order = draft.choices.order(draft.values[x].rank)
    return Step(f"permute {order}", (x,), lambda v: v.permute(*order), exact=True)


@maker
def joined(draft: Drafting) -> Step | None:
    x = draft.pick(with_axes(2))
    if x is None:
        return None
    first = draft.number(0, draft.values[x].rank - 2)
    last = draft.number(first + 1, draft.values[x].rank - 1)
    return Step(f"flatten {first}..{last}", (x,), lambda v: v.flatten(first, last), exact=True)


@maker
def cut_up(draft: Drafting) -> Step | None:
    """An axis of even size becomes two, one of them as -1."""
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


@maker
def unsqueezed(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank < 4)
    if x is None:
        return None
    axis = draft.number(-draft.values[x].rank - 1, draft.values[x].rank)
    return Step(f"unsqueeze {axis}", (x,), lambda v: v.unsqueeze(axis), exact=True)


@maker
def squeezed(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: any(same(size, 1) for size in v.type.shape))
    if x is None:
        return None
    # Named, since without a name a size that happens to be 1 goes eagerly and stays where it is symbolic.
    axis = draft.choose([i for i, size in enumerate(draft.values[x].type.shape) if same(size, 1)])
    return Step(f"squeeze {axis}", (x,), lambda v: v.squeeze(axis), exact=True)


@maker
def expanded(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank < 4)
    if x is None:
        return None
    if draft.flag() and draft.values[0].rank:
        return Step("expand to batch", (x, 0), lambda v, first: v.expand(first.shape[0], *v.shape), exact=True)
    front = draft.number(2, 3)
    return Step(f"expand {front}, ...", (x,), lambda v: v.expand(front, *v.shape), exact=True)


@maker
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


@maker
def stacked(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank < 4)
    if x is None:
        return None
    axis = draft.number(0, draft.values[x].rank)
    return Step(f"stack axis {axis}", (x,), lambda v: ops.stack([v, v], axis), exact=True)


@maker
def split_up(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: any(size > 1 for size in map(v.type.shape.__getitem__, fixed_axes(v))))
    if x is None:
        return None
    value = draft.values[x]
    axis = draft.choose([axis for axis in fixed_axes(value) if value.type.shape[axis] > 1])
    size = int(value.type.shape[axis])
    pieces = draft.number(2, min(3, size))
    return Step(f"chunk {pieces} axis {axis}", (x,), lambda v: v.chunk(pieces, axis), exact=True)


@maker
def sliced(draft: Drafting) -> Step | None:
    """Slices that are empty nowhere: of an axis of any size, from the start or every other one; of a known one,
    anything."""
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


@maker
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


@maker
def taken_along(draft: Drafting) -> Step | None:
    """One element of an axis for each of some positions; indices of size 1 serve all."""
    x = draft.pick(lambda v: bool(fixed_axes(v)))
    if x is None:
        return None
    value = draft.values[x]
    axis = draft.choose(fixed_axes(value))
    size, count = int(value.type.shape[axis]), draft.number(1, 3)
    shape = [count if i == axis else s if draft.number(0, 3) else 1 for i, s in enumerate(value.type.shape)]
    i = draft.input(int64, shape)
    return Step(f"take_along axis {axis}", (x, i), lambda v, j: ops.take_along(v, j % size, axis=axis), exact=True)


@maker
def tiled(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: 1 <= v.rank <= 3)
    if x is None:
        return None
    repeats = [draft.number(1, 2) for _ in range(draft.values[x].rank)]
    return Step(f"repeat {repeats}", (x,), lambda v: v.repeat(*repeats), exact=True)


@maker
def padded(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank >= 1 and is_number(v))
    if x is None:
        return None
    before, after = (tuple(draft.number(0, 2) for _ in range(draft.values[x].rank)) for _ in range(2))
    return Step(f"pad {before} {after}", (x,), lambda v: ops.pad(v, before=before, after=after, value=1.0), exact=True)


@maker
def triangle(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.rank >= 2 and is_number(v))
    if x is None:
        return None
    name, diagonal = draft.choose(["tril", "triu"]), draft.number(-2, 2)
    return Step(f"{name} {diagonal}", (x,), lambda v: ops.OPS[name](v, diagonal=diagonal), exact=True)


@maker
def from_sizes(draft: Drafting) -> Step | None:
    """What only the sizes of a value decide."""
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


# Reductions and products ------------------------------------------------------------------------------------------


@maker
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


@maker
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


@maker
def largest(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.exact and is_number(v) and v.rank >= 1)
    if x is None:
        return None
    axis, keepdims = draft.number(-draft.values[x].rank, draft.values[x].rank - 1), draft.flag()
    return Step(f"argmax {axis}", (x,), lambda v: v.argmax(axis, keepdims), exact=True)


@maker
def running_sum(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: is_number(v) and v.rank >= 1)
    if x is None:
        return None
    axis = draft.number(-draft.values[x].rank, draft.values[x].rank - 1)
    return Step(f"cumsum {axis}", (x,), lambda v: ops.cumsum(v, axis=axis))


@maker
def reduced_afresh(draft: Drafting) -> Step | None:
    """A reduction of an input of its own: long rows, with what sums and extremes part on."""
    dtype = draft.choose([*FLOATS, *INTEGERS])
    x = draft.input(dtype, [draft.choose([dim("N"), dim("L")]), draft.choose([dim("L"), 3, 40])], odd_recipe)
    axis = draft.number(0, 1)
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "cumsum": lambda v: ops.cumsum(v, axis=axis),
        "sum": lambda v: v.sum(axis),
        "max": lambda v: v.max(axis),
        "min": lambda v: v.min(axis),
        "argmax": lambda v: v.argmax(axis),
        **({"mean": lambda v: v.mean(axis)} if dtype.kind == "float" else {}),
    }
    name = draft.choose(list(table))
    return Step(f"{name} of axis {axis}", (x,), table[name], exact=name in ("max", "min"))


@maker
def computed_afresh(draft: Drafting) -> Step | None:
    """A function of an input of its own, or two, with the numbers it parts on."""
    dtype = draft.choose([t for t in FLOATS if t is not lucid.float64])
    names = [dim("N"), 4]
    x = draft.input(dtype, names, odd_recipe)
    name = draft.choose([*SMOOTH, *SMOOTH, "maximum", "minimum"])
    if name in SMOOTH:
        return Step(name, (x,), SMOOTH[name])
    return Step(name, (x, draft.input(dtype, names, odd_recipe)), ops.OPS[name], exact=True)


@maker
def softmaxed(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: is_float(v) and v.rank >= 1)
    if x is None:
        return None
    axis = draft.number(-draft.values[x].rank, draft.values[x].rank - 1)
    if draft.flag():
        return Step(f"log_softmax {axis}", (x,), lambda v: ops.log_softmax(v, axis=axis))
    return Step(f"softmax {axis}", (x,), lambda v: v.softmax(axis))


@maker
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
