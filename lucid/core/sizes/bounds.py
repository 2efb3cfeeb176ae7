"""Bounds: the smallest and largest sizes, or sums of sizes, for which a graph computes what its model does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lucid.core.sizes.dims import Dim, Size
from lucid.core.sizes.limits import Limits


class Bound(NamedTuple):
    """A size with its smallest and largest value; None if there is no largest one."""

    size: Size
    least: int
    most: int | None

    def check(self, where: str, value: int) -> None:
        """Raise a ValueError for a value outside of the bound."""
        if value < self.least or (self.most is not None and value > self.most):
            above = value >= self.least
            limit, remedy, examples = (
                (f"at most {self.most}", "truncate", "longer")
                if above
                else (f"at least {self.least}", "pad", "shorter")
            )
            raise ValueError(
                f"{where}: {self.size} is {value}, expected {limit}: for others, the model may compute something else; "
                f"{remedy} the input, or trace the model with other limits or import it with {examples} examples"
            )


def bounds_of(limits: Mapping[str, Limits]) -> list[Bound]:
    """The limits of named sizes as bounds."""
    return [
        Bound(Dim({(name,): 1}), least, None if most == math.inf else int(most))
        for name, (least, most) in limits.items()
    ]


def smallest(bounds: Iterable[Bound]) -> dict[str, tuple[int, int | None]]:
    """The least and the most of each size, by its text, that hold for all of its bounds."""
    ranges: dict[str, tuple[int, int | None]] = {}
    for size, least, most in bounds:
        other_least, other_most = ranges.get(str(size), (0, None))
        limits = [limit for limit in (most, other_most) if limit is not None]
        ranges[str(size)] = max(least, other_least), min(limits, default=None)
    return ranges
