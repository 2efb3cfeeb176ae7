"""Slots: the memory of several texts, which are continued one by one or together.

Over buffers, neighbouring slots are continued where they are. Over growing caches, slots that are continued together
are a batch, which is made anew when others join or leave.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from lucid.core.graph.types import Array
from lucid.generation.buffers import Buffers
from lucid.generation.growing import Decoder
from lucid.generation.logits import StepLogits
from lucid.generation.prompts import Ids

V = TypeVar("V")


class Drafts(NamedTuple):
    """The most tokens of a draft that a step verifies; if none, the reason."""

    most: int = sys.maxsize
    reason: str = ""


@runtime_checkable
class Slots(Protocol):
    """Texts in numbered slots, empty at first.

    Attributes:
        key: of a slot: what its memory depends on besides its tokens, such as an adapter.
        drafts: how long a draft may be.
    """

    key: Callable[[int], object]
    drafts: Drafts

    def read(self, slots: Sequence[int], parts: Sequence[Ids], last: int = 1) -> StepLogits:
        """Read the next tokens (L,) of some slots. Several slots take one token each, or their first tokens.

        Returns:
            The logits after the last tokens of each part (n, `last` or more, vocab); the next call may write over them.
        """

    def keep(self, slot: int, source: int, count: int) -> int:
        """Let a slot hold what the first `count` positions of `source` hold, which may be the slot itself.

        Returns:
            How many positions it then holds: `count`, or fewer if they cannot be separated.
        """

    def select(self, slots: Sequence[int]) -> None:
        """Go on with these slots, in this order; one may be repeated."""

    def clear(self, slot: int) -> None:
        """Empty a slot and its memory, which may hold NaN."""


class BufferSlots:
    """Slots that are rows of buffers, which a session writes in place.

    The rows of a step are neighbours: where they are not, rows change places first, or those between them take part.

    Args:
        buffers: with a row for each slot.
        most: how many positions a row has in the end; None for any number.
        key, drafts: as for `Slots`.
    """

    def __init__(self, buffers: Buffers, most: int | None, key: Callable[[int], object], drafts: Drafts) -> None:
        self.key, self.drafts = key, drafts
        self.buffers, self._most = buffers, most
        self._filled = [0] * buffers.rows  # by row: Python's integers, as a step has few of them
        self._row = list(range(buffers.rows))  # by slot

    def read(self, slots: Sequence[int], parts: Sequence[Ids], last: int = 1) -> StepLogits:
        if len(slots) == 1:  # a lone request waits for what Python does in each step
            row, ids = self._row[slots[0]], parts[0][None]
            logits = self._run(row, ids, self._filled)
            self._filled[row] += ids.shape[1]
            return logits
        rows, lengths = self._together(slots), list(map(len, parts))
        first, longest = min(rows), max(lengths)
        places = [row - first for row in rows]
        ids = np.zeros((max(places) + 1, longest), np.int64)
        for place, part in zip(places, parts, strict=True):
            ids[place, : len(part)] = part  # padding, on the right, is written over by what follows
        filled = list(self._filled)
        if min(lengths) < longest:  # the last column is padding for some: a step reads their last tokens
            self._run(first, ids[:, :-1], filled)
            ids = ids[:, -1:]
            for row, place, part in zip(rows, places, parts, strict=True):
                filled[row] += len(part) - 1
                ids[place] = part[-1]
        logits = self._run(first, ids, filled)
        for row in rows:
            filled[row] += ids.shape[1]
        self._filled = filled  # not before: a run that another thread cancels is repeated from its start
        return logits if places == list(range(len(ids))) else logits[places]

    def keep(self, slot: int, source: int, count: int) -> int:
        row, other = self._row[slot], self._row[source]
        if row != other and count:

            def copy(array: Array) -> None:
                array[row, :, :count] = array[other, :, :count]

            self.buffers.change(copy)
        self._filled[row] = count
        return count

    def select(self, slots: Sequence[int]) -> None:
        rows = [self._row[slot] for slot in slots]
        if rows != list(range(len(self._filled))):
            self.buffers.select(np.array(rows))
            self._filled, self._row = [self._filled[row] for row in rows], list(range(len(rows)))

    def clear(self, slot: int) -> None:
        row = self._row[slot]

        def zero(array: Array) -> None:
            array[row] = 0

        self.buffers.change(zero)
        self._filled[row] = 0

    def _run(self, first: int, ids: Ids, filled: Sequence[int]) -> StepLogits:
        before = filled[first : first + len(ids)]
        needed = max(before) + ids.shape[1]
        capacity = self.buffers.capacity
        if needed > capacity:
            doubled = 2 * capacity if self._most is None else min(2 * capacity, self._most)
            self.buffers.enlarge(max(needed, doubled), filled)
        return self.buffers.run(first, ids, before)

    def _together(self, slots: Sequence[int]) -> list[int]:
        """The rows of slots, as neighbours."""
        rows = sorted(self._row[slot] for slot in slots)
        if self.buffers.encoded is None:  # else rows stay where their sources are
            for row in range(rows[0], rows[0] + len(rows)):
                if row not in rows:
                    self._swap(row, rows.pop())
        return [self._row[slot] for slot in slots]

    def _swap(self, row: int, other: int) -> None:
        both, swapped = [row, other], [other, row]
        count = max(self._filled[row], self._filled[other])

        def swap(array: Array) -> None:
            array[both, :, :count] = array[swapped, :, :count]

        self.buffers.change(swap)
        self._filled[row], self._filled[other] = self._filled[other], self._filled[row]
        first, second = self._row.index(row), self._row.index(other)
        self._row[first], self._row[second] = other, row


class Grown(NamedTuple, Generic[V]):
    """A batch as far as it is read: its keys and values, and a mask of padding."""

    values: V
    mask: Ids  # (N, P), 1 = a token, 0 = padding, which is on the left


class GrowingSlots(Generic[V]):
    """Slots that are rows of batches with a growing cache each.

    Args:
        decoder: continues a batch.
        empty: its keys and values of no tokens, with a row for each slot.
        count: how many slots there are.
        key, drafts: as for `Slots`.
    """

    def __init__(self, decoder: Decoder[V], empty: V, count: int, key: Callable[[int], object], drafts: Drafts) -> None:
        self.key, self.drafts = key, drafts
        self._decoder = decoder
        self._empty = Grown(empty, np.zeros((count, 0), np.int64))
        self._at = [(self._empty, slot) for slot in range(count)]  # the batch of each slot, and its row there

    def read(self, slots: Sequence[int], parts: Sequence[Ids], last: int = 1) -> StepLogits:
        order, (values, before) = self._batch(slots)
        places = [order.index(slot) for slot in slots]
        longest = max(map(len, parts))
        ids, new = np.zeros((2, len(parts), longest), np.int64)
        for row, part in zip(places, parts, strict=True):
            ids[row, longest - len(part) :], new[row, longest - len(part) :] = part, 1
        positions = np.maximum(before.sum(axis=1, keepdims=True) + np.cumsum(new, axis=1) - 1, 0)
        mask = np.concatenate([before, new], axis=1)
        logits, present = self._decoder.run(ids, mask, positions, values, last)
        self._set(order, Grown(present, mask))
        return logits if order == list(slots) else logits[places]

    def keep(self, slot: int, source: int, count: int) -> int:
        held, row = self._at[source]
        filled = int(held.mask[row].sum())
        if count == filled:
            if slot != source:
                self._at[slot] = self._alone(source), 0
            return count
        if not count or not self._decoder.separable:
            self.clear(slot)
            return 0
        values, mask = self._alone(source)
        start = mask.shape[1] - filled
        self._set([slot], Grown(self._decoder.cut(values, start, start + count), np.ones((1, count), np.int64)))
        return count

    def select(self, slots: Sequence[int]) -> None:
        batch, _ = self._at[0]
        self._at = [self._at[slot] for slot in slots]
        self._set(range(len(slots)), self._rows(batch, [row for _, row in self._at]))

    def clear(self, slot: int) -> None:
        self._at[slot] = self._empty, slot

    def _set(self, slots: Sequence[int], batch: Grown[V]) -> None:
        for row, slot in enumerate(slots):
            self._at[slot] = batch, row

    def _rows(self, batch: Grown[V], rows: list[int]) -> Grown[V]:
        if rows == list(range(len(batch.mask))):
            return batch
        return Grown(self._decoder.rows(batch.values, np.array(rows)), batch.mask[rows])

    def _alone(self, slot: int) -> Grown[V]:
        batch, row = self._at[slot]
        return self._rows(batch, [row])

    def _batch(self, slots: Sequence[int]) -> tuple[list[int], Grown[V]]:
        """These slots in some order, as one batch. It replaces their batches; other slots in these get a copy."""
        batches = {id(batch): batch for batch, _ in (self._at[slot] for slot in slots)}
        for slot, (batch, _) in enumerate(self._at):
            if slot not in slots and batch is not self._empty and id(batch) in batches:
                self._at[slot] = self._alone(slot), 0
        order, parts = list[int](), list[Grown[V]]()
        for batch in batches.values():
            own = sorted((slot for slot in slots if self._at[slot][0] is batch), key=lambda slot: self._at[slot][1])
            order += own
            parts.append(self._rows(batch, [self._at[slot][1] for slot in own]))
        return order, parts[0] if len(parts) == 1 else self._joined(parts)

    def _joined(self, parts: Sequence[Grown[V]]) -> Grown[V]:
        """Batches as one, with as little padding as there can be."""
        kept = [np.asarray(part.mask.any(axis=0)) for part in parts]
        lengths = [int(columns.sum()) for columns in kept]
        values = [
            part.values if columns.all() else self._decoder.cut(part.values, len(columns) - length, len(columns))
            for part, columns, length in zip(parts, kept, lengths, strict=True)
        ]
        padding = [max(lengths) - length for length in lengths]
        masks = [
            np.pad(part.mask[:, columns], [(0, 0), (count, 0)])
            for part, columns, count in zip(parts, kept, padding, strict=True)
        ]
        return Grown(self._decoder.joined(values, padding), np.concatenate(masks))
