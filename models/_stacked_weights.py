"""Checkpoints in which each expert has weights of its own, for models that have those of all experts in one array."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from lucid import WeightsError
from lucid.models._held_weights import Array, Held, numbers_of

_Stack: TypeAlias = list[list[str]]
"""The keys of one array: for each expert those that are joined along the rows."""


class StackedWeights(Mapping[str, Held]):
    """The weights of a checkpoint, some of them joined when they are asked for. Those in few bits are dequantised.

    Args:
        weights: the checkpoint.
        stacked: the end of a key of this mapping -> the ends of keys of the checkpoint, with a ``*`` in the place of
            the expert's number, as in ``{"experts.down_proj": ("experts.*.down_proj.weight",)}``; several are joined.
            Where the experts are not 0, 1, 2, ..., each with all of these, the keys stay as they are.
    """

    def __init__(self, weights: Mapping[str, Held], stacked: Mapping[str, Sequence[str]]) -> None:
        self.checkpoint = weights
        self._stacks = {key: stack for name, parts in stacked.items() for key, stack in _stacks(weights, name, parts)}
        joined = {key for stack in self._stacks.values() for keys in stack for key in keys}
        self._names = [*(key for key in weights if key not in joined), *self._stacks]

    def __getitem__(self, key: str) -> Held:
        stack = self._stacks.get(key)
        return self.checkpoint[key] if stack is None else self._joined(key, stack)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _joined(self, key: str, stack: _Stack) -> Array:
        """The experts one after the other, copied into one array: no two are in memory besides."""
        first = [numbers_of(self.checkpoint[name]) for name in stack[0]]
        result = np.empty((len(stack), sum(len(part) for part in first), *first[0].shape[1:]), first[0].dtype)
        for whole, names in zip(result, stack, strict=True):
            row = 0
            for name, like in zip(names, first, strict=True):
                part = numbers_of(self.checkpoint[name])
                if part.shape != like.shape or part.dtype != like.dtype or part.shape[1:] != whole.shape[1:]:
                    raise WeightsError(
                        f"{name} is {part.dtype}{list(part.shape)}, expected {like.dtype}{list(like.shape)} as of the "
                        f"first expert in {key}"
                    )
                whole[row : row + len(part)] = part
                row += len(part)
        return result


def _stacks(weights: Mapping[str, Held], name: str, parts: Sequence[str]) -> Iterator[tuple[str, _Stack]]:
    """The arrays of one name, each with its keys in the checkpoint."""
    first = re.compile("(.*)" + re.escape(parts[0]).replace(r"\*", "(0|[1-9][0-9]*)"))
    found: Counter[str] = Counter()
    for key in weights:
        match = first.fullmatch(key)
        if match is not None:
            found[match[1]] += 1
    for prefix, count in found.items():
        stack = [[prefix + part.replace("*", str(n)) for part in parts] for n in range(count)]
        if all(key in weights for keys in stack for key in keys):
            yield prefix + name, stack
