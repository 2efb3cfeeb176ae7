"""Names: those of parameters, known by their arrays, and those that nothing else has yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from lucid.types import Array


class _HasArray(Protocol):
    def numpy(self) -> Array: ...


class Names:
    """The names of parameters by the identity of their arrays. Holds the arrays, so that an identity is never
    reused."""

    def __init__(self, named: Mapping[str, _HasArray]) -> None:
        """`named` maps a name to something with a `numpy()` method; the first name of an array counts."""
        self._names: dict[int, tuple[str, Array]] = {}
        for name, tensor in named.items():
            array = tensor.numpy()
            self._names.setdefault(id(array), (name, array))

    @staticmethod
    def of(pairs: Iterable[tuple[str, Array]]) -> Names:
        """These names of these arrays."""
        names = Names({})
        names._names = {id(array): (name, array) for name, array in pairs}
        return names

    def get(self, array: Array) -> str | None:
        """The name of an array, if it has one."""
        found = self._names.get(id(array))
        return found[0] if found else None


def unused_name(name: str, taken: dict[str, int]) -> str:
    """The name, or with a number behind it where it is taken; it is taken then.

    `taken` holds the last number given to each name, so that a thousand of one name are no more work than that many
    names.
    """
    number = taken.get(name, 0) + 1
    while (candidate := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    taken[name] = number
    taken.setdefault(candidate, 1)
    return candidate
