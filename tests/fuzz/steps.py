"""The steps that random programs are made of: ops on the existing values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor, ops
from lucid.core.graph.types import bool_, broadcast
from tests.fuzz.programs import FLOATS, INTEGERS, Drafting, Maker, Step, Value, among

ELEMENTWISE: list[Maker] = []


def is_float(value: Value) -> bool:
    return value.type.dtype.kind == "float"


def is_number(value: Value) -> bool:
    return value.type.dtype.kind != "bool"


def is_bool(value: Value) -> bool:
    return value.type.dtype.kind == "bool"


def with_axes(count: int) -> Callable[[Value], bool]:
    return lambda value: value.rank >= count


def fixed_axes(value: Value) -> list[int]:
    """The axes whose size is a number, at least 1."""
    return [axis for axis, size in enumerate(value.type.shape) if isinstance(size, int) and size]


def fits_with(value: Value) -> Callable[[Value], bool]:
    """Values that broadcast with a given one."""

    def fits(other: Value) -> bool:
        try:
            broadcast("fuzz", value.type.shape, other.type.shape)
        except ValueError:
            return False
        return value.rank + other.rank <= 8

    return fits


# Elementwise ------------------------------------------------------------------------------------------------------

SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "exp(-|x|)": lambda x: ops.exp(-ops.abs(x)),
    "log(|x| + 1)": lambda x: ops.log(ops.abs(x) + 1),
    "sqrt(|x| + 0.5)": lambda x: ops.sqrt(ops.abs(x) + 0.5),
    "reciprocal(|x| + 1)": lambda x: ops.reciprocal(ops.abs(x) + 1),
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
    "|x| ** 1.5": lambda x: (ops.abs(x) + 0.25) ** 1.5,
}
STEPPED: dict[str, Callable[[Tensor], Tensor]] = {
    "floor": ops.floor,
    "ceil": ops.ceil,
    "round": ops.round,
    "sign": ops.sign,
    "neg": ops.neg,
    "abs": ops.abs,
    "isnan": ops.isnan,
}


def lacks_float64(name: str) -> bool:
    """onnxruntime has no float64 Erf."""
    return name in ("erf", "gelu")


@among(ELEMENTWISE)
def smooth(draft: Drafting) -> Step | None:
    x = draft.pick(is_float)
    name = draft.choose(list(SMOOTH))
    if x is None or (lacks_float64(name) and draft.values[x].type.dtype is lucid.float64):
        return None
    return Step(name, (x,), SMOOTH[name])


@among(ELEMENTWISE)
def stepped(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: is_float(v) and v.exact)
    name = draft.choose(list(STEPPED))
    return None if x is None else Step(name, (x,), STEPPED[name], exact=True)


@among(ELEMENTWISE)
def on_integers(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: v.type.dtype.kind == "int")
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "neg": ops.neg, "abs": ops.abs, "sign": ops.sign, "x // 3": lambda v: v // 3, "x % 3": lambda v: v % 3,
        "x * 2 + 1": lambda v: v * 2 + 1, "x / 4": lambda v: v / 4,
    }  # fmt: skip
    name = draft.choose(list(table))
    return None if x is None else Step(name, (x,), table[name], exact=True)


@among(ELEMENTWISE)
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
        "div": lambda a, b: a / (ops.abs(b) + 1),
        "maximum": ops.maximum,
        "minimum": ops.minimum,
    }
    name = draft.choose(list(table))
    return Step(name, (x, y), table[name], exact=name in ("maximum", "minimum"))


@among(ELEMENTWISE)
def remainder(draft: Drafting) -> Step | None:
    """Remainder and quotient of a division by numbers that are not zero."""
    x = draft.pick(lambda v: v.exact and is_number(v))
    if x is None:
        return None
    integers = draft.values[x].type.dtype.kind == "int"
    by: Any = draft.choose([3, 7] if integers else [0.75, -1.5, 3.0])
    if draft.flag():
        return Step(f"x % {by}", (x,), lambda v: v % by, exact=True)
    return Step(f"x // {by}", (x,), lambda v: v // by, exact=True)


@among(ELEMENTWISE)
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


@among(ELEMENTWISE)
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


@among(ELEMENTWISE)
def select(draft: Drafting) -> Step | None:
    condition = draft.pick(is_bool)
    x = draft.pick(fits_with(draft.values[condition])) if condition is not None else None
    if condition is None or x is None:
        return None
    number = True if is_bool(draft.values[x]) else draft.choose([0, 1.5, 2])
    if draft.flag():
        return Step(f"where c, x, {number}", (condition, x), lambda c, v: ops.where(c, v, number), exact=True)
    return Step(f"masked_fill {number}", (x, condition), lambda v, c: v.masked_fill(c, number), exact=True)


@among(ELEMENTWISE)
def convert(draft: Drafting) -> Step | None:
    dtype = draft.choose([*FLOATS, *INTEGERS, bool_])
    exact = dtype.kind != "float"
    x = draft.pick(lambda v: (v.exact or not exact) and not (dtype.name == "uint8" and is_float(v)))
    return None if x is None else Step(f"astype {dtype}", (x,), lambda v: v.astype(dtype), exact=exact)
