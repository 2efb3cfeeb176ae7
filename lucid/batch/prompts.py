"""What a checkpoint of sentence-transformers puts before each text, such as "query: "."""

from __future__ import annotations

from pathlib import Path

from lucid.layouts.companions import SENTENCE_COMPANIONS
from lucid.models.checkpoints.config import read_json

(FILE,) = SENTENCE_COMPANIONS


def prompt_of(folder: Path, wanted: str | None) -> str:
    """What is put before each text.

    Args:
        folder: with the file, or without: then there are no prompts.
        wanted: the name of a prompt, or "" for none; None is the checkpoint's default, which may be none.

    Raises:
        ValueError: for a prompt that the checkpoint does not have, and a file with anything else.
    """
    told = read_json(folder / FILE) if (folder / FILE).is_file() else {}
    prompts, name = told.get("prompts") or {}, told.get("default_prompt_name") if wanted is None else wanted
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ValueError(f"{folder / FILE}: prompts are {prompts!r}, expected an object of names and texts")
    if not name:
        return ""
    if name not in prompts:
        names = ", ".join(map(repr, prompts)) or "none"
        raise ValueError(f"{folder}: has no prompt {name!r}; there are {names}")
    return str(prompts[name])
