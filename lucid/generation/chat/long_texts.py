"""Tokens of long texts: other threads run meanwhile, and what is cut off is not read."""

from __future__ import annotations

import re

import tokenizers

_SHORT = 2048  # characters, whose tokens are made in a millisecond or two
_CHARACTERS = 16  # of the first beginning that is tried, for each token that is kept
_GROWTH = 4  # of the next one
_CHANGING = 256  # characters before a cut whose tokens may change with what follows it, as of an added token cut in two
_BETWEEN_WORDS = re.compile(r"\w\W\w")  # a space or a mark


def tokenized(
    library: tokenizers.Tokenizer, text: str, pair: str | None = None, *, add_special_tokens: bool = True
) -> tokenizers.Encoding:
    """The tokens of a text, or of a pair, by the library's tokenizer. Other threads run while a long text is read: the
    library keeps Python's lock in `encode`, and gives it back in `encode_batch`.
    """
    if len(text) + len(pair or "") <= _SHORT:
        return library.encode(text, pair, add_special_tokens=add_special_tokens)
    entry = text if pair is None else (text, pair)
    return library.encode_batch([entry], add_special_tokens=add_special_tokens)[0]


def truncated(library: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    """The result of `library.encode` for a text, in time that does not grow with the part that is cut off.

    A tokenizer splits a text into words, from left to right, and makes tokens of each word by itself. Where it splits
    does not depend on what comes after the next space or punctuation mark between two letters or digits. So the tokens
    that are kept are those of the whole text if another word begins after them, and such a mark comes after that word's
    start. If the beginning of the text has no such place, a longer one is tokenized, and at last the whole text, as
    with tokenizers that never split.

    Args:
        library: keeps all tokens, or cuts texts off at a number of them.
        text: of any length.
    """
    cut = library.truncation if len(text) > _SHORT else None
    if cut is not None and cut["direction"] == "right":
        size = max(_SHORT, _CHARACTERS * cut["max_length"])
        while size < len(text):
            encoding = tokenized(library, text[:size])
            if _settled(encoding, text, size - _CHANGING):
                return encoding
            size *= _GROWTH
    return tokenized(library, text)


def _settled(encoding: tokenizers.Encoding, text: str, end: int) -> bool:
    """Whether the tokens kept of a beginning are those of the whole text; `end` is where the beginning may change."""
    last = next((word for word in reversed(encoding.word_ids) if word is not None), None)
    starts = (
        start
        for part in encoding.overflowing
        for word, (start, _) in zip(part.word_ids, part.offsets, strict=True)
        if word not in (None, last)
    )
    start = next(starts, end)
    return _BETWEEN_WORDS.search(text, start, end) is not None
