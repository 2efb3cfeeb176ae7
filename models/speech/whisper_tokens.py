"""Whisper's tokens: text, and the special ones that tell the model what to write (Radford et al. 2022, figure 1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from lucid.core.number_ranges import is_whole
from lucid.files.hub import local_checkpoint
from lucid.models.checkpoints.config import Config, read_json, read_optional_json


@dataclass(frozen=True, kw_only=True)
class WhisperTokenizer:
    """Token ids to text, and the ids of the tokens that are not text.

    Ids below `end_of_text` are text. The ids from `first_timestamp` on are the timestamps 0.00, 0.02, ... of a window.

    Args:
        decode: ids of text to a string.
        start_of_transcript, end_of_text: what every prompt begins with, and what ends every text.
        no_timestamps: ends the prompt of a text without timestamps. The token before it says that there is no speech.
        languages: the tokens of languages by their codes: "en". Empty for a model that knows English only.
        tasks: the tokens of "transcribe" and "translate", which is into English; empty for such a model.
        suppressed: tokens that the model must not write.
        suppressed_first: tokens that it must not write first.
        max_first_timestamp: the latest that the first segment may begin, in steps of 0.02 s.
        alignment_heads: the layer and number of each head of the decoder that attends to what is spoken at the time.
        median_filter_width: positions over which their weights are smoothed for the times of words.
    """

    decode: Callable[[list[int]], str]
    start_of_transcript: int
    end_of_text: int
    no_timestamps: int
    languages: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    max_first_timestamp: int = 50
    alignment_heads: tuple[tuple[int, int], ...] = ()
    median_filter_width: int = 7

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], decode: Callable[[list[int]], str]) -> Self:
        """Read the special tokens of Hugging Face's generation_config.json, and the width of a filter in config.json.

        Args:
            folder: the checkpoint, or its name on Hugging Face's hub.
            decode: as above, such as ``lucid.generation.chat.load_tokenizer(folder).decode``.

        Raises:
            ConfigError: for a generation_config.json without one of the special tokens, or with an invalid one.
            OSError: if the file is missing.
        """
        checkpoint = local_checkpoint(folder)
        path = checkpoint / "generation_config.json"
        options = Config(read_json(path), str(path))
        languages = _tokens(options, "lang_to_id")
        return cls(
            decode=decode,
            start_of_transcript=options.whole("decoder_start_token_id", low=0),
            end_of_text=options.whole("eos_token_id", low=0),
            no_timestamps=options.whole("no_timestamps_token_id", low=1),
            languages={name.strip("<|>"): token for name, token in languages.items()},
            tasks=_tokens(options, "task_to_id"),
            suppressed=_ids(options, "suppress_tokens"),
            suppressed_first=_ids(options, "begin_suppress_tokens"),
            max_first_timestamp=options.whole("max_initial_timestamp_index", 50, low=0),
            alignment_heads=_heads(options),
            median_filter_width=_filter_width(checkpoint / "config.json"),
        )

    @property
    def no_speech(self) -> int:
        """What the model writes after `start_of_transcript` where nobody speaks."""
        return self.no_timestamps - 1

    @property
    def first_timestamp(self) -> int:
        """The timestamp 0.00."""
        return self.no_timestamps + 1

    def prompt(self, language: str | None, task: str, timestamps: bool) -> list[int]:
        """The tokens that the decoder gets before it writes.

        Args:
            language: a key of `languages`; None for a model that knows English only.
            task: "transcribe" or "translate".
            timestamps: whether the model writes when segments begin and end.

        Raises:
            ValueError: for a language or a task that the model does not have.
        """
        if self.languages:
            chosen = [
                _known("language", language, self.languages),
                _known("task", task, self.tasks),
            ]
        elif language in (None, "en") and task == "transcribe":
            chosen = []
        else:
            raise ValueError(
                f"transcribe: got language={language!r} and task={task!r} for a model that knows English only; "
                "leave them out, or use a multilingual model"
            )
        return [self.start_of_transcript, *chosen, *([] if timestamps else [self.no_timestamps])]


def _known(name: str, value: str | None, tokens: Mapping[str, int]) -> int:
    if value is None or value not in tokens:
        raise ValueError(f"transcribe: {name} is {value!r}, expected one of {', '.join(tokens)}")
    return tokens[value]


def _tokens(options: Config, name: str) -> dict[str, int]:
    """An option that maps names to ids."""
    section = options.section(name)
    return {key: section.whole(key, low=0) for key in section.options}


def _ids(options: Config, name: str) -> tuple[int, ...]:
    """An option that lists ids."""
    ids = options.get(name, list, [])
    if not all(is_whole(token) and token >= 0 for token in ids):
        raise options.wrong(name, "expected token ids")
    return tuple(ids)


def _heads(options: Config) -> tuple[tuple[int, int], ...]:
    """The option alignment_heads; () without it."""
    pairs = options.get("alignment_heads", list, [])
    if not all(
        isinstance(pair, list) and len(pair) == 2 and all(type(n) is int and 0 <= n < 1000 for n in pair)
        for pair in pairs
    ):
        raise options.wrong("alignment_heads", "expected pairs of a layer and a head")
    return tuple((layer, head) for layer, head in pairs)


def _filter_width(path: Path) -> int:
    options = Config(read_optional_json(path), str(path))
    width = options.whole("median_filter_width", 7, high=999)
    if width % 2 == 0:
        raise options.wrong("median_filter_width", "expected an odd number")
    return width
