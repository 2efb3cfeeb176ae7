"""Texts in, texts out, by an encoder and a decoder: translations and summaries of T5, BART, Marian and their kin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lucid.batch.generating import NEW_TOKENS, decoded
from lucid.batch.rows import Column, Kind, Ready, Results, RowError
from lucid.batch.texts import checked_text
from lucid.generation import EncoderDecoderGenerator
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.generation.models import capacity_of
from lucid.generation.options import Options
from lucid.runtime import Session

_START = "decoder_start_token_id"
_FORCED = ("forced_bos_token_id", "forced_eos_token_id")


class Rewriting:
    """The task of an encoder and a decoder.

    Args:
        encoder, decoder: their sessions.
        tokenizer: of the checkpoint.
        config: the options of config.json and generation_config.json.
        output: the column of the texts.
        options: of `EncoderDecoderGenerator.generate`, such as ``{"num_beams": 4}``.
        max_characters: the most characters of a text.

    Raises:
        TypeError, ValueError: for an option that does not exist or has another value than it may, and a config without
            the token that texts begin with.
    """

    inputs, part_rows = 1, (16, 256)

    def __init__(
        self,
        encoder: Session,
        decoder: Session,
        tokenizer: Tokenizer,
        config: Mapping[str, Any],
        output: str,
        options: Mapping[str, Any],
        max_characters: int,
    ) -> None:
        if "chat" in options:
            raise ValueError(f"{tokenizer.where}: has an encoder, which reads no conversations; leave out chat")
        start = config.get(_START)
        if not isinstance(start, int):
            raise ValueError(f"{tokenizer.where}: {_START} is {start!r} in config.json, expected the number of a token")
        positions = config.get("max_position_embeddings")  # T5 has none: its positions are relative
        self._positions = positions if isinstance(positions, int) else None
        most = min((n for n in (self._positions, capacity_of(decoder)) if n is not None), default=None)
        told = {name: config[name] for name in _FORCED if isinstance(config.get(name), int)}
        never = [word[0] for word in config.get("bad_words_ids") or () if isinstance(word, list) and len(word) == 1]
        self._options = {
            "max_new_tokens": NEW_TOKENS if most is None else min(NEW_TOKENS, most - 1),
            "eos_token_id": tokenizer.eos_token_ids or None,
            "suppress_tokens": never,
            **told,
            **options,
        }
        Options(**self._options)  # errors come before the first row
        if most is not None and self._options["max_new_tokens"] >= most:
            raise ValueError(
                f"{tokenizer.where}: max_new_tokens is {self._options['max_new_tokens']}, and its decoder has {most} "
                f"positions with that of the start; give at most {most - 1}"
            )
        self._generator = EncoderDecoderGenerator(
            encoder, decoder, decode=tokenizer.decode, max_positions=most, decoder_start_token_id=start
        )
        self._tokenizer, self._max_characters = tokenizer, max_characters
        pad = config.get("pad_token_id")
        self._pad = pad if isinstance(pad, int) else 0
        self.columns: Mapping[str, Column] = {output: Column(Kind.TEXT)}
        self._output = output

    def ready(self, values: Sequence[Any]) -> Ready:
        """The tokens of a text.

        Raises:
            RowError: as `checked_text`, and for a text of more tokens than the encoder has positions for.
        """
        ids = self._tokenizer.encode(checked_text(values[0], self._max_characters, self._positions))
        if not ids:
            raise RowError("no token of the model is in the text")
        if self._positions is not None and len(ids) > self._positions:
            raise RowError(f"a text of {len(ids)} tokens takes more positions than the model has: {self._positions}")
        return Ready(len(ids) + int(self._options["max_new_tokens"]), ids)

    def run(self, batch: Sequence[Any]) -> dict[str, Results]:
        """The texts, without the tokens that end them."""
        ids = np.full((len(batch), max(map(len, batch))), self._pad, np.int64)
        mask = np.zeros_like(ids)
        for row, one in enumerate(batch):
            ids[row, : len(one)], mask[row, : len(one)] = one, 1
        found = self._generator.generate(ids, mask, **self._options)
        return {self._output: decoded(self._tokenizer, found, Options(**self._options))}
