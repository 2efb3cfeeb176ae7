"""Steps of a session over buffers of a fixed capacity, which it writes in place: no step copies a cache.

Texts of different lengths are padded on the right, where the next tokens overwrite the padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lucid.generation.buffers import Buffers
from lucid.generation.encoder_output import Encoded
from lucid.generation.prompts import Ids, Prompt
from lucid.generation.sequences import StepLogits
from lucid.runtime.session import Session
from lucid.runtime.stepping import Carried, Stepping

FIRST_CAPACITY = 256
"""How many positions buffers begin with, where fewer than needed in the end suffice."""


@dataclass
class Filled:
    """Buffers, and how much of them is filled. A step changes them."""

    buffers: Buffers
    lengths: Ids
    """(N,), of each row."""
    longest: int
    """The most positions that will be needed."""
    encoded: Encoded | None
    """The inputs that come from an encoder, if there is one."""


class FixedStepper:
    """A `Stepper` over a session with buffers.

    Args:
        session: exported with ``cache="fixed"``.
        caches: the output for each cache input, by name.
        heads: the number of heads of each cache input and their width.
        capacity: of the buffers, where the session fixes it; None where it takes any.
        encoded: the inputs that come from an encoder, if the session is a part of an encoder-decoder.
    """

    def __init__(
        self,
        session: Session,
        caches: Mapping[str, str],
        heads: Mapping[str, tuple[int, int]],
        capacity: int | None,
        encoded: Encoded | None = None,
    ) -> None:
        self._session, self._caches, self._heads, self._capacity = session, dict(caches), heads, capacity
        self._encoded = encoded
        self._rows = Stepping(session, caches)

    def prefill(self, prompt: Prompt, most: int) -> tuple[StepLogits, Filled]:
        lengths = prompt.mask.sum(axis=1)
        batch, longest = len(lengths), int(lengths.max())
        total = longest + most
        capacity = self._capacity or min(total, max(FIRST_CAPACITY, 2 * longest))
        encoded = self._encoded and self._encoded.checked(batch)
        given = encoded.values if encoded else None
        buffers = Buffers.empty(self._session, self._caches, self._heads, batch, capacity, given)
        cache = Filled(buffers, np.zeros_like(lengths), total, encoded)
        ids = np.zeros((batch, longest), np.int64)
        for row, length in enumerate(lengths):
            ids[row, :length] = prompt.ids[row, prompt.mask[row] == 1]
        if (lengths == longest).all():
            logits = buffers.run(0, ids, cache.lengths)
            cache.lengths = lengths
            return logits, cache
        # Of rows of several lengths, the last column is padding for some: their last token is read by a step.
        buffers.run(0, ids[:, :-1], cache.lengths)
        cache.lengths = lengths - 1
        return self.step(ids[np.arange(batch), lengths - 1], cache)

    def step(self, tokens: Ids, cache: Filled) -> tuple[StepLogits, Filled]:
        lengths, buffers = cache.lengths.tolist(), cache.buffers
        needed = max(lengths) + 1
        if needed > buffers.capacity:
            buffers.enlarge(max(needed, min(2 * buffers.capacity, cache.longest)), lengths)
        logits = buffers.run(0, tokens[:, None], cache.lengths)
        cache.lengths = cache.lengths + 1
        return logits, cache

    def reordered(self, cache: Filled, rows: Ids) -> Filled:
        taken = self._rows.rows(Carried(cache.buffers.values), rows).values
        encoded = cache.encoded and cache.encoded.rows(rows)
        buffers = Buffers(self._session, self._caches, taken, encoded.values if encoded else None)
        return Filled(buffers, cache.lengths[rows], cache.longest, encoded)
