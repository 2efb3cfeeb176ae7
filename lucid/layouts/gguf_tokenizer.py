"""The tokenizer of a GGUF file as files. Needs the extras `chat` and `gguf`."""

from __future__ import annotations

from pathlib import Path

from lucid.generation.chat import load_tokenizer, save_tokenizer


def write(checkpoint: Path, folder: Path) -> None:
    """Write what `lucid.generation.chat.save_tokenizer` does of a GGUF file's tokenizer."""
    save_tokenizer(load_tokenizer(checkpoint), folder)
