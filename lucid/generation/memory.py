"""The memory of a model for texts: an eager model, or a session with a cache that grows or has a fixed capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from lucid.core.words.other_libraries import check_model
from lucid.core.words.safe_text import listed
from lucid.generation.buffers import Buffers
from lucid.generation.encoder_output import Encoded
from lucid.generation.growing import Decoder, EagerDecoder, SessionDecoder
from lucid.generation.models import CACHE, STATE, capacity_of, heads_of, is_fixed, logits_of, state_shape
from lucid.generation.slots import BufferSlots, Drafts, GrowingSlots, Slots
from lucid.nn import CausalDecoder, EncoderDecoder
from lucid.runtime.session import Session

FIRST_CAPACITY = 256
"""How many positions buffers begin with, where fewer than needed in the end suffice."""


@runtime_checkable
class Memory(Protocol):
    """A model's memory, which makes slots."""

    def slots(self, count: int, most: int | None, times: int = 1) -> Slots:
        """Slots for so many texts of at most so many tokens; of an encoder's inputs, each for `times` texts.

        Raises:
            ValueError: for another number of texts than an encoder has inputs.
        """


class BufferMemory(NamedTuple):
    """The memory of a session over buffers: the output for each cache input, its number of heads and their width."""

    session: Session
    caches: Mapping[str, str]
    heads: Mapping[str, tuple[int, int]]
    encoded: Encoded | None = None

    def slots(self, count: int, most: int | None, times: int = 1) -> Slots:
        session, encoded = self.session, self.encoded
        if encoded is not None:
            encoded = encoded.checked(count // times).rows(np.repeat(np.arange(count // times), times))
        first = capacity_of(session) or min(FIRST_CAPACITY, most or FIRST_CAPACITY)
        buffers = Buffers(session, self.caches, self.heads, count, first, encoded)
        if encoded is not None:
            return BufferSlots(buffers, most, lambda slot: slot, _OF_ENCODER)
        return BufferSlots(buffers, most, lambda slot: session.adapter, _drafts_of(session))


class GrowingMemory(NamedTuple):
    """The memory of a decoder with a growing cache, which may be a session."""

    decoder: Decoder[Any]
    session: Session | None = None
    encoded: bool = False

    def slots(self, count: int, most: int | None, times: int = 1) -> Slots:
        decoder, session = self.decoder, self.session
        empty = decoder.empty(count // times)
        if times > 1:
            empty = decoder.rows(empty, np.repeat(np.arange(count // times), times))
        if self.encoded:
            return GrowingSlots(decoder, empty, count, lambda slot: slot, _OF_ENCODER)
        drafts = Drafts() if session is None else _drafts_of(session)
        if not decoder.separable:
            drafts = Drafts(0, "the model has states, from which a token cannot be taken back")
        return GrowingSlots(decoder, empty, count, lambda slot: session and session.adapter, drafts)


_OF_ENCODER = Drafts(0, "drafts are for decoders without an encoder")


def _drafts_of(session: Session) -> Drafts:
    """The drafts that a session verifies: one token less than it gives logits for."""
    count = logits_of(session.outputs["logits"][1])
    if count == 1:
        return Drafts(0, "the file gives the logits of the last token alone; export it without logits_to_keep")
    return Drafts() if count is None else Drafts(count - 1)


def memory_of(user: str, model: CausalDecoder | Session | Memory) -> Memory:
    """The memory of a model; a `Memory` is returned unchanged. `user` names the caller in messages.

    Raises:
        TypeError: for anything but a decoder or a session. ValueError: for a session of another kind of model.
    """
    if isinstance(model, Memory):
        return model
    if isinstance(model, CausalDecoder):
        return GrowingMemory(EagerDecoder(model))
    if isinstance(model, EncoderDecoder):
        raise TypeError(f"{user}: {type(model).__name__} has an encoder; use EncoderDecoderGenerator")
    check_model(user, model)
    if not isinstance(model, Session):
        raise TypeError(
            f"{user}: got {type(model).__name__}, expected an nn.CausalDecoder or a lucid.runtime.Session; "
            'open a file with lucid.runtime.Session("model.onnx")'
        )
    caches = _caches_of(user, model)
    states = {name: state_shape(name, model.inputs[name][1]) for name in caches if STATE.fullmatch(name)}
    heads = {name: heads_of(name, model.inputs[name][1]) for name in caches if name not in states}
    first = next(iter(caches))
    if states or not is_fixed(model, first, caches[first]):
        empty = states | {name: (count, 0, width) for name, (count, width) in heads.items()}
        return GrowingMemory(SessionDecoder(model, caches, empty), model)
    return BufferMemory(model, caches, heads)


def _caches_of(user: str, session: Session) -> dict[str, str]:
    """The output for each cache input of a decoder.

    Raises:
        ValueError: for a session of another kind of model.
    """
    names = [name for name in session.inputs if CACHE.fullmatch(name) or STATE.fullmatch(name)]
    caches = {name: name.replace("past_key_values", "present") for name in names}
    needed, known = {"input_ids", "attention_mask"}, {"input_ids", "attention_mask", "position_ids", *caches}
    inputs, outputs = session.inputs.keys(), session.outputs.keys()
    if "input_ids" in inputs and "logits" not in outputs:
        raise ValueError(
            f"{user}: the model gives {listed(session.outputs)} and no logits, so it writes no text; take a language "
            "model, one with ...ForCausalLM among the architectures of its config.json"
        )
    if not caches or not needed <= inputs <= known or not {"logits", *caches.values()} <= outputs:
        raise ValueError(
            f"{user}: the session takes {listed(session.inputs)} and gives {listed(session.outputs)}; expected "
            "input_ids, attention_mask, position_ids, past_key_values.{i}.key and .value, and logits, "
            'present.{i}.key and .value; export with to_onnx(model, cache="growing") or "fixed"'
        )
    return caches
