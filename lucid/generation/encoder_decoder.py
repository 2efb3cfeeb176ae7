"""Texts from an encoder-decoder: the encoder runs once, then the decoder continues texts as any decoder does."""

from __future__ import annotations

import re
from typing import Unpack

import numpy as np
import numpy.typing as npt

from lucid.core.graph.types import Array
from lucid.core.words.safe_text import listed
from lucid.generation.encoder_output import BRANCH, EagerEncoded, Encoded, SessionEncoded
from lucid.generation.generator import Generator, OnToken
from lucid.generation.memory import BufferMemory, GrowingMemory, Memory
from lucid.generation.models import CACHE, CROSS_CACHE, heads_of, is_fixed, positions_of, start_of
from lucid.generation.options import GenerateOptions
from lucid.generation.prompts import Ids, IdsLike, array_of, read_mask, read_prompt
from lucid.generation.stops import Decode
from lucid.nn import EncoderDecoder
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime.ort_values import ort_value
from lucid.runtime.session import Session


class EncoderDecoderGenerator:
    """Writes a text for each input of an encoder, with an eager model or its exports, which give the same tokens.

    ::

        EncoderDecoderGenerator(t5).generate(input_ids, attention_mask, max_new_tokens=20)

        encoder = Session(to_onnx(t5, part="encoder", cache="growing"))
        decoder = Session(to_onnx(t5, part="decoder", cache="growing"))
        EncoderDecoderGenerator(encoder, decoder, decoder_start_token_id=0).generate(...)

    Args:
        model: an `nn.EncoderDecoder`, or the session of an encoder.
        decoder: the session of the decoder, where `model` is that of the encoder: a step with a cache, growing or
            fixed, or a merged decoder.
        decode: as for `Generator`.
        max_positions: as for `Generator`.
        decoder_start_token_id: the token that texts begin with. By default the model's config tells it; sessions do
            not.

    Raises:
        TypeError: for anything but a model or two sessions.
        ValueError: for sessions that do not fit each other.
    """

    def __init__(
        self,
        model: EncoderDecoder | Session,
        decoder: Session | None = None,
        *,
        decode: Decode | None = None,
        max_positions: int | None = None,
        decoder_start_token_id: int | None = None,
    ) -> None:
        self._encoder: EagerEncoder | SessionEncoder
        if isinstance(model, EncoderDecoder) and decoder is None:
            self._encoder, known = EagerEncoder(model), positions_of(model)
        elif isinstance(model, Session) and isinstance(decoder, Session):
            self._encoder, known = SessionEncoder(model, decoder), positions_of(decoder)
        else:
            parts = " and ".join(type(part).__name__ for part in (model, decoder) if part is not None)
            raise TypeError(
                f"EncoderDecoderGenerator: got {parts}, expected an nn.EncoderDecoder, or the sessions of an encoder "
                "and of a decoder"
            )
        self._decode = decode
        self._max_positions = known if max_positions is None else max_positions
        self._start = start_of(model) if decoder_start_token_id is None else decoder_start_token_id

    def encode(self, inputs: Tensor | npt.ArrayLike, attention_mask: IdsLike | None = None) -> Generator:
        """Run the encoder once.

        Args:
            inputs: the encoder's first input, such as `input_ids` (N, S) or `input_features` (N, mels, frames).
            attention_mask: (N, S), 1 = keep, 0 = padding, where the encoder takes one; by default nothing is padding.

        Returns:
            A generator whose prompts are texts of the decoder, N of them, any number of times.

        Raises:
            ValueError, TypeError: for a mask that the encoder does not take or that does not fit the input; as the
                encoder, for an input that does not fit it.
        """
        array = array_of("inputs", inputs)
        if attention_mask is not None and not self._encoder.takes_mask:
            raise ValueError("generate: got an attention_mask, but the encoder takes none; leave it out")
        mask = None if attention_mask is None else read_mask(attention_mask, "inputs", array.shape)
        if mask is None and self._encoder.takes_mask:
            mask = np.ones(array.shape, np.int64)
        return Generator(self._encoder.run(array, mask), decode=self._decode, max_positions=self._max_positions)

    def generate(
        self,
        inputs: Tensor | npt.ArrayLike,
        attention_mask: IdsLike | None = None,
        decoder_input_ids: IdsLike | None = None,
        *,
        on_token: OnToken | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Ids:
        """Write a text for each input, with the options and results of transformers' `generate`.

        Args:
            inputs, attention_mask: as for `encode`.
            decoder_input_ids: the beginnings of the texts, (N, L), or (L,) for all; by default the start token.
            on_token, options: those of `Generator.generate`.

        Returns:
            (N, new) int64: the new tokens.

        Raises:
            ValueError, TypeError, LogitsError: as `encode` and `Generator.generate`, and without a start token.
        """
        if decoder_input_ids is None:
            if self._start is None:
                raise ValueError("generate: no start token is known; give decoder_start_token_id, or decoder_input_ids")
            decoder_input_ids = [self._start]
        begin = read_prompt(decoder_input_ids).ids
        array = array_of("inputs", inputs)
        begin = np.repeat(begin, len(array), axis=0) if len(begin) == 1 else begin
        return self.encode(array, attention_mask).generate(begin, on_token=on_token, **options)


_MASK, _STATES = "attention_mask", "last_hidden_state"
_OF_ENCODER = {"encoder_attention_mask": _MASK, "encoder_hidden_states": _STATES}


class EagerEncoder:
    """The encoder of a model that runs on NumPy."""

    def __init__(self, model: EncoderDecoder) -> None:
        self._model = model
        (self._input, kind), *others = model.encoder_input_specs().items()
        self._type = kind.dtype.numpy
        self.takes_mask = _MASK in dict(others)

    def run(self, inputs: Array, mask: Array | None) -> Memory:
        """The memory of N texts, one for each of N inputs; the mask is for encoders that take one."""
        named = {self._input: Tensor.from_array(inputs.astype(self._type))}
        kept = None if mask is None else Tensor.from_array(mask)
        states = self._model.encode(**named, **({} if kept is None else {_MASK: kept}))
        return GrowingMemory(EagerEncoded(self._model, states, kept), encoded=True)


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
        sources = {**_OF_ENCODER, **({} if BRANCH in decoder.inputs else self._cross)}
        self._wanted = {name: source for name, source in sources.items() if name in decoder.inputs}
        known = {"input_ids", "position_ids", BRANCH, *self._own, *self._cross, *_OF_ENCODER}
        if not self._own or not self._cross or not decoder.inputs.keys() <= known or set(others) - {_MASK}:
            raise ValueError(
                f"EncoderDecoderGenerator: the encoder takes {listed(encoder.inputs)}, the decoder "
                f'{listed(decoder.inputs)}; expected to_onnx(model, part="encoder", cache="growing") and '
                'to_onnx(model, part="decoder", cache="growing"), cache="fixed", or part="decoder_merged"'
            )
        lacking = [name for name in self._wanted.values() if name != _MASK and name not in encoder.outputs]
        if lacking:
            raise ValueError(
                f"EncoderDecoderGenerator: the decoder needs {lacking[0]}, the encoder gives "
                f'{listed(encoder.outputs)}; export it with part="encoder", cache="growing"'
            )

    def run(self, inputs: Array, mask: Array | None) -> Memory:
        arrays = {self._input: inputs, **({} if mask is None else {_MASK: mask})}
        values = {name: ort_value(_as_input(self._encoder, name, array)) for name, array in arrays.items()}
        results = {**values, **self._encoder.run_values(values, self._encoder.outputs)}
        encoded = Encoded(
            self._decoder, {name: results[source] for name, source in self._wanted.items()}, np.arange(len(inputs))
        )
        first = next(iter(self._own))
        if not is_fixed(self._decoder, first, self._own[first]):
            return GrowingMemory(SessionEncoded(self._decoder, self._own, self._cross, encoded), encoded=True)
        heads = {name: heads_of(name, self._decoder.inputs[name][1]) for name in self._own}
        return BufferMemory(self._decoder, self._own, heads, encoded)


def _caches(session: Session, kind: re.Pattern[str]) -> dict[str, str]:
    """The output for each cache of a kind, by the name of its input."""
    return {name: name.replace("past_key_values", "present") for name in session.inputs if kind.fullmatch(name)}


def _as_input(session: Session, name: str, array: Array) -> Array:
    kind, _ = session.inputs[name]
    return array if kind is None else array.astype(kind.numpy)
