"""The facts for Hugging Face's hub in a checkpoint's README.md that the card of an export keeps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from lucid.core.words.safe_text import visible
from lucid.files.atomic import open_regular
from lucid.files.hub import published_name

_KEPT = ("license", "license_name", "license_link", "language", "base_model")
_LONGEST = 1 << 18  # bytes of a card that are read: metadata come first
_FIELD = re.compile(r"([a-z_]+):(?: (.*)|$)")


class SourceCard(NamedTuple):
    """The metadata of a card: lines of YAML as they are, and its tags."""

    lines: list[str]
    tags: list[str]


def source_card(checkpoint: Path) -> SourceCard:
    """Of the README.md of a checkpoint its licence, languages, base model and tags; empty if there is no card.

    The base model of a checkpoint in a cache of the hub is the checkpoint itself.
    """
    fields = _fields(checkpoint / "README.md")
    name = published_name(checkpoint)
    if name is not None:
        fields["base_model"] = [f"base_model: {name}"]
    tags = "\n".join(fields.get("tags", [])).partition(":")[2].strip("[] \n")
    return SourceCard(
        lines=[line for field in _KEPT for line in fields.get(field, [])],
        tags=[tag for each in re.split(r"[,\n]", tags) if (tag := each.strip(" -"))],
    )


def _fields(path: Path) -> dict[str, list[str]]:
    """The fields between the first two lines of dashes, each with its lines."""
    if not path.is_file():
        return {}
    with open_regular(path) as file:
        lines = file.read(_LONGEST).decode("utf-8", "replace").splitlines()
    if lines[:1] != ["---"] or "---" not in lines[1:]:
        return {}
    fields: dict[str, list[str]] = {}
    name = ""
    for line in lines[1 : lines.index("---", 1)]:
        field = _FIELD.match(line)
        name = field[1] if field else name
        fields.setdefault(name, []).append(visible(line))
    return fields
