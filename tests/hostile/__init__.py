"""Hostile files of each format, and how they must be refused: by a clear error, within a second and below 100 MB.

Each file here has the `CASES` of a format; tests of the readers import them.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from benchmarks.memory import Peak

Writer: TypeAlias = Callable[[Path], Path]
"""Writes a file into an empty folder and returns the path to open."""
Cases: TypeAlias = dict[str, tuple[str, Writer]]
"""By name: what is wrong, and the function that writes the file."""


def file_of(name: str, content: bytes | Callable[[], bytes]) -> Writer:
    """A file of this content; a function makes content that is large, when it is written."""

    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content())
        return folder / name

    return write


def pipe(name: str) -> Writer:
    """A pipe that nobody writes to."""

    def write(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return write


def device(name: str) -> Writer:
    """A link to a device without end."""

    def write(folder: Path) -> Path:
        (folder / name).symlink_to("/dev/zero")
        return folder / name

    return write


def assert_refused(read: Callable[[Path], object], path: Path, error: type[Exception]) -> None:
    """Read a file, and check the error, its time and its memory."""
    message = refused(read, path, error)
    assert len(message) < 1000, message
    assert path.name in message and "; " in message, "names the file, and says what to do"


def refused(read: Callable[[Path], object], path: Path, error: type[Exception] | tuple[type[Exception], ...]) -> str:
    """The message of the error that reading a file raises: printable, within a second and below 100 MB."""
    for _ in range(3):  # the best of three: other tests run at the same time
        gc.disable()  # it would walk over what other tests left, which is not the reader's time
        start = time.process_time()
        try:
            with Peak() as peak, pytest.raises(error) as caught:
                read(path)
            seconds = time.process_time() - start
        finally:
            gc.enable()
        if seconds < 1:
            break
    assert seconds < 1, f"three times more than a second, the last {seconds:.2f}"
    assert peak.bytes < 100 << 20, f"{peak.bytes >> 20} MB"
    message = str(caught.value)
    assert message.isprintable(), message
    return message
