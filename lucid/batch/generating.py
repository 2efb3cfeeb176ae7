"""Prompts in, texts out: batches of prompts of a similar length, each computed until its last answer has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from lucid.batch.rows import Column, Kind, Ready, Results, RowError
from lucid.batch.texts import checked_text
from lucid.generation import Generator, pad_left
from lucid.generation.chat.template import ChatTemplateError
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.generation.models import capacity_of
from lucid.generation.options import Options
from lucid.generation.prompts import Ids
from lucid.generation.stops import Stops
from lucid.runtime import Session

NEW_TOKENS = 128
"""How many tokens an answer has at most, where nothing else is asked for."""


class Generation:
    """The task of a decoder.

    Args:
        session: of the decoder.
        tokenizer: of the checkpoint.
        output: the column of the answers.
        options: of `Generator.generate`, such as ``{"max_new_tokens": 64}``; and ``chat``, whether a prompt is the
            message of a user, put into the chat template.
        max_characters: the most characters of a prompt.

    Raises:
        TypeError, ValueError: for an option that does not exist or has another value than it may.
    """

    inputs, part_rows = 1, (16, 256)

    def __init__(
        self, session: Session, tokenizer: Tokenizer, output: str, options: Mapping[str, Any], max_characters: int
    ) -> None:
        known = [count for count in (tokenizer.max_positions, capacity_of(session)) if count is not None]
        self._positions = min(known, default=None)
        self._chat = bool(options.get("chat", False))
        given = {name: value for name, value in options.items() if name != "chat"}
        self._options = {"max_new_tokens": NEW_TOKENS, "eos_token_id": tokenizer.eos_token_ids or None, **given}
        Options(**self._options)  # errors come before the first row
        if self._chat and tokenizer.chat_template is None:
            raise ValueError(
                f"{tokenizer.where}: has no chat template, so the model was not trained on conversations; leave out "
                "chat"
            )
        self._generator = Generator(session, max_positions=self._positions, decode=tokenizer.decode)
        self._tokenizer, self._max_characters = tokenizer, max_characters
        self.columns: Mapping[str, Column] = {output: Column(Kind.TEXT)}
        self._output = output
        self._one_at_a_time = Lock()  # buffers of a fixed capacity are written in place

    def ready(self, values: Sequence[Any]) -> Ready:
        """The tokens of a prompt.

        Raises:
            RowError: as `checked_text`, and for a prompt that leaves no room for an answer.
        """
        text = checked_text(values[0], self._max_characters, self._positions)
        try:
            if self._chat:
                ids = self._tokenizer.encode_chat([{"role": "user", "content": text}])
            else:
                ids = self._tokenizer.encode(text)
        except ChatTemplateError:  # the template is wrong, and not this row
            raise
        except ValueError as error:
            raise RowError(str(error)) from error
        new = int(self._options["max_new_tokens"])
        if self._positions is not None and len(ids) + new > self._positions:
            raise RowError(
                f"a prompt of {len(ids)} tokens and {new} new ones take more positions than the model has, which are "
                f"{self._positions}"
            )
        return Ready(len(ids) + new, ids)

    def run(self, batch: Sequence[Any]) -> dict[str, Results]:
        """The answers, without the tokens that end them."""
        ids, mask = pad_left(batch, next(iter(self._tokenizer.eos_token_ids), 0))
        with self._one_at_a_time:
            found = self._generator.generate(ids, mask, **self._options)
        return {self._output: decoded(self._tokenizer, found, Options(**self._options))}


def decoded(tokenizer: Tokenizer, found: Ids, options: Options) -> list[str]:
    """New tokens (N, L) as texts, each up to the first token that ends it, or through the first stop string."""
    ends = {*tokenizer.eos_token_ids, *options.eos_tokens}
    stops = Stops((), options.stop_strings, tokenizer.decode)
    texts = []
    for row in found:
        length = next((place for place, token in enumerate(row.tolist()) if token in ends), len(row))
        if options.stop_strings:  # what follows is padding
            length = next((n for n in range(1, length) if stops.ended(row[None, :n])[0]), length)
        texts.append(tokenizer.decode(row[:length].tolist()))
    return texts
