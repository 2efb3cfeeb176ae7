"""The stepper that a model takes: eager, or a session with a cache that grows or of a fixed capacity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lucid.generation.fixed import FixedStepper
from lucid.generation.growing import EagerDecoder, GrowingStepper, SessionDecoder
from lucid.generation.steppers import Stepper
from lucid.nn import CausalDecoder
from lucid.runtime.session import Session


def stepper(model: CausalDecoder | Session) -> Stepper[Any]:  # Any: a stepper is handed only caches of its own
    """The stepper of a model.

    Raises:
        TypeError: for anything but a decoder or a session. ValueError: for a session of another kind of model.
    """
    if isinstance(model, CausalDecoder):
        return GrowingStepper(EagerDecoder(model))
    if not isinstance(model, Session):
        raise TypeError(
            f"Generator: got {type(model).__name__}, expected an nn.CausalDecoder or a lucid.runtime.Session; "
            'open a file with lucid.runtime.Session("model.onnx")'
        )
    caches = _caches_of(model)
    heads = {name: _heads_of(name, model.inputs[name][1]) for name in caches}
    first = next(iter(caches))
    if not is_fixed(model, first, caches[first]):
        return GrowingStepper(SessionDecoder(model, caches, heads))
    return FixedStepper(model, caches, heads, capacity_of(model))


def capacity_of(session: Session) -> int | None:
    """How many positions a session's buffers hold; None where it takes any number, or a growing cache."""
    found = [shape[2] for name, (_, shape) in session.inputs.items() if _CACHE.fullmatch(name)]
    return found[0] if found and isinstance(found[0], int) else None


def is_fixed(session: Session, past: str, present: str) -> bool:
    """Whether a session returns as many positions as it is given."""
    return session.inputs[past][1][2:3] == session.outputs[present][1][2:3]


_CACHE = re.compile(r"past_key_values\.\d+\.(key|value)")


def _caches_of(session: Session) -> dict[str, str]:
    """The output for each cache input of a decoder.

    Raises:
        ValueError: for a session of another kind of model.
    """
    caches = {name: name.replace("past_key_values", "present") for name in session.inputs if _CACHE.fullmatch(name)}
    needed, known = {"input_ids", "attention_mask"}, {"input_ids", "attention_mask", "position_ids", *caches}
    inputs, outputs = session.inputs.keys(), session.outputs.keys()
    if not caches or not needed <= inputs <= known or not {"logits", *caches.values()} <= outputs:
        raise ValueError(
            f"Generator: the session takes {_some(session.inputs)} and gives {_some(session.outputs)}; expected "
            "input_ids, attention_mask, position_ids, past_key_values.{i}.key and .value, and logits, "
            'present.{i}.key and .value; export with to_onnx(model, cache="growing") or "fixed"'
        )
    return caches


def _heads_of(name: str, shape: tuple[int | str | None, ...]) -> tuple[int, int]:
    """The number of heads and their width in a cache (N, H, P, d)."""
    match shape:
        case (_, int(heads), _, int(width)):
            return heads, width
    raise ValueError(
        f"Generator: the session's input {name} has shape {list(shape)}, expected [N, H, P, d] with fixed H and d; "
        'export with to_onnx(model, cache="growing")'
    )


def _some(names: Mapping[str, object]) -> str:
    """The first names of many."""
    return ", ".join([*list(names)[:4], *(["..."] if len(names) > 4 else [])])
