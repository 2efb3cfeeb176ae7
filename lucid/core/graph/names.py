"""Names of parameters, found by their arrays, and new names that are not used yet."""

from __future__ import annotations

from collections.abc import Iterable

from lucid.core.graph.types import Array


class Names:
    """The names of parameters by the identity of their arrays, which it keeps alive so that no identity is reused."""

    def __init__(self, named: Iterable[tuple[str, Array]] = ()) -> None:
        """`named` are pairs of a name and an array; the first name of an array counts."""
        self._names: dict[int, tuple[str, Array]] = {}
        for name, array in named:
            self._names.setdefault(id(array), (name, array))

    def extended(self, named: Iterable[tuple[str, Array]]) -> Names:
        """These names and more; an array that has a name keeps it."""
        return Names([*self._names.values(), *named])

    def get(self, array: Array) -> str | None:
        """The name of an array, if it has one."""
        entry = self._names.get(id(array))
        return entry[0] if entry else None


def unused_name(name: str, taken: dict[str, int]) -> str:
    """The name, with a number appended if it is taken; the result is added to `taken`.

    `taken` holds the last number given to each name, so that a name used a thousand times costs no search.
    """
    number = taken.get(name, 0) + 1
    while (candidate := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    taken[name] = number
    taken.setdefault(candidate, 1)
    return candidate
