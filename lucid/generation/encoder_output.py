"""Decoders over the output of an encoder, which is computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid.generation.growing import changed
from lucid.generation.logits import StepLogits
from lucid.generation.models import heads_of
from lucid.generation.prompts import Ids
from lucid.nn import EncoderDecoder, EncoderDecoderCache
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime.ort_values import numpy_of, ort_value
from lucid.runtime.session import Session
from lucid.runtime.stepping import Carried, Stepping

BRANCH = "use_cache_branch"  # the input of a merged decoder that says whether there is a cache


class Encoded:
    """The inputs of a session that come from an encoder, and the source of each row of a batch.

    Beams of one source share the inputs, which are copied only when a row changes its source.

    Args:
        session: the decoder.
        values: OrtValues by the name of the input.
        sources: (N,), rows of the encoder's input.
    """

    def __init__(
        self, session: Session, values: Mapping[str, Any], sources: Ids, taker: Stepping | None = None
    ) -> None:
        self.values, self.sources = values, sources
        self._session, self._taker = session, taker or Stepping(session, dict.fromkeys(values, ""))

    def checked(self, batch: int) -> Encoded:
        """The inputs, if there is one source for each text.

        Raises:
            ValueError: for another number of texts.
        """
        check_batch(batch, len(self.sources))
        return self

    def joined(self, values: Mapping[str, Any]) -> Encoded:
        """A copy with inputs added or replaced."""
        return Encoded(self._session, {**self.values, **values}, self.sources)

    def rows(self, rows: Ids) -> Encoded:
        """The inputs for these rows (M,), in this order."""
        sources, values = self.sources[rows], self.values
        if not np.array_equal(sources, self.sources):
            values = self._taker.rows(Carried(values), rows).values
        return Encoded(self._session, values, sources, self._taker)


def check_batch(texts: int, sources: int) -> None:
    """Refuse another number of texts than of sources.

    Raises:
        ValueError: if they differ.
    """
    if texts != sources:
        raise ValueError(f"generate: got {texts} texts for {sources} inputs of the encoder, expected one for each")


def _check_unpadded(attention_mask: Ids) -> None:
    if not attention_mask.all():
        raise _different_lengths()


def _different_lengths() -> ValueError:
    return ValueError(
        "generate: the decoder's texts have different lengths, expected one length: an encoder-decoder has no mask "
        'for them; export its decoder with cache="fixed", or continue them one by one'
    )


class _OneBatch:
    """A decoder whose rows, each of its own source, are continued together from the start on."""

    separable = False

    def cut(self, past: Any, start: int, stop: int) -> Any:
        raise _different_lengths()

    def joined(self, pasts: Sequence[Any], padding: Sequence[int]) -> Any:
        raise _different_lengths()


class EagerPast(NamedTuple):
    """The caches of a model's decoder, and the source of each row."""

    caches: Sequence[EncoderDecoderCache]
    mask: Tensor | None
    sources: Ids


class EagerEncoded(_OneBatch):
    """The decoder of a model that runs on NumPy.

    Args:
        states: the encoder's output (N, S, E).
        mask: (N, S) int64, 1 = keep.
    """

    def __init__(self, model: EncoderDecoder, states: Tensor, mask: Tensor | None) -> None:
        self._model, self._states, self._mask = model, states, mask

    def empty(self, batch: int) -> EagerPast:
        check_batch(batch, int(self._states.shape[0]))
        return EagerPast(self._model.empty_cache(self._states), self._mask, np.arange(batch))

    def run(
        self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, past: EagerPast, last: int
    ) -> tuple[StepLogits, EagerPast]:
        _check_unpadded(attention_mask)
        logits, present = self._model.decode(Tensor.from_array(input_ids), past.caches, past.mask)
        return logits.numpy(), past._replace(caches=present)

    def rows(self, past: EagerPast, rows: Ids) -> EagerPast:
        def taken(layer: Any) -> Any:
            return changed(lambda part: part[rows], layer)

        mask, sources = past.mask, past.sources[rows]
        moved = not np.array_equal(sources, past.sources)
        caches = [EncoderDecoderCache(taken(own), taken(cross) if moved else cross) for own, cross in past.caches]
        if moved and mask is not None:
            mask = Tensor.from_array(mask.numpy()[rows])
        return EagerPast(caches, mask, sources)


class SessionPast(NamedTuple):
    """The caches of an exported decoder."""

    own: Mapping[str, Any]  # keys and values of its positions, OrtValues by the name of the input
    encoded: Encoded
    first: bool  # whether a merged decoder still has to compute the keys and values of the encoder's positions


class SessionEncoded(_OneBatch):
    """An exported decoder in onnxruntime; keys and values stay in its memory.

    Args:
        session: a step with a growing cache, or a merged decoder.
        own: the output for each input that is a cache of the decoder's positions.
        cross: the same for those of the encoder's positions, which only a merged decoder returns.
        encoded: the inputs that come from the encoder; without those of `cross` the decoder must be merged.
    """

    def __init__(self, session: Session, own: Mapping[str, str], cross: Mapping[str, str], encoded: Encoded) -> None:
        self._session, self._own, self._cross, self._encoded = session, own, cross, encoded
        self._taker = Stepping(session, own)

    def empty(self, batch: int) -> SessionPast:
        encoded = self._encoded.checked(batch)
        first = not self._cross.keys() <= encoded.values.keys()
        encoded = encoded.joined(self._no_positions(self._cross, batch)) if first else encoded
        return SessionPast(self._no_positions(self._own, batch), encoded, first)

    def run(
        self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, past: SessionPast, last: int
    ) -> tuple[StepLogits, SessionPast]:
        _check_unpadded(attention_mask)
        kind, _ = self._session.inputs["input_ids"]
        assert kind is not None
        new = {"input_ids": ort_value(input_ids.astype(kind.numpy))}
        if BRANCH in self._session.inputs:
            new[BRANCH] = ort_value(np.array([not past.first]))
        kept = self._session.outputs.keys() - {"logits"}
        results = self._session.run_values({**new, **past.own, **past.encoded.values}, kept)
        encoded = past.encoded
        if past.first:
            encoded = encoded.joined({name: results[output] for name, output in self._cross.items()})
        logits: StepLogits = numpy_of(results["logits"])
        return logits, SessionPast({name: results[output] for name, output in self._own.items()}, encoded, False)

    def rows(self, past: SessionPast, rows: Ids) -> SessionPast:
        own = self._taker.rows(Carried(past.own), rows).values
        return past._replace(own=own, encoded=past.encoded.rows(rows))

    def _no_positions(self, caches: Mapping[str, str], batch: int) -> Mapping[str, Any]:
        heads = {name: heads_of(name, self._session.inputs[name][1]) for name in caches}
        shapes = {name: (batch, count, 0, width) for name, (count, width) in heads.items()}
        return Stepping(self._session, caches).zeros(shapes).values
