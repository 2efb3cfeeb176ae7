"""Text from tokens as they come: whole characters only, and nothing of a string that ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucid.generation.stops import stop_strings

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what bytes that are not (yet) a character decode to
_LONGEST_CHARACTER = 8  # tokens; a character has at most 4 bytes, so more of them are no character
_LONGEST_START = 3  # tokens of a character that is not complete


class TextStream:
    """The text of a sequence of tokens, piece by piece: together they are what `decode` makes of all tokens.

    Several tokens may make one character, and what a token means may depend on the one before it, such as its leading
    space. So a few tokens are decoded together: those of the last piece, and those after it. Each token costs the same,
    however many came before.

    Args:
        decode: token ids to text, as `tokenizers.Tokenizer.decode`.
        stop: the string or strings that end the text; neither they nor what follows is part of it.

    Raises:
        TypeError, ValueError: for a stop string that is no text, or empty.
    """

    def __init__(self, decode: Callable[[list[int]], str], stop: str | Sequence[str] = ()) -> None:
        self._decode, self._stop = decode, stop_strings(stop)
        self._before: list[int] = []  # the tokens of the last piece
        self._fresh: list[int] = []  # those after it
        self._held = ""  # text that may be the start of a stop string
        self.stopped = False
        """Whether a stop string has ended the text."""

    def add(self, token: int) -> str:
        """The text that the next token completes; often empty, or the text of several tokens."""
        self._fresh.append(token)
        before, text = self._decode(self._before), self._decode(self._before + self._fresh)
        rest: list[int] = []
        if text.endswith(UNFINISHED):
            if len(self._fresh) < _LONGEST_CHARACTER:
                return ""
            text, rest = self._without_start(text)
        piece = text[len(before) :]
        if piece:  # a special token, for one, has no text
            self._before = self._fresh[: len(self._fresh) - len(rest)]
        self._fresh = rest
        return self._until_stop(piece)

    def end(self) -> str:
        """The rest of the text when no token follows."""
        text = self._decode(self._before + self._fresh)[len(self._decode(self._before)) :]
        self._before, self._fresh = [], []
        piece = self._until_stop(text)
        rest, self._held = ("" if self.stopped else self._held), ""
        return piece + rest

    def _without_start(self, text: str) -> tuple[str, list[int]]:
        """The text of bytes that are no characters, without the last tokens, and these: they may begin a character."""
        for end in range(len(self._fresh) - _LONGEST_START, 0, -1):
            earlier = self._decode(self._before + self._fresh[:end])
            if earlier + self._decode(self._fresh[end:]) == text:  # no character is cut in two
                return earlier, self._fresh[end:]
        return text, []

    def _until_stop(self, piece: str) -> str:
        """The text up to the first stop string, without an end that may become one."""
        if self.stopped:
            return ""
        text = self._held + piece
        places = [text.index(string) for string in self._stop if string in text]
        if places:
            self.stopped, self._held = True, ""
            return text[: min(places)]
        starts = (string[:length] for string in self._stop for length in range(1, min(len(string), len(text) + 1)))
        kept = max((len(start) for start in starts if text.endswith(start)), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]
