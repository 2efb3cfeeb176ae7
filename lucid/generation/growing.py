"""Decoders with a growing cache: each run returns a longer cache and leaves the earlier one unchanged.

The names of a session's inputs and outputs are those of `to_onnx(model, cache="growing")`, optimum and
onnxruntime-genai. Padding is on the left, and hidden by a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from lucid.core.graph.types import Array
from lucid.generation.logits import StepLogits
from lucid.generation.models import CACHE
from lucid.generation.prompts import Ids
from lucid.nn import Cache, CausalDecoder, KeyValueCache
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime.ort_values import numpy_of, ort_value
from lucid.runtime.session import Session
from lucid.runtime.stepping import Carried, Stepping

V = TypeVar("V")


class Decoder(Protocol[V]):
    """A decoder that takes some tokens at a time, over keys and values of earlier ones.

    Attributes:
        separable: whether single positions can be cut from the cache; states cannot be cut.
    """

    separable: bool

    def empty(self, batch: int) -> V:
        """The keys and values of no tokens."""

    def run(self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, past: V, last: int) -> tuple[StepLogits, V]:
        """Read the next tokens.

        Args:
            input_ids: (N, L), the new tokens only.
            attention_mask: (N, P + L), of earlier and new tokens.
            position_ids: (N, L).
            past: of P tokens.
            last: how many of the last positions need logits.

        Returns:
            The logits after the last tokens (N, `last` or more, vocab), and the keys and values of P + L tokens.
        """

    def rows(self, past: V, rows: Ids) -> V:
        """Rows (M,) of keys and values, in this order."""

    def cut(self, past: V, start: int, stop: int) -> V:
        """The keys and values of some positions; states stay as they are, so only padding may be cut off from them."""

    def joined(self, pasts: Sequence[V], padding: Sequence[int]) -> V:
        """Batches as one, each with so many positions of padding before its own."""


class EagerDecoder:
    """A model that runs on NumPy."""

    def __init__(self, model: CausalDecoder) -> None:
        self._model = model
        self.separable = all(isinstance(layer, KeyValueCache) for layer in model.empty_cache(1))

    def empty(self, batch: int) -> list[Cache]:
        return self._model.empty_cache(batch)

    def run(
        self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, past: list[Cache], last: int
    ) -> tuple[StepLogits, list[Cache]]:
        ids, mask, positions = map(Tensor.from_array, (input_ids, attention_mask, position_ids))
        keep = last if self._model.takes_logits_to_keep else None
        logits, present = self._model(ids, mask, positions, past_key_values=past, logits_to_keep=keep)
        return logits.numpy(), present

    def rows(self, past: list[Cache], rows: Ids) -> list[Cache]:
        return [changed(lambda part: part[rows], layer) for layer in past]

    def cut(self, past: list[Cache], start: int, stop: int) -> list[Cache]:
        return [
            changed(lambda part: part[:, :, start:stop], layer) if isinstance(layer, KeyValueCache) else layer
            for layer in past
        ]

    def joined(self, pasts: Sequence[list[Cache]], padding: Sequence[int]) -> list[Cache]:
        def join(*parts: Array) -> Array:
            return _joined(parts, padding)

        def stack(*parts: Array) -> Array:
            return np.concatenate(parts)

        every = zip(*pasts, strict=True)
        return [changed(join if isinstance(layers[0], KeyValueCache) else stack, *layers) for layers in every]


class SessionDecoder:
    """An exported model in onnxruntime; keys and values stay in its memory."""

    def __init__(self, session: Session, caches: Mapping[str, str], empty: Mapping[str, tuple[int, ...]]) -> None:
        """`empty`: the shapes before the first token, without the batch."""
        self._stepping, self.separable = Stepping(session, caches), all(map(CACHE.fullmatch, caches))
        self._types = {name: kind.numpy for name, (kind, _) in session.inputs.items() if kind is not None}
        self._empty = empty

    def empty(self, batch: int) -> Carried:
        return self._stepping.zeros({name: (batch, *shape) for name, shape in self._empty.items()})

    def run(
        self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, past: Carried, last: int
    ) -> tuple[StepLogits, Carried]:
        arrays = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        inputs = {name: array.astype(self._types[name]) for name, array in arrays.items() if name in self._types}
        outputs, present = self._stepping.run(inputs, past)
        return outputs["logits"], present

    def rows(self, past: Carried, rows: Ids) -> Carried:
        return self._stepping.rows(past, rows)

    def cut(self, past: Carried, start: int, stop: int) -> Carried:
        return Carried(
            {
                name: ort_value(numpy_of(value)[:, :, start:stop]) if CACHE.fullmatch(name) else value
                for name, value in past.values.items()
            }
        )

    def joined(self, pasts: Sequence[Carried], padding: Sequence[int]) -> Carried:
        values = {}
        for name in self._empty:
            parts = [numpy_of(past.values[name]) for past in pasts]
            values[name] = ort_value(_joined(parts, padding) if CACHE.fullmatch(name) else np.concatenate(parts))
        return Carried(values)


def changed(change: Callable[..., Array], *layers: Any) -> Any:
    """The cache or state of a layer, whose parts are a function of the parts of `layers`."""
    parts = zip(*layers, strict=True)
    return type(layers[0])(*(Tensor.from_array(change(*(one.numpy() for one in part))) for part in parts))


def _joined(parts: Sequence[Array], padding: Sequence[int]) -> Array:
    """Arrays (N, H, P, d) with so many zeros before their positions, as one batch."""
    return np.concatenate(
        [np.pad(part, [(0, 0), (0, 0), (n, 0), (0, 0)]) for part, n in zip(parts, padding, strict=True)]
    )
