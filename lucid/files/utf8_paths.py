"""Paths as ONNX files and onnxruntime have them: in UTF-8, whatever the encoding of paths is on this system."""

from __future__ import annotations

import os

from lucid.core.words.safe_text import encodable


class PathError(ValueError):
    """A path that is no text in UTF-8."""


def utf8_path(path: str | os.PathLike[str]) -> str:
    """A path for onnxruntime, or for the place of external data in a model.

    Raises:
        PathError: for a path that is no text in UTF-8.
    """
    try:
        return os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        message = "the path is not in UTF-8, and ONNX files and onnxruntime have no others; rename the file"
        raise PathError(f"{encodable(os.fspath(path))}: {message}") from None


def local_path(text: str) -> str:
    """A path of a model, as Python opens it here: the inverse of `utf8_path`."""
    return os.fsdecode(text.encode("utf-8"))
