"""When a sequence ends: at a token, or at a string in the text of its new tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lucid.generation.prompts import Ids

Decode: TypeAlias = Callable[[list[int]], str]
"""Token ids to text, as `tokenizers.Tokenizer.decode` does."""


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

    def ended(self, new: Ids) -> npt.NDArray[np.bool_]:
        """Whether each sequence of new tokens (N, n), n at least 1, ends with its last token: (N,)."""
        by_token = np.array([token in self.tokens for token in new[:, -1].tolist()])
        decode = self._decode
        if not self._strings or decode is None:
            return by_token
        texts = [decode(row.tolist()) for row in new]
        by_string = np.array([any(string in text for string in self._strings) for text in texts])
        return np.asarray(by_token | by_string)
