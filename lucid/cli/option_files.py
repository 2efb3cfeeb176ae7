"""The text of files that options name."""

from __future__ import annotations

from pathlib import Path

from lucid.cli.errors import usage
from lucid.files.atomic import open_regular
from lucid.files.utf8_text import utf8_text


def text_of(path: Path, option: str, most: int) -> str:
    """A file of at most so many bytes, in UTF-8."""
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise usage(f"{option} {path}: more than {most >> 10} KiB, the most that is read of it; shorten it")
    try:
        return utf8_text(data, path)
    except ValueError as error:
        raise usage(f"{option} {error}") from None
