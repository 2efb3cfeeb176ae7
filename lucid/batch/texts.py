"""Texts as arrays of tokens, with a prompt in front, truncated and padded as the checkpoint says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lucid.batch.rows import Ready, RowError, missing
from lucid.core.graph.types import Array
from lucid.core.number_ranges import is_whole
from lucid.generation.chat.long_texts import tokenized, truncated
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.layouts.checkpoint_files import PROMPTS
from lucid.models.checkpoints.config import read_optional_json
from lucid.models.checkpoints.registry import find_family

CHARACTERS = 32
"""The most characters of a token on average; a longer text is not read to its end."""
_SENTENCES = "sentence_bert_config.json"
_ANY = 1 << 20  # transformers writes 1e30 for "any number"
_KEYS = ("input_ids", "attention_mask", "token_type_ids")


class TextReader:
    """Turns texts, or pairs of texts, into tokens, and these into batches.

    Args:
        tokenizer: the checkpoint's tokenizer; its padding and truncation are set here.
        config: the checkpoint's config.json.
        names: the inputs of the model.
        max_length: the most tokens of a row; longer rows are truncated. The default is the checkpoint's.
        max_characters: the most characters of a text.
        prompt: the prompt in front of each text.
        end: the id at which the model reads a text; None for a model that needs no such token.

    Raises:
        ValueError: for an input that is not made of text, or a length that the model has no positions for.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: Mapping[str, Any],
        names: Sequence[str],
        max_length: int | None,
        max_characters: int,
        prompt: str = "",
        end: int | None = None,
    ) -> None:
        if unknown := [name for name in names if name not in _KEYS]:
            raise ValueError(f"{tokenizer.where}: the model takes {', '.join(unknown)}, which is not made of text")
        self._names, self._max_characters, self._prompt, self._end = tuple(names), max_characters, prompt, end
        self.library = tokenizer.library
        self._pad_id = _pad_id(tokenizer, config)
        self.max_length = _length(tokenizer, config, max_length)
        self.library.no_padding()
        if self.max_length is None:
            self.library.no_truncation()
        else:
            truncation = self.library.truncation or {}
            side = tokenizer.options.get("truncation_side", truncation.get("direction", "right"))
            special = self.library.num_special_tokens_to_add(False)
            if self.max_length <= special:  # all texts would be the same, or truncation switched off
                raise ValueError(
                    f"max_length is {self.max_length}, and each row has {special} special tokens; give more than that"
                )
            self.library.enable_truncation(self.max_length, direction=side)

    def ready(self, values: Sequence[Any]) -> Ready:
        """The tokens of a text, or of a pair.

        Raises:
            RowError: for anything but text, for text that is empty, too long or not valid Unicode, and for one whose
                tokens lack the end.
        """
        texts = [checked_text(value, self._max_characters) for value in values]
        text = self._prompt + texts[0]
        encoding = tokenized(self.library, text, texts[1]) if len(texts) > 1 else truncated(self.library, text)
        ids = np.array(encoding.ids, np.int64)
        if not ids.size:
            raise RowError("no token of the model is in the text")
        if self._end is not None and self._end not in ids:
            raise RowError(
                f"its tokens lack the end, id {self._end}, at which the model reads the class; the tokenizer of the "
                "checkpoint should add it"
            )
        kinds = np.array(encoding.type_ids, np.int64) if "token_type_ids" in self._names else None
        return Ready(
            ids.size, {"input_ids": ids, "attention_mask": 1, "token_type_ids": kinds}, bool(encoding.overflowing)
        )

    def arrays(self, batch: Sequence[Any]) -> dict[str, Array]:
        """The inputs of the model (N, L) int64, padded on the right to the longest row."""
        longest = max(one["input_ids"].size for one in batch)
        arrays = {name: np.zeros((len(batch), longest), np.int64) for name in self._names}
        if self._pad_id and "input_ids" in arrays:
            arrays["input_ids"][:] = self._pad_id
        for row, one in enumerate(batch):
            for name, array in arrays.items():
                array[row, : one["input_ids"].size] = one[name]
        return arrays


def checked_text(value: Any, max_characters: int, positions: int | None = None) -> str:
    """A value of a row as text.

    Args:
        value: of a row.
        max_characters: the most characters of a text.
        positions: of a model that reads all of the text; None for any number.

    Raises:
        RowError: for another type, and for text that is empty, too long or not valid Unicode.
    """
    if missing(value):
        raise RowError("the text is null")
    if not isinstance(value, str):
        raise RowError(f"expected text, got {type(value).__name__}")
    if len(value) > max_characters:
        raise RowError(f"the text has {len(value):,} characters, at most {max_characters:,} are read (max_characters)")
    if positions is not None and len(value) > CHARACTERS * positions:
        raise RowError(
            f"the text has {len(value):,} characters, at most {CHARACTERS * positions:,} are read: {CHARACTERS} for "
            f"each of the model's {positions:,} positions"
        )
    if not value.strip():
        raise RowError("the text is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        reason = f"{error.reason} at character {error.start}"
        raise RowError(f"the text is not valid Unicode: {reason}; give it in UTF-8") from None
    return str(value)


def _pad_id(tokenizer: Tokenizer, config: Mapping[str, Any]) -> int:
    """The id of padding: the model's, which may find the end of a text by it, else the tokenizer's."""
    of_model = config.get("pad_token_id")
    if is_whole(of_model) and of_model >= 0:
        return of_model
    if (padding := tokenizer.library.padding) is not None:
        return int(padding["pad_id"])
    token = tokenizer.special_tokens.get("pad_token")
    number = None if token is None else tokenizer.library.token_to_id(token)
    return 0 if number is None else int(number)


def _length(tokenizer: Tokenizer, config: Mapping[str, Any], max_length: int | None) -> int | None:
    """The length to which rows are truncated, as by sentence-transformers, or transformers with truncation=True."""
    positions = tokenizer.max_positions
    kind = str(config.get("model_type"))
    family = find_family(kind)
    offset = family is not None and family.types[kind].offset_positions
    if offset and positions == config.get("max_position_embeddings"):
        positions = None if positions is None else positions - 2
    if max_length is not None:
        if positions is not None and max_length > positions:
            raise ValueError(
                f"max_length is {max_length}, and the model has {positions} positions; give at most as many"
            )
        return max_length
    truncation = tokenizer.library.truncation or {}
    limits = (
        read_optional_json(Path(tokenizer.where) / _SENTENCES).get("max_seq_length"),
        tokenizer.options.get("model_max_length"),
        truncation.get("max_length"),
    )
    known = [each for each in limits if type(each) is int and 0 < each < _ANY]
    return min([*known[:1], *([] if positions is None else [positions])], default=None)


def prompt_of(folder: Path, name: str | None) -> str:
    """The prompt in front of each text.

    Args:
        folder: the folder, which has no prompts if their file is missing.
        name: the name of a prompt, or "" for none; None means the checkpoint's default, which may be none.

    Raises:
        ValueError: for a prompt that the checkpoint does not have, and a file with anything else.
    """
    section = read_optional_json(folder / PROMPTS)
    prompts, name = section.get("prompts") or {}, section.get("default_prompt_name") if name is None else name
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ValueError(f"{folder / PROMPTS}: prompts are {prompts!r}, expected an object of names and texts")
    if not name:
        return ""
    if name not in prompts:
        names = ", ".join(map(repr, prompts)) or "none"
        raise ValueError(f"{folder}: has no prompt {name!r}; there are {names}")
    return str(prompts[name])
