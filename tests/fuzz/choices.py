"""The integers that determine a random program: drawn from a seed, or given and then made smaller."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """A stream of choices. They are recorded, and the same choices make the same program."""

    def __init__(self, seed: int = 0, recorded: Sequence[int] | None = None) -> None:
        """`recorded` replaces the seed; after its end every choice is the first."""
        self._random = random.Random(seed)
        self._recorded = recorded
        self.taken: list[int] = []

    def number(self, low: int, high: int) -> int:
        """An integer from low to high; its distance from low is recorded."""
        if self._recorded is None:
            drawn = self._random.randrange(high - low + 1)
        else:
            at = len(self.taken)
            drawn = min(self._recorded[at], high - low) if at < len(self._recorded) else 0
        self.taken.append(drawn)
        return low + drawn

    def choose(self, options: Sequence[T]) -> T:
        """One of some options."""
        return options[self.number(0, len(options) - 1)]

    def flag(self) -> bool:
        """False or true, equally often."""
        return bool(self.number(0, 1))

    def order(self, count: int) -> list[int]:
        """A permutation of the numbers below `count`."""
        left = list(range(count))
        return [left.pop(self.number(0, len(left) - 1)) for _ in range(count)]


def smallest(taken: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int = 2000) -> list[int]:
    """Fewer and smaller choices that still fail: runs of them are removed, then each is lowered."""
    best = list(taken)
    left = tries

    def attempt(candidate: list[int]) -> bool:
        nonlocal best, left
        left -= 1
        if left < 0 or candidate == best or not fails(candidate):
            return False
        best = candidate
        return True

    improved = True
    while improved and left > 0:
        improved = False
        for size in (16, 8, 4, 2, 1):
            at = len(best) - size
            while at >= 0:
                improved |= attempt(best[:at] + best[at + size :])
                at -= size
        for at in range(len(best)):
            for lower in sorted({0, best[at] // 2, max(0, best[at] - 1)}):
                if at < len(best) and lower < best[at] and attempt([*best[:at], lower, *best[at + 1 :]]):
                    improved = True
                    break
    return best
