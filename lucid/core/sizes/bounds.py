"""Bounds: the largest values of sizes, or of sums of sizes, for which a graph computes what its model does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from lucid.core.sizes.dims import Size

Bound: TypeAlias = tuple[Size, int]
"""A size, and its largest value."""


def refuse_above(where: str, bound: Bound, value: int) -> None:
    """Raise a ValueError for a value above a bound."""
    size, most = bound
    if value > most:
        raise ValueError(
            f"{where}: {size} is {value}, expected at most {most}: for more, the model may compute something else; "
            "truncate the input, or import the model with longer examples"
        )


def smallest(bounds: Iterable[Bound]) -> dict[str, int]:
    """The smallest bound of each size, by its text."""
    found: dict[str, int] = {}
    for size, most in bounds:
        found[str(size)] = min(most, found.get(str(size), most))
    return found
