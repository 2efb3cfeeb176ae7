"""Names of parameters, found by their arrays, and new names that are not used yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from lucid.core.graph.types import Array


class _HasArray(Protocol):
    def numpy(self) -> Array: ...


class Names:
    """The names of parameters by the identity of their arrays, which it keeps alive so that no identity is reused."""

    def __init__(self, named: Mapping[str, _HasArray]) -> None:
        """`named` maps a name to something with a `numpy()` method; the first name of an array counts."""
        self._names: dict[int, tuple[str, Array]] = {}
        for name, tensor in named.items():
            array = tensor.numpy()
            self._names.setdefault(id(array), (name, array))

    @staticmethod
    def of(pairs: Iterable[tuple[str, Array]]) -> Names:
        """Names from pairs of a name and an array."""
        names = Names({})
        names._names = {id(array): (name, array) for name, array in pairs}
        return names

    def extended(self, pairs: Iterable[tuple[str, Array]]) -> Names:
        """These names and more."""
        names = Names({})
        names._names = {id(array): (name, array) for name, array in pairs} | self._names
        return names

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
