"""How a BERT tokenizer replaces each character before it looks for pieces of words.

`BertNormalizer` and `BertPreTokenizer` treat every character by itself: it is removed, is a space, is a word of its own
(punctuation, Chinese), becomes others (lower case, without accents), or stays. So a table of all characters, made by
running them, describes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import tokenizers

_SURROGATES = range(0xD800, 0xE000)
_BLOCK, _LEAST, _PARTS = 1 << 15, 1 << 9, 8  # characters that are asked for at once, and how blocks are divided
_LEFT, _RIGHT, _BETWEEN = "x", "y", "0"  # letters that stay as they are, around a character, and a word between two


@dataclass(frozen=True)
class Characters:
    """The replacement of each character, by its text; words are divided by spaces. Those that stay are not listed.

    A surrogate is no character, and NUL ends a text in onnxruntime. The last `special` of the removed characters stand
    for special tokens.
    """

    becomes: Mapping[str, str]
    special: int

    @cached_property
    def removed(self) -> list[str]:
        """The characters that are left out."""
        return [character for character, text in self.becomes.items() if not text]

    @cached_property
    def removed_pattern(self) -> str:
        """The pattern of the removed characters, without those that stand for special tokens: a million characters."""
        return pattern_of(self.removed[: len(self.removed) - self.special])

    @cached_property
    def spaces(self) -> list[str]:
        """The characters that divide words."""
        return [character for character, text in self.becomes.items() if text and not text.strip()]

    @cached_property
    def alone(self) -> list[str]:
        """The characters that are words of their own."""
        return [character for character, text in self.becomes.items() if text == f" {character} "]

    @cached_property
    def replaced(self) -> dict[str, str]:
        """The replacement of each other character."""
        done = {*self.removed, *self.spaces, *self.alone}
        return {character: text for character, text in self.becomes.items() if character not in done}


def characters_of(library: tokenizers.Tokenizer, special: int) -> Characters:
    """Ask the normaliser and the pre-tokenizer of a tokenizer about every character of Unicode; it takes a second."""
    parts = json.loads(library.to_str())
    return _characters(json.dumps([parts["normalizer"], parts["pre_tokenizer"]]), special)


@lru_cache(maxsize=4)  # with its tables and patterns, which every export of a tokenizer needs
def _characters(parts: str, special: int) -> Characters:
    return Characters(_becomes(parts), special)


@lru_cache(maxsize=4)
def _becomes(parts: str) -> Mapping[str, str]:
    normalizer, pre_tokenizer = json.loads(parts)
    library = tokenizers.Tokenizer.from_str(
        json.dumps(
            {
                "added_tokens": [],
                "normalizer": normalizer,
                "pre_tokenizer": pre_tokenizer,
                "model": {
                    "type": "WordPiece",
                    "vocab": {},
                    "unk_token": "",
                    "continuing_subword_prefix": "",
                    "max_input_chars_per_word": 1,
                },
            }
        )
    )
    everything = [chr(code) for code in range(1, 0x110000) if code not in _SURROGATES]
    blocks = [everything[start : start + _BLOCK] for start in range(0, len(everything), _BLOCK)]
    becomes: dict[str, str] = {}
    while blocks:
        block = blocks.pop()
        together = "".join(block)
        normal = library.normalizer.normalize_str(together)
        if not normal:  # most blocks are of one kind: all characters are removed
            becomes |= dict.fromkeys(block, "")
        elif normal == together and len(_words(library, together)) == 1:  # or all stay
            continue
        elif len(block) > _LEAST:
            part = len(block) // _PARTS
            blocks += [block[start : start + part] for start in range(0, len(block), part)]
        else:
            becomes |= {character: text for character, text in _asked(library, block) if text != character}
    return dict(sorted(becomes.items()))


def _asked(library: tokenizers.Tokenizer, block: Sequence[str]) -> Iterable[tuple[str, str]]:
    words = _words(library, f" {_BETWEEN} ".join(f"{_LEFT}{character}{_RIGHT}" for character in block))
    groups = f" {' '.join(words)} ".split(f" {_BETWEEN} ")
    stripped = (one.strip()[len(_LEFT) : -len(_RIGHT)] for one in groups)
    return zip(block, stripped, strict=True)


def _words(library: tokenizers.Tokenizer, text: str) -> list[str]:
    return [word for word, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(text))]


def pattern_of(characters: Iterable[str]) -> str:
    """A regular expression of RE2 for one of these characters; without any it finds nothing."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    listed = "".join(f"{_escaped(first)}-{_escaped(last)}" for first, last in ranges)
    return f"[{listed}]" if listed else rf"[^{_escaped(0)}-{_escaped(sys.maxunicode)}]"  # RE2 has no empty class


def literally(text: str) -> str:
    """A regular expression of RE2 for a text."""
    return "".join(_escaped(ord(character)) for character in text)


def _escaped(code: int) -> str:
    return rf"\x{{{code:X}}}"
