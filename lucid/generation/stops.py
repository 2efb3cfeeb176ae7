"""When a sequence ends: at a token, or at a string in the text of its new tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

Decode: TypeAlias = Callable[[list[int]], str]
"""Token ids to text, as `tokenizers.Tokenizer.decode` does."""


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """The strings that end a text, of which one may be given by itself.

    Raises:
        TypeError: for anything but strings. ValueError: for an empty one.
    """
    if stop is not None and (not isinstance(stop, Iterable) or isinstance(stop, bytes)):
        raise TypeError(f"generate: stop is {stop!r}, expected a string or a list of strings")
    strings = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    for text in strings:
        if not isinstance(text, str):
            raise TypeError(f"generate: stop has a {type(text).__name__}, expected strings")
        if not text:
            raise ValueError("generate: stop has an empty string, expected at least one character")
    return strings


class Stops:
    """The conditions that end a sequence.

    Args:
        tokens: ids that end it.
        strings: strings that end it when the text of the new tokens contains one; the prompt does not count.
        decode: token ids to text; needed for strings.

    Raises:
        ValueError: for strings without `decode`.
    """

    def __init__(self, tokens: Sequence[int], strings: Sequence[str], decode: Decode | None) -> None:
        if strings and decode is None:
            raise ValueError(
                f"generate: stop is {list(strings)}, which needs the text of tokens; "
                "give Generator(..., decode=tokenizer.decode)"
            )
        self.tokens, self._strings, self._decode = tuple(tokens), tuple(strings), decode

    def end(self, new: Sequence[int]) -> bool:
        """Whether a sequence of new tokens, at least one, ends with its last token."""
        if new[-1] in self.tokens:
            return True
        if not self._strings or self._decode is None:
            return False
        text = self._decode(list(new))
        return any(string in text for string in self._strings)
