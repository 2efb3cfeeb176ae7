"""The stepper and the slots of a model: eager, or a session with a cache that grows or has a fixed capacity."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid.core.words.other_libraries import check_model
from lucid.generation.fixed import FIRST_CAPACITY, FixedStepper
from lucid.generation.growing import CutDecoder, EagerDecoder, GrowingStepper, SessionDecoder
from lucid.generation.models import CACHE, STATE, capacity_of, heads_of, is_fixed, some_of, state_shape
from lucid.generation.sequences import Stepper
from lucid.generation.slots import BufferSlots, GrowingSlots, Slots
from lucid.nn import CausalDecoder, EncoderDecoder
from lucid.runtime.session import Session


def stepper(model: CausalDecoder | Session | Stepper[Any]) -> Stepper[Any]:  # Any: it is handed only its own caches
    """The stepper of a model; a stepper as it is.

    Raises:
        TypeError: for anything but a decoder or a session. ValueError: for a session of another kind of model.
    """
    if isinstance(model, Stepper):
        return model
    decoder = _decoder("Generator", model)
    if isinstance(decoder, _Fixed):
        return FixedStepper(*decoder, capacity_of(decoder.session))
    return GrowingStepper(decoder)


def slots_of(model: CausalDecoder | Session, count: int, most: int | None) -> Slots:
    """Slots of a model for so many texts of at most so many tokens.

    Raises:
        TypeError, ValueError: as `stepper`.
    """
    decoder = _decoder("Engine", model)
    if not isinstance(decoder, _Fixed):
        return GrowingSlots(decoder, count)
    first = capacity_of(decoder.session) or min(FIRST_CAPACITY, most or FIRST_CAPACITY)
    return BufferSlots(*decoder, count, first, most)


class _Fixed(NamedTuple):
    """A session over buffers: the output for each cache input, and the heads of each and their width."""

    session: Session
    caches: dict[str, str]
    heads: dict[str, tuple[int, int]]


def _decoder(user: str, model: object) -> CutDecoder[Any] | _Fixed:
    """What runs a model; `user` is who asks."""
    if isinstance(model, CausalDecoder):
        return EagerDecoder(model)
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
        return SessionDecoder(model, caches, empty)
    return _Fixed(model, caches, heads)


def _caches_of(user: str, session: Session) -> dict[str, str]:
    """The output for each cache input of a decoder.

    Raises:
        ValueError: for a session of another kind of model.
    """
    found = [name for name in session.inputs if CACHE.fullmatch(name) or STATE.fullmatch(name)]
    caches = {name: name.replace("past_key_values", "present") for name in found}
    needed, known = {"input_ids", "attention_mask"}, {"input_ids", "attention_mask", "position_ids", *caches}
    inputs, outputs = session.inputs.keys(), session.outputs.keys()
    if not caches or not needed <= inputs <= known or not {"logits", *caches.values()} <= outputs:
        raise ValueError(
            f"{user}: the session takes {some_of(session.inputs)} and gives {some_of(session.outputs)}; expected "
            "input_ids, attention_mask, position_ids, past_key_values.{i}.key and .value, and logits, "
            'present.{i}.key and .value; export with to_onnx(model, cache="growing") or "fixed"'
        )
    return caches
