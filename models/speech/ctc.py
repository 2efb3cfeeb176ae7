"""From sound to text by CTC (Graves et al. 2006): a token for each frame, without repetitions and blanks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

import lucid
from lucid import nn
from lucid.core.number_ranges import is_whole
from lucid.core.words.safe_text import show
from lucid.models.checkpoints.config import Array, Config, ConfigError, read_json, read_optional_json
from lucid.models.speech.log_mel import SAMPLE_RATE, checked_samples
from lucid.models.speech.transcription import Segment, Transcription


class Word(NamedTuple):
    """A word, and the frames from its first token to its last: `end` is the first one after it."""

    text: str
    start: int
    end: int
    tokens: list[int]


@dataclass(frozen=True, kw_only=True)
class CTCProcessor:
    """The processing before and after a model: sound to its input, and token ids to text."""

    tokens: Mapping[int, str] = field(repr=False)  # the text of each token id
    blank: int  # the id that stands for no token; between equal tokens it separates them
    delimiter: str = "|"  # the token between words
    lower_case: bool = False  # whether text is written in lower case
    normalize: bool = True  # whether a sound gets mean 0 and variance 1
    stride: int = 320  # samples from one frame to the next
    unknown: str = "<unk>"  # the text of an id that is not in `tokens`

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """Read vocab.json, and config.json, tokenizer_config.json and preprocessor_config.json where they are.

        Raises:
            ConfigError: for a file that is not valid, a vocabulary of several languages, one without the blank token,
                and a preprocessor for another sample rate than 16,000.
            OSError: if there is no vocab.json.
        """
        folder = Path(folder)
        where = folder / "vocab.json"
        tokenizer = _options(folder, "tokenizer_config.json")
        special = {**_options(folder, "special_tokens_map.json").options, **tokenizer.options}
        numbers = {**_added(tokenizer), **_options(folder, "added_tokens.json").options, **read_json(where)}
        for text, number in numbers.items():
            if isinstance(number, dict):
                raise ConfigError(f"{where}: has a vocabulary for each language, expected one")
            if not is_whole(number) or number < 0:
                raise ConfigError(f"{where}: the id of {show(text)} is {show(number)}, expected 0 or more")
        blank = _text_of(special.get("pad_token"), "<pad>")
        if blank not in numbers:
            raise ConfigError(f"{where}: has no {show(blank)}, the pad_token, which is the blank of CTC")
        sound, model = _options(folder, "preprocessor_config.json"), _options(folder, "config.json")
        sound.only("sampling_rate", SAMPLE_RATE)
        return cls(
            tokens={number: text for text, number in numbers.items()},
            blank=numbers[blank],
            delimiter=_text_of(special.get("word_delimiter_token"), "|"),
            lower_case=tokenizer.get("do_lower_case", bool, False),
            normalize=sound.get("do_normalize", bool, True),
            stride=prod(model.sizes("conv_stride")) if model.has("conv_stride") else cls.stride,
            unknown=_text_of(special.get("unk_token"), "<unk>"),
        )

    def input_values(self, samples: npt.ArrayLike) -> Array:
        """The input of a model: (n,) floating-point samples, 16,000 per second, to (1, n) float32.

        Raises:
            TypeError, ValueError: for other samples; they must be finite, in one channel.
        """
        sound = checked_samples(samples, "input_values")
        if self.normalize and sound.size:
            sound = sound.astype(np.float64)
            sound = (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)
        return sound.astype(np.float32)[None]

    def words(self, ids: npt.ArrayLike) -> list[Word]:
        """The words in the tokens of frames, (frames,)."""
        words: list[Word] = []
        at, within = 0, False
        for number, run in groupby(np.asarray(ids).tolist()):
            start, at = at, at + sum(1 for _ in run)
            text = self.tokens.get(number, self.unknown)
            if number == self.blank:
                continue
            if text == self.delimiter:
                within = False
                continue
            before = words.pop() if within else Word("", start, at, [])
            text = text.lower() if self.lower_case else text
            words.append(Word(before.text + text, before.start, at, [*before.tokens, number]))
            within = True
        return words

    def decode(self, ids: npt.ArrayLike) -> str:
        """The text in the tokens of frames, (frames,)."""
        return " ".join(word.text for word in self.words(ids))


def transcribe(
    model: nn.Module | lucid.runtime.Session, processor: CTCProcessor, samples: npt.ArrayLike
) -> Transcription:
    """Write down what is said: the most probable token of each frame. The segments are words.

    Args:
        model: a `Wav2Vec2ForCTC`, or a session of one that was exported.
        processor: of the same checkpoint.
        samples: (n,) floating-point, 16,000 per second: `read_wav` gives them. All are heard at once, and memory grows
            with the square of their number: cut recordings of more than a minute in pauses.

    Raises:
        TypeError, ValueError: for other samples, fewer than a frame has, or a model that does not take `input_values`.
    """
    sound = processor.input_values(samples)
    inputs = {"input_values": sound, "attention_mask": np.ones(sound.shape, np.int64)}
    names = model.inputs if isinstance(model, lucid.runtime.Session) else model.input_specs()
    if not {"input_values"} <= names.keys() <= inputs.keys():
        raise ValueError(
            f"transcribe: the model takes {', '.join(names)}, expected input_values; give a Wav2Vec2ForCTC, or a "
            "session of one"
        )
    logits = model(**{name: lucid.Tensor(inputs[name]) for name in names}).numpy()[0]
    words = processor.words(logits.argmax(-1))
    seconds = processor.stride / SAMPLE_RATE
    segments = [Segment(word.start * seconds, word.end * seconds, word.text, word.tokens) for word in words]
    return Transcription(None, " ".join(word.text for word in words), segments)


def _options(folder: Path, name: str) -> Config:
    """The options in a file, which may be missing."""
    return Config(read_optional_json(folder / name), str(folder / name))


def _added(tokenizer: Config) -> dict[str, int]:
    """The tokens that are not in vocab.json, by id, as newer tokenizer files list them."""
    added: Mapping[str, Any] = tokenizer.get("added_tokens_decoder", dict, {})
    return {_text_of(token, ""): int(number) for number, token in added.items() if re.fullmatch("[0-9]{1,9}", number)}


def _text_of(token: object, default: str) -> str:
    """The text of a token: a string, or an object with its `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else default
