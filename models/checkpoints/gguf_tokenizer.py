"""The tokenizer inside a GGUF file, as a `tokenizers.Tokenizer`.

::

    words = read_tokenizer("model.gguf")
    ids = words.tokenizer.encode("Hello world").ids
    words.special["eos"]                              # the id that ends a text
    words.chat_template                               # the Jinja template, as text

A file says how text is cut up before the merges only by a name (tokenizer.ggml.pre); `_SPLITS` is what llama.cpp does
for each. The tokenizer computes what the model's own does, as published on the Hugging Face hub.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from lucid.core.words.safe_text import show
from lucid.models.checkpoints.config import ConfigError
from lucid.models.checkpoints.gguf_file import Header, Strings, read_header

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class _Split(NamedTuple):
    """How text is split: by each pattern in turn, within the pieces of the previous one."""

    patterns: tuple[str, ...]
    whole_words: bool = False  # a piece that is in the vocabulary is one token, whatever the merges say
    begins: bool = False  # with the token that begins a text, where the file does not say
    composed: bool = False  # letters and their accents become one character where Unicode has it


_SPLITS = {
    "default": _Split((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": _Split((_GPT2,)),
    "smollm": _Split((r"\p{N}", _GPT2)),
    "llama-bpe": _Split((_GPT4.format(digits="{1,3}"),), whole_words=True, begins=True),
    "qwen2": _Split((_GPT4.format(digits=""),), composed=True),
}
_SPLITS |= dict.fromkeys(("llama3", "llama-v3"), _SPLITS["llama-bpe"])
_SPLITS["deepseek-r1-qwen"] = _SPLITS["qwen2"]
_CONTROL, _USER_DEFINED = 3, 4  # token types: never made from text by merges
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "eot": "eot"}


class GGUFTokenizer(NamedTuple):
    """The tokenizer that a file describes."""

    tokenizer: Tokenizer
    special: Mapping[str, int]  # the ids of "bos", "eos", "unk", "sep", "pad", "eot", as far as the file gives them
    chat_template: str | None


def read_tokenizer(path: str | os.PathLike[str]) -> GGUFTokenizer:
    """Read the byte-level BPE in a GGUF file.

    Raises:
        ConfigError: for a tokenizer of another kind, an unknown way to cut up text, or lists that do not fit together.
        WeightsError: for a file that is not exactly right. OSError: when there is none.
    """
    return tokenizer_in(read_header(path))


def tokenizer_in(header: Header) -> GGUFTokenizer:
    """As `read_tokenizer`, of a file whose header has been read."""
    file = _Metadata(header)
    file.choose("tokenizer.ggml.model", None, ("gpt2",))
    split = _SPLITS[file.choose("tokenizer.ggml.pre", "default", tuple(_SPLITS))]
    tokens = file.strings("tokenizer.ggml.tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise file.wrong("tokenizer.ggml.tokens", f"holds {len(tokens) - len(vocabulary)} tokens twice")
    pieces = models.BPE(vocabulary, _merges(file, vocabulary), ignore_merges=split.whole_words)
    tokenizer = Tokenizer(pieces)
    if split.composed:
        tokenizer.normalizer = normalizers.NFC()
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in split.patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(_added(file, tokens))
    special = {name: file.token(f"tokenizer.ggml.{key}_token_id", len(tokens)) for name, key in _SPECIAL.items()}
    known = {name: number for name, number in special.items() if number is not None}
    around = [
        name if name in known and file.flag(f"tokenizer.ggml.add_{name}_token", default) else None
        for name, default in (("bos", split.begins), ("eos", False))
    ]
    if any(around):
        template = [f"{name}:0" for name in (around[0], "$A", around[1]) if name is not None]
        named = [{"id": name, "ids": [known[name]], "tokens": [tokens[known[name]]]} for name in around if name]
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=named)
    return GGUFTokenizer(tokenizer, known, file.text("tokenizer.chat_template"))


class _Metadata:
    """The metadata about text, each in its type."""

    def __init__(self, header: Header) -> None:
        self._header = header

    def wrong(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self._header.path}: metadata {key} {what}; get an intact copy of the file")

    def text(self, key: str) -> str | None:
        value = self._header.metadata.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, f"is {show(value)}, expected text")
        return value

    def choose(self, key: str, default: str | None, known: tuple[str, ...]) -> str:
        value = self.text(key) or default
        if value not in known:
            raise ConfigError(
                f"{self._header.path}: metadata {key} is {show(value)}, supported: {', '.join(known)}; "
                "get the model's tokenizer.json"
            )
        return value

    def strings(self, key: str) -> list[str]:
        value = self._header.metadata.get(key)
        if not isinstance(value, Strings):
            got = "is missing" if value is None else f"is {show(value)}"
            raise self.wrong(key, f"{got}, expected a list of strings")
        return list(value.read())

    def flag(self, key: str, default: bool) -> bool:
        value = self._header.metadata.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"is {show(value)}, expected a boolean")
        return value

    def token(self, key: str, count: int) -> int | None:
        value = self._header.metadata.get(key)
        if value is not None and (not isinstance(value, int) or not 0 <= value < count):
            raise self.wrong(key, f"is {show(value)}, expected the id of one of {count} tokens")
        return value

    def types(self, count: int) -> list[int]:
        """The type of each token."""
        value = self._header.metadata.get("tokenizer.ggml.token_type")
        if value is None:
            return [1] * count
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.size != count:
            raise self.wrong("tokenizer.ggml.token_type", f"is {show(value)}, expected {count} whole numbers")
        return [int(number) for number in value]


def _merges(file: _Metadata, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs that are joined, first to last. What they and their parts are must be tokens."""
    pairs: list[tuple[str, str]] = []
    for merge in file.strings("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            raise file.wrong("tokenizer.ggml.merges", f"has {show(merge)}, expected two tokens that make a third")
        pairs.append((left, right))
    return pairs


def _added(file: _Metadata, tokens: list[str]) -> list[AddedToken]:
    """The tokens that are found in text before anything else; decoding leaves out those of control."""
    return [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, kind in zip(tokens, file.types(len(tokens)), strict=True)
        if kind in (_CONTROL, _USER_DEFINED)
    ]
