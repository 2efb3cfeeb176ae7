"""The numbers in inputs: plain ones, and those for which implementations differ."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from lucid.core.graph.types import Array, DType, bfloat16, float16, float32, float64, uint8
from tests.fuzz.choices import Choices

_TYPES = (float32, float64, float16, bfloat16)
LOWEST = tuple(float(ml_dtypes.finfo(t.numpy).min) for t in _TYPES)
SPECIAL = (
    *(np.nan, np.nan, np.nan, np.nan, np.inf, np.inf, -np.inf, -np.inf, -0.0, -0.0),
    *(float(ml_dtypes.finfo(t.numpy).smallest_subnormal) for t in _TYPES),
    *(-float(ml_dtypes.finfo(t.numpy).tiny) / 2 for t in _TYPES),
    *LOWEST,
    *(-number for number in LOWEST),
)
# Powers of ten that multiply an input: all that a type holds, with room for a sum.
POWERS = {"float16": (-7, 4), "bfloat16": (-30, 30), "float32": (-30, 30), "float64": (-30, 30)}


@dataclass(frozen=True)
class Recipe:
    """How an input's numbers are drawn: a kind, and a power of ten or an index into `SPECIAL`."""

    kind: str
    power: int = 0

    def __str__(self) -> str:
        return self.kind if not self.power else f"{self.kind} 1e{self.power}"


PLAIN = Recipe("plain")


def recipe(choices: Choices, dtype: DType) -> Recipe:
    """Mostly plain numbers; sometimes another magnitude, unusual rows, or special values."""
    if dtype.kind == "bool":
        return PLAIN
    if dtype.kind == "int":
        return Recipe(choices.choose(["plain", "plain", "plain", "extreme"]))
    kind = choices.choose([*["plain"] * 6, "scaled", "offset", "hot", "ones", "special"])
    low, high = POWERS[dtype.name]
    if kind == "scaled":
        return Recipe(kind, choices.choose([1, 2, 3, 4, -4, choices.number(low, high)]))
    if kind in ("offset", "hot", "ones"):
        return Recipe(kind, choices.choose([1, 2, 3, 4, high]))
    return Recipe(kind)


def mask_recipe(choices: Choices, dtype: DType) -> Recipe:
    """Masks hide some keys, whole rows, or none; floating ones use the excluding numbers of any type."""
    if dtype.kind == "bool":
        return Recipe(choices.choose(["plain", "rows"]))
    return Recipe("mask", choices.choose([0, 0, 1, 2, 3, 4]))


def odd_recipe(choices: Choices, dtype: DType) -> Recipe:
    """Mostly numbers for which implementations of sums and functions differ."""
    if dtype.kind != "float":
        return Recipe(choices.choose(["plain", "extreme"]) if dtype.kind == "int" else "plain")
    kind = choices.choose(["plain", "ones", "special", "scaled"])
    return Recipe(kind, choices.number(1, 4) if kind in ("ones", "scaled") else 0)


def array_of(kind: DType, shape: tuple[int, ...], how: Recipe, generator: np.random.Generator) -> Array:
    """Plain numbers are multiples of 1/8, small integers, booleans: every element type holds them, ties among them."""
    if kind.kind != "float":
        low, high = (0, 2) if kind.kind == "bool" else (0, 5) if kind is uint8 else (-4, 5)
        plain = generator.integers(low, high, shape).astype(kind.numpy)
        if how.kind == "rows" and shape:  # some rows constant: all hidden, or none
            alike = generator.random((*shape[:-1], 1)) < 0.4
            return np.where(alike, generator.random((*shape[:-1], 1)) < 0.5, plain)
        if how.kind == "extreme" and kind.kind == "int":
            limits = np.iinfo(kind.numpy)
            ends = np.array([limits.max, limits.min, limits.max - 1, limits.max // 2 + 1], kind.numpy)
            return np.where(generator.random(shape) < 0.3, generator.choice(ends, shape), plain)
        return plain
    with np.errstate(all="ignore"):
        return _floats(shape, how, kind, generator).astype(kind.numpy)


def _floats(shape: tuple[int, ...], how: Recipe, kind: DType, generator: np.random.Generator) -> Array:
    plain = generator.integers(-16, 17, shape) / 8
    rows = (*shape[:-1], 1) if shape else ()
    if how.kind == "mask":
        return _mask(shape, how.power, kind, generator)
    if how.kind == "scaled":
        return plain * 10.0**how.power
    if how.kind == "offset":  # every row around a different number
        return plain + generator.integers(-4, 5, rows) * (10.0**how.power / 4)
    if how.kind == "hot":  # one row far larger
        return np.where(generator.random(rows) < 0.2, plain * 10.0**how.power, plain)
    if how.kind == "ones":  # a large number and many small ones, which a sum in half precision would lose
        ones = np.ones(shape)
        if shape and shape[-1]:
            ones[..., 0] = 2.0 ** (3 * how.power)
        return ones
    if how.kind == "special":
        return np.where(generator.random(shape) < 0.1, generator.choice(SPECIAL, shape), plain)
    return plain


def _mask(shape: tuple[int, ...], which: int, kind: DType, generator: np.random.Generator) -> Array:
    """0: some keys hidden; 1: lowest numbers of other types, which are finite here or infinite; 2: whole rows hidden;
    3: every number allowed; 4: NaN and infinities."""
    own = float(ml_dtypes.finfo(kind.numpy).min)
    hidden = generator.choice([-np.inf, own], shape)
    if which == 1:
        hidden = generator.choice(LOWEST, shape)
    chance = generator.random(shape) < 0.4
    if which == 2:
        chance |= generator.random((*shape[:-1], 1) if shape else ()) < 0.5
    if which == 3:
        return generator.integers(-40, 41, shape) / 4.0
    mask = np.where(chance, hidden, generator.integers(-4, 5, shape) / 4)
    if which == 4:
        mask = np.where(generator.random(shape) < 0.1, generator.choice([np.nan, np.inf, 3e4], shape), mask)
    return mask
