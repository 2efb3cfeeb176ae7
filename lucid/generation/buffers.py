"""Buffers of keys and values that a session writes in place: a row of them is the memory of one text.

Any neighbouring rows can be read and written together, where they are: a part of a prompt by one row, the next token by
many. Nothing is copied by a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.core.graph.types import Array
from lucid.generation.encoder_output import Encoded
from lucid.generation.logits import StepLogits
from lucid.generation.prompts import Ids
from lucid.runtime.ort_values import RowsOf, in_place, numpy_of, ort_value, placed
from lucid.runtime.runs import NOT_COMPUTED_BOUND, BoundRun, refuse_index
from lucid.runtime.session import Session
from lucid.runtime.stepping import Carried, Stepping


@dataclass(frozen=True)
class _OneToken:
    """A step of one token a row, bound to memory: what it reads (n,) and writes (n, 1, vocab)."""

    ids: Array
    positions: Array
    logits: Array
    bound: BoundRun


class Buffers:
    """The buffers of a session.

    Args:
        session: exported with ``cache="fixed"``.
        caches: the output for each cache input, by name.
        heads: the number of heads of each cache input and their width.
        rows: how many texts they are for.
        capacity: how many positions a row has at first.
        encoded: the inputs that come from an encoder, if the session is a part of an encoder-decoder.

    Attributes:
        rows: how many texts they are for.
        capacity: how many positions a row has.
    """

    def __init__(
        self,
        session: Session,
        caches: Mapping[str, str],
        heads: Mapping[str, tuple[int, int]],
        rows: int,
        capacity: int,
        encoded: Encoded | None = None,
    ) -> None:
        self._session, self._caches, self.encoded = session, caches, encoded
        self._taker = Stepping(session, caches)
        shapes = {name: (rows, count, capacity, width) for name, (count, width) in heads.items()}
        # The system hands out zeros page by page, when they are written: what is not filled takes no memory.
        zeros = {name: np.zeros(shape, _type(session, name)) for name, shape in shapes.items()}
        self._bind({name: placed(z, session.memory) for name, z in zeros.items()})

    def _bind(self, values: Mapping[str, Any]) -> None:
        """Read and write these OrtValues (rows, heads, capacity, width), by the name of the cache input."""
        self.values = dict(values)
        self.rows, _, self.capacity, _ = next(iter(self.values.values())).shape()
        self._single: dict[tuple[int, int], _OneToken] = {}
        self._adapter = self._session.adapter  # a binding has its values
        vocabulary = self._session.outputs["logits"][1][-1]
        assert isinstance(vocabulary, int)
        shape = (self.rows, 1, vocabulary)
        self._logits = np.zeros(shape, _type_of_output(self._session))  # of all steps: one writes over those of another

    def run(self, start: int, ids: Ids, filled: Sequence[int]) -> StepLogits:
        """Read the next tokens of rows from `start` on; the buffers then hold them.

        Args:
            start: the first row.
            ids: (n, L), of n rows.
            filled: how many positions of each row come before.

        Returns:
            The logits after each token, or after the last (n, L or 1, vocab); the next run may write over them.
        """
        if self._adapter != self._session.adapter:
            self._bind(self.values)
        if len(ids) > 1 < ids.shape[1] and any(filled):  # the kernel that writes buffers takes one row
            each = range(len(ids))
            return np.concatenate([self.run(start + n, ids[n : n + 1], filled[n : n + 1]) for n in each])
        if ids.shape[1] > 1:
            positions = np.add.outer(filled, np.arange(ids.shape[1]))
            bound = self._bound(start, self._arrays(ids, positions), "cpu")
            _run(bound, ids)
            logits: StepLogits = numpy_of(bound.outputs()["logits"])
            return logits
        rows = start, len(ids)
        single = self._single.get(rows)
        if single is None:
            single = self._single[rows] = self._one_token(*rows)
        single.ids[:] = ids[:, 0]
        single.positions[:] = filled
        _run(single.bound, single.ids)
        return single.logits

    def enlarge(self, capacity: int, filled: Sequence[int]) -> None:
        """Give each row more positions; `filled` says how many of each are kept."""
        values = {}
        for name, value in self.values.items():
            before = numpy_of(value)
            rows, heads, _, width = before.shape
            after = np.zeros((rows, heads, capacity, width), before.dtype)
            for row, count in enumerate(filled):
                after[row, :, :count] = before[row, :, :count]
            values[name] = placed(after, self._session.memory)
        self._bind(values)

    def select(self, rows: Ids) -> None:
        """Go on with these rows (M,), in this order; one may be repeated."""
        self._bind(self._taker.rows(Carried(self.values), rows).values)
        self.encoded = self.encoded and self.encoded.rows(rows)

    def change(self, write: Callable[[Array], None]) -> None:
        """Change all buffers by a function that writes into one (rows, heads, capacity, width)."""
        for value in self.values.values():
            if value.device_name() == "cpu":
                write(in_place(value))
            else:
                array = value.numpy()
                write(array)
                value.update_inplace(array)

    def _one_token(self, start: int, count: int) -> _OneToken:
        zeros = np.zeros((count, 1), np.int64)
        arrays = self._arrays(zeros, zeros)
        logits = self._logits[:count]
        bound = self._bound(start, arrays, ort_value(logits))
        return _OneToken(arrays["input_ids"][:, 0], arrays["position_ids"][:, 0], logits, bound)

    def _bound(self, start: int, arrays: Mapping[str, Array], logits: Any) -> BoundRun:
        stop = start + len(arrays["input_ids"])
        rows = {name: RowsOf(value, start, stop) for name, value in self.values.items()}
        encoded = {} if self.encoded is None else self.encoded.values
        of_encoder = {name: RowsOf(value, start, stop) for name, value in encoded.items()}
        inputs = {name: ort_value(array) for name, array in arrays.items()}
        outputs = {"logits": logits, **{output: rows[name] for name, output in self._caches.items()}}
        return self._session.bind({**inputs, **rows, **of_encoder}, outputs)

    def _arrays(self, ids: Ids, positions: Ids) -> dict[str, Array]:
        """The inputs other than caches, in the session's element types; the mask is not read."""
        values = {"input_ids": ids, "position_ids": positions, "attention_mask": np.ones_like(ids)}
        types = {name: _type(self._session, name) for name in self._session.inputs if name in values}
        return {name: np.array(values[name], kind) for name, kind in types.items()}


def _run(bound: BoundRun, ids: Ids) -> None:
    """Run; raises IndexOutsideError for a token that the model does not have."""
    try:
        bound.run()
    except NOT_COMPUTED_BOUND as error:
        refuse_index(error, {"input_ids": ids})
        raise


def _type_of_output(session: Session) -> np.dtype[Any]:
    kind, _ = session.outputs["logits"]
    assert kind is not None
    return kind.numpy


def _type(session: Session, name: str) -> np.dtype[Any]:
    kind = session.inputs[name][0]
    assert kind is not None
    return kind.numpy
