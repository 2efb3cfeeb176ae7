"""Slots: the memory of several texts, each of which is continued by itself.

Over buffers, neighbouring slots are continued together, in one step of the model. Over growing caches, which have one
length in a batch, slots are continued one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from lucid.core.graph.types import Array
from lucid.generation.buffers import Buffers
from lucid.generation.growing import CutDecoder, Grown
from lucid.generation.prompts import Ids
from lucid.generation.sequences import StepLogits
from lucid.runtime.session import Session

V = TypeVar("V")


class Slots(Protocol):
    """Texts in numbered slots, empty at first."""

    def keep(self, slot: int, source: int, count: int) -> int:
        """Let a slot hold what the first `count` positions of `source` hold, which may be the slot itself.

        Returns:
            How many positions it then holds: `count`, or fewer if they cannot be separated.
        """
        ...

    def read(self, slot: int, ids: Ids) -> StepLogits:
        """Read the next tokens (L,) of a slot; the logits after the last (vocab,)."""
        ...

    def step(self, slots: Sequence[int], tokens: Sequence[int]) -> StepLogits:
        """Read one token of each of some slots; the logits after it (n, vocab)."""
        ...

    def clear(self, slot: int) -> None:
        """Empty a slot and its memory, which may hold NaN."""
        ...


class BufferSlots:
    """Slots that are rows of buffers, which a session writes in place.

    The rows of a step are neighbours: where they are not, rows change places first.

    Args:
        session, caches, heads: as for `FixedStepper`.
        count: how many slots there are.
        first, most: how many positions each has at first, and in the end; None for any number.
    """

    def __init__(
        self,
        session: Session,
        caches: Mapping[str, str],
        heads: Mapping[str, tuple[int, int]],
        count: int,
        first: int,
        most: int | None,
    ) -> None:
        self._buffers = Buffers.empty(session, caches, heads, count, first)
        self._most = most
        self._filled = np.zeros(count, np.int64)  # by row
        self._row = list(range(count))  # by slot

    def keep(self, slot: int, source: int, count: int) -> int:
        row, other = self._row[slot], self._row[source]
        if row != other and count:

            def copy(array: Array) -> None:
                array[row, :, :count] = array[other, :, :count]

            self._buffers.change(copy)
        self._filled[row] = count
        return count

    def read(self, slot: int, ids: Ids) -> StepLogits:
        row = self._row[slot]
        logits = self._run(row, ids[None])
        self._filled[row] += len(ids)
        return np.asarray(logits[0])

    def step(self, slots: Sequence[int], tokens: Sequence[int]) -> StepLogits:
        rows = self._together(slots)
        first = min(rows)
        ids = np.empty((len(rows), 1), np.int64)
        places = [row - first for row in rows]
        ids[places, 0] = tokens
        logits = self._run(first, ids)
        self._filled[first : first + len(rows)] += 1
        return logits if places == sorted(places) else logits[places]

    def clear(self, slot: int) -> None:
        row = self._row[slot]

        def zero(array: Array) -> None:
            array[row] = 0

        self._buffers.change(zero)
        self._filled[row] = 0

    def _run(self, first: int, ids: Ids) -> StepLogits:
        filled = self._filled[first : first + len(ids)]
        needed = int(filled.max()) + ids.shape[1]
        capacity = self._buffers.capacity
        if needed > capacity:
            doubled = 2 * capacity if self._most is None else min(2 * capacity, self._most)
            self._buffers.enlarge(max(needed, doubled), self._filled.tolist())
        return self._buffers.run(first, ids, filled)

    def _together(self, slots: Sequence[int]) -> list[int]:
        """The rows of slots, as neighbours."""
        rows = sorted(self._row[slot] for slot in slots)
        for row in range(rows[0], rows[0] + len(rows)):
            if row not in rows:
                self._swap(row, rows.pop())
        return [self._row[slot] for slot in slots]

    def _swap(self, row: int, other: int) -> None:
        both, swapped = [row, other], [other, row]
        count = int(self._filled[both].max())

        def swap(array: Array) -> None:
            array[both, :, :count] = array[swapped, :, :count]

        self._buffers.change(swap)
        self._filled[both] = self._filled[swapped]
        first, second = self._row.index(row), self._row.index(other)
        self._row[first], self._row[second] = other, row


class GrowingSlots(Generic[V]):
    """Slots with a growing cache each: a step is a run of the decoder for each."""

    def __init__(self, decoder: CutDecoder[V], count: int) -> None:
        self._decoder = decoder
        self._none: Grown[V] = Grown(decoder.empty(1), np.zeros((1, 0), np.int64))
        self._caches = [self._none] * count

    def keep(self, slot: int, source: int, count: int) -> int:
        held = self._caches[source]
        if held.mask.shape[1] != count:
            values = self._decoder.first(held.values, count) if count else None
            held = self._none if values is None else Grown(values, held.mask[:, :count])
        self._caches[slot] = held
        return len(held.mask[0])

    def read(self, slot: int, ids: Ids) -> StepLogits:
        values, before = self._caches[slot]
        mask = np.ones((1, before.shape[1] + len(ids)), np.int64)
        positions = np.arange(before.shape[1], mask.shape[1])[None]
        logits, present = self._decoder.run(ids[None], mask, positions, values)
        self._caches[slot] = Grown(present, mask)
        return np.asarray(logits[0])

    def step(self, slots: Sequence[int], tokens: Sequence[int]) -> StepLogits:
        ids = np.array(tokens)[:, None]
        return np.stack([self.read(slot, token) for slot, token in zip(slots, ids, strict=True)])

    def clear(self, slot: int) -> None:
        self._caches[slot] = self._none
