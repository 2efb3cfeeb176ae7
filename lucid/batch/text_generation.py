"""Texts in, texts out: answers of a decoder, and translations and summaries of an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lucid.batch.batches import BUDGET, padded_batches
from lucid.batch.rows import OF_ROWS, Column, Kind, Ready, Results, RowError
from lucid.batch.texts import checked_text
from lucid.generation import Completion, EncoderDecoderGenerator, Engine, Generator, pad_left
from lucid.generation.chat.language_model import NEW_TOKENS
from lucid.generation.chat.template import ChatTemplateError
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.generation.constraints import STRUCTURES
from lucid.generation.defaults import over
from lucid.generation.models import capacity_of
from lucid.generation.options import Options
from lucid.generation.stops import Stops
from lucid.runtime import Session

_REASON = "ended_by"
"""The column of why a text ends: "eos" for a token, "stop" for a stop string, "length" for its most tokens."""


class _TextTask:
    """A task that writes a text for each row.

    Args:
        tokenizer: the checkpoint's tokenizer.
        output: the column of the texts; the column `ended_by` says why each ends.
        options: those of `Generator.generate`, with `max_new_tokens`.
        max_characters: the most characters of a row.
        positions: the positions of the model that reads a row; None for any number.

    Raises:
        ValueError: for an output of the name of the other column.
    """

    inputs, part_rows, batches = 1, (16, 256), staticmethod(padded_batches)

    def __init__(
        self, tokenizer: Tokenizer, output: str, options: Mapping[str, Any], max_characters: int, positions: int | None
    ) -> None:
        if output == _REASON:
            raise ValueError(f"output is {output!r}, the column of why a text ends; give the texts another name")
        self._checked = Options(**options)  # errors come before the first row
        self._options, self._tokenizer, self._output = options, tokenizer, output
        self._max_characters, self._positions = max_characters, positions
        self.columns: Mapping[str, Column] = {output: Column(Kind.TEXT), _REASON: Column(Kind.TEXT)}

    def _text(self, values: Sequence[Any]) -> str:
        return checked_text(values[0], self._max_characters, self._positions)

    def _ready(self, ids: Sequence[int]) -> Ready:
        return Ready(len(ids) + self._checked.max_new_tokens, ids)

    def _results(self, rows: Sequence[Sequence[int]]) -> dict[str, Results]:
        """New tokens as texts, each up to the first token that ends it, or through the first stop string."""
        ended = [self._end(row) for row in rows]
        texts = [self._tokenizer.decode(list(row[:length])) for row, (length, _) in zip(rows, ended, strict=True)]
        return {self._output: texts, _REASON: [reason for _, reason in ended]}

    def _end(self, row: Sequence[int]) -> tuple[int, str]:
        """How many new tokens are the text, and why it ends; what follows is padding."""
        ends = {*self._tokenizer.eos_token_ids, *self._checked.eos_tokens}
        length = next((place for place, token in enumerate(row) if token in ends), len(row))
        if self._checked.stop_strings:
            stops = Stops((), self._checked.stop_strings, self._tokenizer.decode)
            if stopped := next((count for count in range(1, length + 1) if stops.end(row[:count])), None):
                return stopped, "stop"
        cut = self._checked.max_new_tokens - (self._checked.forced_eos_token_id is not None)  # its last token is forced
        return length, "length" if length >= cut else "eos"


class Generation(_TextTask):
    """The task of a decoder.

    Args:
        session: of the decoder.
        tokenizer, output, max_characters: as for `_TextTask`.
        options: of `Generator.generate`, such as ``{"max_new_tokens": 64}``, over those of the checkpoint; and
            ``chat``, whether a prompt is the message of a user, put into the chat template, and an argument of
            `Tokenizer.constraint`.

    Raises:
        TypeError, ValueError: for an option that does not exist, or a value out of range.
    """

    def __init__(
        self, session: Session, tokenizer: Tokenizer, output: str, options: Mapping[str, Any], max_characters: int
    ) -> None:
        known = [count for count in (tokenizer.max_positions, capacity_of(session)) if count is not None]
        chosen = {name: value for name, value in options.items() if name not in ("chat", *STRUCTURES)}
        structure = {name: options[name] for name in STRUCTURES if name in options}
        ends = tokenizer.eos_token_ids or None
        positions = min(known, default=None)
        usual = {"max_new_tokens": NEW_TOKENS, "eos_token_id": ends, **tokenizer.defaults}
        if positions is not None:  # at least half of them are for the prompt
            usual["max_new_tokens"] = min(usual["max_new_tokens"], max(1, positions // 2))
        chosen = over(usual, chosen)
        if structure:
            chosen["constraint"] = tokenizer.constraint(**structure)
        super().__init__(tokenizer, output, chosen, max_characters, positions)
        self._chat = bool(options.get("chat", False))
        if self._chat and tokenizer.chat_template is None:
            raise ValueError(
                f"{tokenizer.where}: has no chat template, so the model was not trained on conversations; leave out "
                "chat"
            )
        self._session = session

    def ready(self, values: Sequence[Any]) -> Ready:
        """The tokens of a prompt.

        Raises:
            RowError: as `checked_text`, and for a prompt that leaves no room for an answer.
        """
        text = self._text(values)
        try:
            if self._chat:
                ids = self._tokenizer.encode_chat([{"role": "user", "content": text}])
            else:
                ids = self._tokenizer.encode(text)
        except ChatTemplateError:  # the template is wrong, and not this row
            raise
        except ValueError as error:
            raise RowError(str(error)) from error
        new = self._checked.max_new_tokens
        if self._positions is not None and len(ids) + new > self._positions:
            raise RowError(
                f"a prompt of {len(ids)} tokens and {new} new ones take more positions than the model has, which are "
                f"{self._positions}"
            )
        return self._ready(ids)

    def batches(self, sizes: Sequence[int], budget: int) -> list[list[int]]:
        """All rows, the longest first: one that ends makes room for another. Beams of a batch end together."""
        if self._checked.num_beams > 1:
            return padded_batches(sizes, budget)
        return [sorted(range(len(sizes)), key=lambda row: -sizes[row])] if sizes else []

    def run(self, batch: Sequence[Any], budget: int = BUDGET) -> dict[str, Results]:
        """The answers, without the tokens that end them."""
        session, positions, decode = self._session, self._positions, self._tokenizer.decode
        if self._checked.num_beams > 1:
            generator = Generator(session, max_positions=positions, decode=decode)
            return self._results(generator.generate(*pad_left(batch, 0), **self._options).tolist())
        slots = max(1, min(len(batch), budget // (max(map(len, batch)) + self._checked.max_new_tokens)))
        engine = Engine(session, slots, positions, decode=decode, queue=len(batch), chunk=budget)
        requests = [engine.prepare_row(np.array(ids), self._checked, row) for row, ids in enumerate(batch)]
        for request in requests:
            request.begin()
        while engine.step():
            pass
        columns = self._results([request.ids for request in requests])
        answers = zip(requests, columns[self._output], strict=True)
        return {**columns, self._output: [_error_of(request) or text for request, text in answers]}


def _error_of(request: Completion) -> RowError | None:
    """The error of a row that has no answer.

    Raises:
        Exception: the request's error, if it is not that of a single row.
    """
    if request.error is None:
        return None
    if isinstance(request.error, OF_ROWS):
        return RowError(str(request.error))
    raise request.error


_START = "decoder_start_token_id"
_FORCED = ("forced_bos_token_id", "forced_eos_token_id")
_OF_BEAMS = ("length_penalty", "early_stopping")
_TOLD = ("num_beams", *_OF_BEAMS, "no_repeat_ngram_size", "repetition_penalty", "bad_words_ids")


class Rewriting(_TextTask):
    """The task of an encoder and a decoder.

    Args:
        encoder, decoder: their sessions.
        tokenizer, output, max_characters: as for `_TextTask`.
        config: the options of config.json and generation_config.json.
        options: of `EncoderDecoderGenerator.generate`, such as ``{"num_beams": 4}``.

    Raises:
        TypeError, ValueError: for an option that does not exist, a value out of range, and a config without the token
            that texts begin with.
    """

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
        if structures := [name for name in STRUCTURES if name in options]:
            raise ValueError(f"{tokenizer.where}: has an encoder, whose texts match no {structures[0]}; leave it out")
        if "chat" in options:
            raise ValueError(f"{tokenizer.where}: has an encoder, which reads no conversations; leave out chat")
        start = config.get(_START)
        if not isinstance(start, int):
            raise ValueError(f"{tokenizer.where}: {_START} is {start!r} in config.json, expected the number of a token")
        positions = config.get("max_position_embeddings")  # T5 has none: its positions are relative
        positions = positions if isinstance(positions, int) else None
        most = min((n for n in (positions, capacity_of(decoder)) if n is not None), default=None)
        defaults = {name: config[name] for name in (*_FORCED, *_TOLD) if config.get(name) is not None}
        if options.get("num_beams", defaults.get("num_beams", 1)) == 1:
            defaults = {name: value for name, value in defaults.items() if name not in _OF_BEAMS}
        chosen = {
            "max_new_tokens": NEW_TOKENS if most is None else min(NEW_TOKENS, most - 1),
            "eos_token_id": tokenizer.eos_token_ids or None,
            **defaults,
        }
        chosen = over(chosen, options)
        super().__init__(tokenizer, output, chosen, max_characters, positions)
        if most is not None and self._checked.max_new_tokens >= most:
            raise ValueError(
                f"{tokenizer.where}: max_new_tokens is {self._checked.max_new_tokens}, and its decoder has {most} "
                f"positions with that of the start; give at most {most - 1}"
            )
        self._generator = EncoderDecoderGenerator(
            encoder, decoder, decode=tokenizer.decode, max_positions=most, decoder_start_token_id=start
        )
        pad = config.get("pad_token_id")
        self._pad = pad if isinstance(pad, int) else 0

    def ready(self, values: Sequence[Any]) -> Ready:
        """The tokens of a text.

        Raises:
            RowError: as `checked_text`, and for a text of more tokens than the encoder has positions for.
        """
        ids = self._tokenizer.encode(self._text(values))
        if not ids:
            raise RowError("no token of the model is in the text")
        if self._positions is not None and len(ids) > self._positions:
            raise RowError(f"a text of {len(ids)} tokens takes more positions than the model has: {self._positions}")
        return self._ready(ids)

    def run(self, batch: Sequence[Any], budget: int = BUDGET) -> dict[str, Results]:
        """The texts, without the tokens that end them."""
        ids = np.full((len(batch), max(map(len, batch))), self._pad, np.int64)
        mask = np.zeros_like(ids)
        for row, one in enumerate(batch):
            ids[row, : len(one)], mask[row, : len(one)] = one, 1
        return self._results(self._generator.generate(ids, mask, **self._options).tolist())
