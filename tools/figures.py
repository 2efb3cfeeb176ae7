"""Bounds on errors, as a page has them: measured, rounded up, and kept while they are true."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from itertools import count, takewhile


class Figures:
    """The figures of a page, by the first cell of their row and their place in it.

    Args:
        page: the page before.
        again: whether what it has is measured again; otherwise only new rows are measured.
    """

    def __init__(self, page: str, again: bool = True) -> None:
        self._again = again
        self.before: dict[tuple[str, int], float] = {}
        for line in page.splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            for index, value in enumerate(re.findall(r"<= (\d+e-?\d+)", line)):
                self.before[cells[0], index] = float(value)

    def of(self, name: str, measure: Callable[[], Iterable[float]]) -> list[str]:
        """The figures of the row of this name."""
        if self._again or (name, 0) not in self.before:
            return [figure(error, self.before.get((name, index))) for index, error in enumerate(measure())]
        return [shown(self.before[key]) for key in takewhile(self.before.__contains__, ((name, i) for i in count()))]


def figure(measured: float, before: float | None) -> str:
    """A bound: that of the page before if it fits, else 1, 2 or 5 times a power of ten, at least twice the error.

    Below 1e-6 there is only rounding, so that is the smallest bound.
    """
    bound = max(2 * measured, 1e-6)
    if before is None or not measured <= before <= 10.001 * bound:
        power = 10.0 ** math.floor(math.log10(bound) + 1e-9)
        before = next(step * power for step in (1, 2, 5, 10) if step * power >= bound * (1 - 1e-9))
    return shown(before)


def shown(bound: float) -> str:
    """A bound as text."""
    return f"<= {bound:.0e}".replace("e-0", "e-")
