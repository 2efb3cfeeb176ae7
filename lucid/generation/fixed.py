"""Steps of a session over buffers of a fixed capacity, which it writes in place: no step copies a cache.

The buffers are bound to the session once, as past and as present, and so are the arrays of ids and logits: a step
writes the new tokens into an array, runs, and reads an array. Texts of different lengths are padded on the right, where
the next tokens overwrite the padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.core.graph.types import Array, DType
from lucid.generation.encoder_output import Encoded
from lucid.generation.prompts import Ids, Prompt
from lucid.generation.sequences import StepLogits
from lucid.runtime.ort_values import numpy_of, ort_value, placed
from lucid.runtime.runs import BoundRun
from lucid.runtime.session import Session
from lucid.runtime.stepping import Carried, Stepping

_FIRST_CAPACITY = 256


@dataclass
class Filled:
    """Buffers, and how much of them is filled. A step changes them."""

    buffers: dict[str, Any]
    """OrtValues by the name of the input."""
    lengths: Ids
    """(N,), of each row."""
    capacity: int
    longest: int
    """The most positions that will be needed."""
    encoded: Encoded | None
    """The inputs that come from an encoder, if there is one."""
    single: OneToken | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The inputs that a step does not make itself."""
        return {**self.buffers, **(self.encoded.values if self.encoded else {})}


@dataclass(frozen=True)
class OneToken:
    """A step of one token a row, bound to memory: what it reads (N,) and writes (N, vocab)."""

    ids: Array
    positions: Array
    logits: Array
    bound: BoundRun


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
        capacity = self._capacity or min(total, max(_FIRST_CAPACITY, 2 * longest))
        encoded = self._encoded and self._encoded.checked(batch)
        cache = Filled(self._zeros(batch, capacity), np.zeros_like(lengths), capacity, total, encoded)
        ids = np.zeros((batch, longest), np.int64)
        for row, length in enumerate(lengths):
            ids[row, :length] = prompt.ids[row, prompt.mask[row] == 1]
        if (lengths == longest).all():
            logits = self._read(ids, cache)
            cache.lengths = lengths
            return logits, cache
        # Of rows of several lengths, the last column is padding for some: their last token is read by a step.
        self._read(ids[:, :-1], cache)
        cache.lengths = lengths - 1
        return self.step(ids[np.arange(batch), lengths - 1], cache)

    def step(self, tokens: Ids, cache: Filled) -> tuple[StepLogits, Filled]:
        needed = max(cache.lengths.tolist()) + 1
        if needed > cache.capacity:
            self._enlarge(cache, needed)
        single = cache.single = cache.single or self._one_token(cache)
        single.ids[:] = tokens
        single.positions[:] = cache.lengths
        single.bound.run()
        cache.lengths += 1
        return single.logits, cache

    def reordered(self, cache: Filled, rows: Ids) -> Filled:
        taken = dict(self._rows.rows(Carried(cache.buffers), rows).values)
        encoded = cache.encoded and cache.encoded.rows(rows)
        return Filled(taken, cache.lengths[rows], cache.capacity, cache.longest, encoded)

    def _read(self, ids: Ids, cache: Filled) -> StepLogits:
        """Several tokens of each row, at once; the logits after the last."""
        positions = cache.lengths[:, None] + np.arange(ids.shape[1])
        inputs = {name: ort_value(array) for name, array in self._arrays(ids, positions).items()}
        bound = self._session.bind({**inputs, **cache.given}, self._outputs(cache, "cpu"))
        bound.run()
        logits: StepLogits = numpy_of(bound.outputs()["logits"])[:, -1]
        return logits

    def _one_token(self, cache: Filled) -> OneToken:
        batch = len(cache.lengths)
        arrays = self._arrays(np.zeros((batch, 1), np.int64), np.zeros((batch, 1), np.int64))
        kind, shape = self._session.outputs["logits"]
        assert kind is not None and isinstance(shape[-1], int)
        logits = np.zeros((batch, 1, shape[-1]), kind.numpy)
        inputs = {name: ort_value(array) for name, array in arrays.items()}
        bound = self._session.bind({**inputs, **cache.given}, self._outputs(cache, ort_value(logits)))
        return OneToken(arrays["input_ids"][:, 0], arrays["position_ids"][:, 0], logits[:, 0], bound)

    def _arrays(self, ids: Ids, positions: Ids) -> dict[str, Array]:
        """The inputs other than caches, in the session's element types; the mask is not read."""
        given = {"input_ids": ids, "position_ids": positions, "attention_mask": np.ones_like(ids)}
        return {
            name: np.ascontiguousarray(given[name].astype(kind.numpy))
            for name, (kind, _) in self._session.inputs.items()
            if name in given and kind is not None
        }

    def _outputs(self, cache: Filled, logits: Any) -> dict[str, Any]:
        return {"logits": logits, **{output: cache.buffers[name] for name, output in self._caches.items()}}

    def _zeros(self, batch: int, capacity: int) -> dict[str, Any]:
        memory = self._session.memory
        return {
            name: placed(np.zeros((batch, heads, capacity, width), self._dtype(name).numpy), memory)
            for name, (heads, width) in self._heads.items()
        }

    def _enlarge(self, cache: Filled, needed: int) -> None:
        """Double the capacity, at most to what will be needed in the end."""
        before, cache.capacity = cache.capacity, max(needed, min(2 * cache.capacity, cache.longest))
        added = ((0, 0), (0, 0), (0, cache.capacity - before), (0, 0))
        for name, value in cache.buffers.items():
            cache.buffers[name] = placed(np.pad(numpy_of(value), added), self._session.memory)
        cache.single = None

    def _dtype(self, name: str) -> DType:
        kind = self._session.inputs[name][0]
        assert kind is not None
        return kind
