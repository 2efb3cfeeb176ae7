"""Texts as calls of a model, such as `lucid.quantize` learns from."""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import Array
from lucid.generation.chat.tokenizer import Tokenizer

_LENGTH = 512  # tokens of a call: what GPTQ and most perplexities are measured over, and BERT's positions


def text_calls(tokenizer: Tokenizer, text: str, *, by_line: bool = False, length: int = _LENGTH) -> list[Array]:
    """The token ids of a text, in pieces (1, L) int64 of so many tokens at most, and of no more than the positions.

    Args:
        tokenizer: of the model.
        text: all of it is one sequence, as for a decoder; lines without text are left out with `by_line`.
        by_line: whether each line is a text of its own, as for an encoder, of which the beginning counts.
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
