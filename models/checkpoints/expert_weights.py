"""Checkpoints with separate weights for each expert, for models that keep all experts in one array."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lucid.models.checkpoints.quantized_weights import Array, Weight, as_array
from lucid.nn.module import StateError

_Stack: TypeAlias = list[list[str]]
"""The keys of one array: for each expert those that are joined along the rows."""


class ExpertWeights(Mapping[str, Weight]):
    """The weights of a checkpoint, some of them joined when they are asked for. Quantized ones are dequantized.

    Asking for weights that differ in shape or element type, so that they cannot be joined, raises a StateError that
    lists them.

    Args:
        weights: the checkpoint.
        stacked: the end of a key of this mapping -> the ends of keys of the checkpoint, with a ``*`` in the place of
            the expert's number, as in ``{"experts.down_proj": ("experts.*.down_proj.weight",)}``; several of one shape
            are joined along their rows. Where the experts are not 0, 1, 2, ..., each with all of these, the keys stay
            as they are.
    """

    def __init__(self, weights: Mapping[str, Weight], stacked: Mapping[str, Sequence[str]]) -> None:
        self.checkpoint = weights
        self._stacks = {key: stack for name, parts in stacked.items() for key, stack in _stacks(weights, name, parts)}
        joined = {key for stack in self._stacks.values() for keys in stack for key in keys}
        self._names = [*(key for key in weights if key not in joined), *self._stacks]

    def __getitem__(self, key: str) -> Weight:
        stack = self._stacks.get(key)
        return self.checkpoint[key] if stack is None else self._joined(key, stack)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _joined(self, key: str, stack: _Stack) -> Array:
        """The experts, copied one by one into one array, so memory never holds a second copy of all."""
        kind = _kind(self.checkpoint[stack[0][0]])
        result = np.empty((len(stack), len(stack[0]), *kind.shape), kind.dtype)
        for expert, names in enumerate(stack):
            for part, name in enumerate(names):
                numbers = as_array(self.checkpoint[name])
                if _kind(numbers) != kind:
                    raise StateError(self._misfits(key, stack))
                result[expert, part] = numbers
        return result.reshape(len(stack), math.prod(result.shape[1:3]), *result.shape[3:])

    def _misfits(self, key: str, stack: _Stack) -> str:
        """The weights of one array whose shape or type differs from most."""
        kinds = {name: _kind(self.checkpoint[name]) for names in stack for name in names}
        ((usual, _),) = Counter(kinds.values()).most_common(1)
        return "; ".join(
            f"{name} has {kind.other_than(usual)}, as others that are joined in {key}"
            for name, kind in kinds.items()
            if kind != usual
        )


class _Kind(NamedTuple):
    """The properties that joined weights have in common."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def other_than(self, expected: _Kind) -> str:
        if self.shape == expected.shape:
            return f"dtype {self.dtype}, expected {expected.dtype}"
        return f"shape {list(self.shape)}, expected {list(expected.shape)}"


def _kind(weight: Weight) -> _Kind:
    numbers = as_array(weight)
    return _Kind(numbers.shape, numbers.dtype)


def _stacks(weights: Mapping[str, Weight], name: str, parts: Sequence[str]) -> Iterator[tuple[str, _Stack]]:
    """The arrays of one name, each with its keys in the checkpoint."""
    first = re.compile("(.*)" + re.escape(parts[0]).replace(r"\*", "(0|[1-9][0-9]*)"))
    counts: Counter[str] = Counter()
    for key in weights:
        match = first.fullmatch(key)
        if match is not None:
            counts[match[1]] += 1
    for prefix, count in counts.items():
        stack = [[prefix + part.replace("*", str(n)) for part in parts] for n in range(count)]
        if all(key in weights for keys in stack for key in keys):
            yield prefix + name, stack
