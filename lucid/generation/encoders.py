"""The encoder of an eager model or a session: it runs once, and gives the stepper of the decoder after it."""

from __future__ import annotations

import re
from typing import Any, Protocol

import numpy as np

from lucid.core.graph.types import Array
from lucid.generation.encoded import BRANCH, EagerEncoded, Encoded, SessionEncoded
from lucid.generation.fixed import FixedStepper
from lucid.generation.growing import GrowingStepper
from lucid.generation.session_caches import CACHE, CROSS_CACHE, capacity_of, heads_of, is_fixed, some_of
from lucid.generation.steppers import Stepper
from lucid.nn import EncoderDecoder
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime.ort_values import ort_value
from lucid.runtime.session import Session

_MASK, _STATES = "attention_mask", "last_hidden_state"
_OF_ENCODER = {"encoder_attention_mask": _MASK, "encoder_hidden_states": _STATES}


class Encoder(Protocol):
    """What an encoder-decoder's texts are about is read by this."""

    @property
    def takes_mask(self) -> bool:
        """Whether it takes a mask of its input."""
        ...

    def run(self, inputs: Array, mask: Array | None) -> Stepper[Any]:
        """Read N inputs, and a mask if it takes one; the stepper of N texts about them."""
        ...


class EagerEncoder:
    """The encoder of a model that runs on NumPy."""

    def __init__(self, model: EncoderDecoder) -> None:
        self._model = model
        (self._input, kind), *others = model.encoder_input_specs().items()
        self._type = kind.dtype.numpy
        self.takes_mask = _MASK in dict(others)

    def run(self, inputs: Array, mask: Array | None) -> Stepper[Any]:
        named = {self._input: Tensor.from_array(inputs.astype(self._type))}
        kept = None if mask is None else Tensor.from_array(mask)
        states = self._model.encode(**named, **({} if kept is None else {_MASK: kept}))
        return GrowingStepper(EagerEncoded(self._model, states, kept))


class SessionEncoder:
    """The encoder of an exported model.

    Args:
        encoder: exported as ``part="encoder"``.
        decoder: a step with a cache, growing or fixed, for which the encoder returns keys and values; or merged.

    Raises:
        ValueError: for sessions that are not these, or do not fit each other.
    """

    def __init__(self, encoder: Session, decoder: Session) -> None:
        self._encoder, self._decoder = encoder, decoder
        self._own, self._cross = _caches(decoder, CACHE), _caches(decoder, CROSS_CACHE)
        self._input, *others = encoder.inputs
        self.takes_mask = _MASK in others
        # What the decoder needs of the encoder, by the name of the decoder's input. A merged one computes keys and
        # values itself.
        wanted = {**_OF_ENCODER, **({} if BRANCH in decoder.inputs else self._cross)}
        self._wanted = {name: source for name, source in wanted.items() if name in decoder.inputs}
        known = {"input_ids", "position_ids", BRANCH, *self._own, *self._cross, *_OF_ENCODER}
        if not self._own or not self._cross or not decoder.inputs.keys() <= known or set(others) - {_MASK}:
            raise ValueError(
                f"EncoderDecoderGenerator: the encoder takes {some_of(encoder.inputs)}, the decoder "
                f'{some_of(decoder.inputs)}; expected to_onnx(model, part="encoder", cache="growing") and '
                'to_onnx(model, part="decoder", cache="growing"), cache="fixed", or part="decoder_merged"'
            )
        lacking = [name for name in self._wanted.values() if name != _MASK and name not in encoder.outputs]
        if lacking:
            raise ValueError(
                f"EncoderDecoderGenerator: the decoder needs {lacking[0]}, the encoder gives "
                f'{some_of(encoder.outputs)}; export it with part="encoder", cache="growing"'
            )

    def run(self, inputs: Array, mask: Array | None) -> Stepper[Any]:
        given = {self._input: inputs, **({} if mask is None else {_MASK: mask})}
        values = {name: ort_value(_as_input(self._encoder, name, array)) for name, array in given.items()}
        found = {**values, **self._encoder.run_values(values, self._encoder.outputs)}
        encoded = Encoded(
            self._decoder, {name: found[source] for name, source in self._wanted.items()}, np.arange(len(inputs))
        )
        first = next(iter(self._own))
        if not is_fixed(self._decoder, first, self._own[first]):
            return GrowingStepper(SessionEncoded(self._decoder, self._own, self._cross, encoded))
        heads = {name: heads_of(name, self._decoder.inputs[name][1]) for name in self._own}
        return FixedStepper(self._decoder, self._own, heads, capacity_of(self._decoder), encoded)


def _caches(session: Session, kind: re.Pattern[str]) -> dict[str, str]:
    """The output for each cache of a kind, by the name of its input."""
    return {name: name.replace("past_key_values", "present") for name in session.inputs if kind.fullmatch(name)}


def _as_input(session: Session, name: str, array: Array) -> Array:
    kind, _ = session.inputs[name]
    return array if kind is None else array.astype(kind.numpy)
