"""The text side of a checkpoint: its tokenizer, the ids that end a text, its chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tokenizers

from lucid.core.graph.types import Array
from lucid.generation import Constraint, Vocabulary
from lucid.generation.chat.long_texts import tokenized
from lucid.generation.chat.template import ChatTemplate, Message
from lucid.generation.chat.text_stream import UNFINISHED, TextStream

_SHOWN = (*range(33, 127), *range(161, 173), *range(174, 256))
_BYTE_LEVEL = {chr(byte): byte for byte in _SHOWN} | {
    chr(256 + place): byte for place, byte in enumerate(sorted({*range(256)} - {*_SHOWN}))
}
"""The bytes by the characters that name them in byte-level tokenizers, as GPT-2's (Radford et al. 2019)."""
_BYTE_FALLBACK = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """Text to token ids and back, as a checkpoint says. `load_tokenizer` reads it.

    Args:
        where: the file or folder that it is from, for messages.
        library: the tokenizer of the library `tokenizers`.
        eos_token_ids: the ids that end a text.
        special_tokens: tokens by the names that chat templates know, such as ``{"bos_token": "<s>"}``.
        options: what else is in the checkpoint's tokenizer_config.json, for other libraries.
        chat_template: how a conversation becomes text; None for models that were not trained on any.
        max_positions: the most tokens that the model was trained on; None where the checkpoint does not say.
        defaults: the options of `Generator.generate` that the checkpoint recommends.
    """

    where: str
    library: tokenizers.Tokenizer
    eos_token_ids: tuple[int, ...] = ()
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    chat_template: ChatTemplate | None = None
    max_positions: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with those that the tokenizer adds before and after it, and without padding.

        Raises:
            ValueError: for text without any token, or that is not valid Unicode.
        """
        return self._encode(text, add_special_tokens=True)

    def encode_chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> list[int]:
        """The ids of a conversation, up to where the assistant answers; `tools` are as for `ChatTemplate.render`.

        Raises:
            ValueError: if there is no chat template, or (`ChatTemplateError`) it cannot be rendered.
        """
        if self.chat_template is None:
            raise ValueError(
                f"{self.where}: has no chat template, so the model was not trained on conversations; "
                "continue a text instead, or take the instruct version of the model"
            )
        return self._encode(
            self.chat_template.render(messages, tools=tools), add_special_tokens=False
        )  # the template has them

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        text: str = self.library.decode(list(ids))
        return text

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token within a text, in UTF-8: perhaps a part of a character; none for a special token."""
        first = self.decode([token])
        text = self.decode([token, token])[len(first) :]  # decoders leave out the space before the first one
        if UNFINISHED not in first:
            return text.encode()
        name = self.library.id_to_token(token) or ""
        if match := _BYTE_FALLBACK.fullmatch(name):
            return bytes.fromhex(match[1])
        known = all(character in _BYTE_LEVEL for character in name)
        return bytes(map(_BYTE_LEVEL.__getitem__, name)) if known else text.encode()

    def stream(self, stop: str | Sequence[str] = ()) -> TextStream:
        """The text of ids that come one by one, up to a stop string; raises as `TextStream`."""
        return TextStream(self.decode, stop)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens that constraints choose from; made at the first use, which takes up to two seconds.

        Raises:
            ModuleNotFoundError, ValueError: as `lucid.generation.Vocabulary`.
        """
        return Vocabulary(self.library.to_str(), self.eos_token_ids)

    def constraint(
        self, *, json_schema: Mapping[str, Any] | None = None, regex: str | None = None, grammar: str | None = None
    ) -> Constraint | None:
        """The constraint of an answer, of one of three kinds; None without any.

        Raises:
            ValueError, TypeError: for several kinds, and as the methods of `lucid.generation.Vocabulary`.
        """
        structures = {"json_schema": json_schema, "regex": regex, "grammar": grammar}
        names = [name for name, value in structures.items() if value is not None]
        if len(names) > 1:
            raise ValueError(f"constraint: got {' and '.join(names)}, expected one of them")
        if json_schema is not None:
            return self.vocabulary.json_schema(json_schema)
        if regex is not None:
            return self.vocabulary.regex(regex)
        return None if grammar is None else self.vocabulary.grammar(grammar)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the text is not valid Unicode: {error.reason} at character {error.start}; give it in UTF-8"
            ) from None
        encoding = tokenized(self.library, text, add_special_tokens=add_special_tokens)
        ids = [
            each for each, kept in zip(encoding.ids, encoding.attention_mask, strict=True) if kept
        ]  # without padding
        if not ids:
            what = "no token of the model is in the text" if text else "the text is empty"
            raise ValueError(f"{what}, expected at least one token to continue from")
        return ids


_LENGTH = 512  # tokens of a call: what GPTQ and most perplexities are measured over, and BERT's positions


def text_calls(tokenizer: Tokenizer, text: str, *, by_line: bool = False, length: int = _LENGTH) -> list[Array]:
    """The token ids of a text, in pieces (1, L) int64 of so many tokens at most, and of no more than the positions.

    Args:
        tokenizer: of the model.
        text: all of it is one sequence, as for a decoder; lines without text are left out with `by_line`.
        by_line: whether each line is a text of its own, as for an encoder; long lines are cut at the end.
        length: the most tokens of a piece.

    Raises:
        ValueError: as `Tokenizer.encode`.
    """
    most = length if tokenizer.max_positions is None else min(length, tokenizer.max_positions)
    if by_line:
        pieces = [tokenizer.encode(line)[:most] for line in text.splitlines() if line.strip()]
    else:
        ids = tokenizer.encode(text) if text.strip() else []
        pieces = [ids[start : start + most] for start in range(0, len(ids), most)]
    return [np.asarray([piece], np.int64) for piece in pieces]
