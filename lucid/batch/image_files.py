"""Folders of images as rows: one file, one row."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from lucid.batch.rows import RowError
from lucid.batch.source import Part, Rows, part_size
from lucid.batch.storage import read_file
from lucid.core.words.safe_text import encodable

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""The endings of image files."""

_AT_A_TIME = 64  # files in memory


class ImageSource:
    """Image files. Their paths become the column `path` of the output.

    Args:
        files: the addresses of the images.
    """

    schema = pa.schema([("path", pa.string())])

    def __init__(self, files: tuple[str, ...]) -> None:
        self._folder = os.path.commonpath([os.path.dirname(file) for file in files]) if len(files) > 1 else ""
        if "://" in files[0]:  # commonpath makes one slash of two
            self._folder = ""
        self.files, self.total = files, len(files)

    def parts(self, rows: int) -> list[Part]:
        """As `Source.parts`."""
        parts: list[Part] = []
        first = 0
        while names := self.files[first : first + part_size(first, rows)]:
            parts.append(Part(first, len(names), "", names=names))
            first += len(names)
        return parts

    def read(self, part: Part) -> Iterator[Rows]:
        """As `Source.read`."""
        for start in range(0, part.rows, _AT_A_TIME):
            files = part.names[start : start + _AT_A_TIME]
            paths = [encodable(os.path.relpath(file, self._folder) if self._folder else file) for file in files]
            yield Rows(pa.RecordBatch.from_pydict({"path": paths}, self.schema), [_read(file) for file in files])

    def place(self, row: int) -> str:
        """The address of an image."""
        return self.files[row]


def _read(file: str) -> tuple[bytes] | RowError:
    try:
        return (read_file(file),)
    except OSError as error:
        return RowError(f"the file cannot be read: {error}")
