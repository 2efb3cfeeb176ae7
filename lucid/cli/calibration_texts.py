"""The texts of --text as calls of a model, which needs the extra `chat`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lucid.cli.errors import usage
from lucid.cli.option_files import text_of
from lucid.core.graph.types import Array
from lucid.generation.chat import load_tokenizer, text_calls

SENTENCE = "The animal did not cross the street because it was too tired."
_LARGEST = 64 << 20  # bytes of a file of texts; some hundred sentences do


def calls(text: Path, checkpoint: Path, decoder: bool) -> list[Array]:
    """Token ids (1, L) for each call."""
    texts = text_of(text, "--text", _LARGEST)
    ids = text_calls(load_tokenizer(checkpoint), texts, by_line=not decoder)
    if not ids:
        raise usage(f"--text {text}: has no text, expected some hundred sentences")
    return ids


def sentence(checkpoint: Path) -> tuple[Array, list[str]]:
    """The ids (1, L) of a sentence, and its tokens as text.

    Raises:
        ValueError, OSError: as `load_tokenizer`.
    """
    tokenizer = load_tokenizer(checkpoint)
    ids = tokenizer.encode(SENTENCE)[: tokenizer.max_positions]
    tokens = [tokenizer.decode([each]) or str(tokenizer.library.id_to_token(each)) for each in ids]
    return np.asarray([ids], np.int64), tokens
