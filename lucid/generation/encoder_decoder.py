"""Texts from an encoder-decoder: the encoder reads once, then the decoder's texts are continued like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Required, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from lucid.generation.encoders import EagerEncoder, Encoder, SessionEncoder
from lucid.generation.generator import Generator, OnToken
from lucid.generation.known import positions_of, start_of
from lucid.generation.logits import LogitsProcessor
from lucid.generation.prompts import Ids, IdsLike, array_of, read_mask, read_prompt
from lucid.generation.stops import Decode
from lucid.nn import EncoderDecoder
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime.session import Session


class GenerateOptions(TypedDict, total=False):
    """The options of `Generator.generate`, whose docstring says what each means."""

    max_new_tokens: Required[int]
    do_sample: bool
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    num_beams: int
    eos_token_id: int | Sequence[int] | None
    pad_token_id: int | None
    forced_bos_token_id: int | None
    forced_eos_token_id: int | None
    suppress_tokens: Sequence[int]
    stop: str | Sequence[str] | None
    seed: int | None
    logits_processors: Sequence[LogitsProcessor]
    on_token: OnToken | None


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
        self._encoder: Encoder
        if isinstance(model, EncoderDecoder) and decoder is None:
            self._encoder, known = EagerEncoder(model), positions_of(model)
        elif isinstance(model, Session) and isinstance(decoder, Session):
            self._encoder, known = SessionEncoder(model, decoder), positions_of(decoder)
        else:
            given = " and ".join(type(part).__name__ for part in (model, decoder) if part is not None)
            raise TypeError(
                f"EncoderDecoderGenerator: got {given}, expected an nn.EncoderDecoder, or the sessions of an encoder "
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
        given = array_of("inputs", inputs)
        if attention_mask is not None and not self._encoder.takes_mask:
            raise ValueError("generate: got an attention_mask, but the encoder takes none; leave it out")
        mask = None if attention_mask is None else read_mask(attention_mask, "inputs", given.shape)
        if mask is None and self._encoder.takes_mask:
            mask = np.ones(given.shape, np.int64)
        stepper = self._encoder.run(given, mask)
        return Generator(stepper, decode=self._decode, max_positions=self._max_positions)

    def generate(
        self,
        inputs: Tensor | npt.ArrayLike,
        attention_mask: IdsLike | None = None,
        decoder_input_ids: IdsLike | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Ids:
        """Write a text for each input, with the options and results of transformers' `generate`.

        Args:
            inputs, attention_mask: as for `encode`.
            decoder_input_ids: (N, L), or (L,) for all: what the texts begin with; by default the start token.
            options: those of `Generator.generate`.

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
        given = array_of("inputs", inputs)
        begin = np.repeat(begin, len(given), axis=0) if len(begin) == 1 else begin
        return self.encode(given, attention_mask).generate(begin, **options)
