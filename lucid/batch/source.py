"""What rows are read from, and how they are divided into parts that are computed by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from lucid.batch.rows import RowError

CHUNK = 4096
"""How many rows are read, sorted and computed at a time: the more, the less padding."""

CHUNK_BYTES = 32 << 20
"""Of rows that are large, fewer are read at a time: those of about so many bytes."""


@dataclass(frozen=True)
class Part:
    """Rows that become one file.

    Args:
        first: the number of its first row in the whole input.
        rows: how many there are.
        file: the address of the file that they are in; of images, the folder.
        start: where they begin in it: a row of a Parquet file, a byte of a text file.
        line: the line of a text file where they begin.
        names: of images.
    """

    first: int
    rows: int
    file: str
    start: int = 0
    line: int = 1
    names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file that the part becomes."""
        return f"part-{self.first:012d}.parquet"


@dataclass(frozen=True)
class Rows:
    """Some rows.

    Args:
        passed: the columns that go to the output.
        values: of each row what the model reads, or why there is nothing to read.
    """

    passed: pa.RecordBatch
    values: Sequence[tuple[Any, ...] | RowError]


class Source(Protocol):
    """Rows of files of one kind. It can be pickled.

    Attributes:
        files: their addresses.
        schema: of the columns that go to the output.
        total: how many rows there are.
    """

    files: tuple[str, ...]
    schema: pa.Schema
    total: int

    def parts(self, rows: int) -> list[Part]:
        """All rows, in parts of so many, or of a few more where this divides them better."""

    def read(self, part: Part) -> Iterator[Rows]:
        """The rows of a part, in their order, a chunk at a time."""


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse a file with two columns of one name, of which the output could have only one, and names that are no text.

    Raises:
        ValueError: if it has.
    """
    for name in names:
        if any("\ud800" <= each <= "\udfff" for each in name):  # bytes that are not UTF-8
            raise ValueError(f"{where}: has a column {name!r}, which is no text in UTF-8; save the file as UTF-8")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"{where}: has two columns of the name {twice[0]!r}; rename one of them")


def no_column(name: str, where: str, columns: Sequence[str]) -> KeyError:
    """The error for a column that is not there."""
    return KeyError(f"{where}: has no column {name!r}; its columns are {', '.join(columns) or 'none'}")
