"""Steps over a cache that grows: each returns a longer one and leaves the one before as it is.

The names of a session's inputs and outputs are those of `to_onnx(model, cache="growing")`, optimum and
onnxruntime-genai. Padding is on the left, and hidden by a mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from lucid.generation.models import CACHE
from lucid.generation.prompts import Ids, Prompt
from lucid.generation.sequences import StepLogits
from lucid.nn import Cache, CausalDecoder, KeyValueCache
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime.ort_values import numpy_of, ort_value
from lucid.runtime.session import Session
from lucid.runtime.stepping import Carried, Stepping

V = TypeVar("V")


class Decoder(Protocol[V]):
    """A decoder that takes some tokens at a time, over keys and values of earlier ones."""

    def empty(self, batch: int) -> V:
        """The keys and values of no tokens."""
        ...

    def run(self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, past: V) -> tuple[StepLogits, V]:
        """Read the next tokens.

        Args:
            input_ids: (N, L), the new tokens only.
            attention_mask: (N, P + L), of earlier and new tokens.
            position_ids: (N, L).
            past: of P tokens.

        Returns:
            The logits after the last token (N, vocab), and the keys and values of P + L tokens.
        """
        ...

    def rows(self, past: V, rows: Ids) -> V:
        """Rows (M,) of keys and values, in this order."""
        ...


class CutDecoder(Decoder[V], Protocol[V]):
    """A decoder of which the keys and values of the first positions can be told from the others."""

    def first(self, past: V, count: int) -> V | None:
        """The keys and values of the first positions; None for states, which are of all positions."""
        ...


class Grown(NamedTuple, Generic[V]):
    """What has been read: its keys and values, and which of it is padding."""

    values: V
    mask: Ids
    """(N, P), 1 = a token, 0 = padding."""


class GrowingStepper(Generic[V]):
    """A `Stepper` over a decoder with a growing cache."""

    def __init__(self, decoder: Decoder[V]) -> None:
        self._decoder = decoder

    def prefill(self, prompt: Prompt, most: int) -> tuple[StepLogits, Grown[V]]:
        positions = np.maximum(np.cumsum(prompt.mask, axis=1) - 1, 0)  # padding on the left does not count
        empty = self._decoder.empty(len(prompt.ids))
        logits, values = self._decoder.run(prompt.ids, prompt.mask, positions, empty)
        return logits, Grown(values, prompt.mask)

    def step(self, tokens: Ids, cache: Grown[V]) -> tuple[StepLogits, Grown[V]]:
        new = tokens[:, None]
        positions = cache.mask.sum(axis=1, keepdims=True)
        mask = np.concatenate([cache.mask, np.ones_like(new)], axis=1)
        logits, values = self._decoder.run(new, mask, positions, cache.values)
        return logits, Grown(values, mask)

    def reordered(self, cache: Grown[V], rows: Ids) -> Grown[V]:
        return Grown(self._decoder.rows(cache.values, rows), cache.mask[rows])


class EagerDecoder:
    """A model that runs on NumPy."""

    def __init__(self, model: CausalDecoder) -> None:
        self._model = model

    def empty(self, batch: int) -> list[Cache]:
        return self._model.empty_cache(batch)

    def run(
        self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, past: list[Cache]
    ) -> tuple[StepLogits, list[Cache]]:
        ids, mask, positions = map(Tensor.from_array, (input_ids, attention_mask, position_ids))
        keep = 1 if self._model.takes_logits_to_keep else None
        logits, present = self._model(ids, mask, positions, past_key_values=past, logits_to_keep=keep)
        return logits.numpy()[:, -1], present

    def rows(self, past: list[Cache], rows: Ids) -> list[Cache]:
        def taken(part: Any) -> Any:
            return Tensor.from_array(part.numpy()[rows])

        return [type(layer)(*map(taken, layer)) for layer in past]

    def first(self, past: list[Cache], count: int) -> list[Cache] | None:
        if not all(isinstance(layer, KeyValueCache) for layer in past):
            return None
        return [KeyValueCache(layer.key[:, :, :count], layer.value[:, :, :count]) for layer in past]


class SessionDecoder:
    """An exported model in onnxruntime; keys and values stay in its memory."""

    def __init__(self, session: Session, caches: Mapping[str, str], empty: Mapping[str, tuple[int, ...]]) -> None:
        """`empty`: the shapes before the first token, without the batch."""
        self._stepping = Stepping(session, caches)
        self._types = {name: kind.numpy for name, (kind, _) in session.inputs.items() if kind is not None}
        self._empty = empty

    def empty(self, batch: int) -> Carried:
        return self._stepping.zeros({name: (batch, *shape) for name, shape in self._empty.items()})

    def run(self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, past: Carried) -> tuple[StepLogits, Carried]:
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        inputs = {name: array.astype(self._types[name]) for name, array in given.items() if name in self._types}
        outputs, present = self._stepping.run(inputs, past)
        return outputs["logits"][:, -1], present

    def rows(self, past: Carried, rows: Ids) -> Carried:
        return self._stepping.rows(past, rows)

    def first(self, past: Carried, count: int) -> Carried | None:
        if not all(map(CACHE.fullmatch, past.values)):
            return None
        return Carried({name: ort_value(numpy_of(value)[:, :, :count]) for name, value in past.values.items()})
