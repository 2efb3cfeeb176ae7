"""Sources of rows: the parts that are computed one by one, and the check that ids are unique."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lucid.batch.rows import RowError
from lucid.core.words.suggestions import did_you_mean

_FIRST = 64
CHUNK = 4096
"""The number of rows that are read, sorted and computed at a time: the more, the less padding."""

CHUNK_BYTES = 32 << 20
"""The bytes of rows that are read at a time: of large rows, fewer are read."""


@dataclass(frozen=True)
class Part:
    """Rows that become one file.

    Args:
        first: the number of the first row in the whole input.
        rows: the number of rows.
        file: the address of their file; unused for images.
        start: where they begin in the file: a row of a Parquet file, a byte of a text file.
        line: the line of a text file where they begin.
        names: the addresses of images.
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
        values: of each row what the model reads, or why there is nothing to read, with its place if that is a line.
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
        """All rows, in parts of `part_size`, or of a few more where this divides them better."""

    def read(self, part: Part) -> Iterator[Rows]:
        """The rows of a part, in their order, a chunk at a time."""

    def place(self, row: int) -> str:
        """Where a row of the whole input is, counted from 1: ``line 2 of in.csv``, ``row 1 of in.parquet``."""


def part_size(first: int, rows: int) -> int:
    """The rows of a part that begins at row `first`: as many as come before it, but from 64 to `rows`.

    So even an early interruption loses less than half of the computed rows.
    """
    return min(rows, max(_FIRST, first))


_INSTEAD_OF_COMMAS = {
    ";": "semicolons",
    "\t": "tabs, which are for names in .tsv",
    "|": "bars",
}  # as some programs write


def in_files(row: int, counts: Sequence[int]) -> tuple[int, int]:
    """The file of a row of the whole input and the row's number in it, both from 0; `counts` are the rows of files."""
    ends = [0, *accumulate(counts)]
    file = bisect_right(ends, row) - 1
    return file, row - ends[file]


def column_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column, in which bytes of a text that are not UTF-8 are half characters, as Python reads them."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:  # Arrow does not look at the bytes of a text before it is read
        raw = column.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        values = [text if text is None else text.decode("utf-8", "surrogateescape") for text in raw]
    return values


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse a file with two columns of one name, since the output has room for one, and names that are not text.

    Raises:
        ValueError: for such a file.
    """
    for name in names:
        if any("\ud800" <= each <= "\udfff" for each in name):  # bytes that are not UTF-8
            raise ValueError(f"{where}: has a column {name!r}, which is no text in UTF-8; save the file as UTF-8")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"{where}: has two columns of the name {twice[0]!r}; rename one of them")


def other_separator(line: str, before: str = "", column: str | None = None) -> str:
    """The advice for a line of CSV with another separator than commas, or nothing.

    Args:
        line: of the file.
        before: what stands in front of the separator.
        column: the name of a column that the line has; any by default.
    """
    for mark, name in _INSTEAD_OF_COMMAS.items():
        if before + mark in line and (column is None or column in line.split(mark)):
            return f"; save it with commas between the columns, not {name}"
    return ""


def no_column(name: str, where: str, columns: Sequence[str], option: str = "--column") -> KeyError:
    """The error for a missing column, which an option of the commands names."""
    message = f"{where}: has no column {name!r}; its columns are {', '.join(columns) or 'none'}"
    if len(columns) == 1 and (advice := other_separator(columns[0], column=name)):
        return KeyError(message + advice)
    return KeyError(f"{message}{did_you_mean(name, columns) or '; name another one'} ({option})")


def check_ids(source: Source, column: str) -> None:
    """Check that no id is null or repeated; this takes 8 bytes of memory for each row.

    Raises:
        KeyError: for a missing column.
        ValueError: for such ids; the message names the rows by their places.
    """
    if column not in source.schema.names:
        raise no_column(column, source.files[0], source.schema.names, "--id")
    hashes = array("Q")
    for row, value in _values(source, column):
        if value is None:
            raise ValueError(f"{source.place(row)} has no {column}, expected an id of its own")
        digest = hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8)
        hashes.frombytes(digest.digest())
    distinct, counts = np.unique(np.frombuffer(hashes, np.uint64), return_counts=True)
    if (counts > 1).any():
        suspects = set(np.flatnonzero(np.isin(np.frombuffer(hashes, np.uint64), distinct[counts > 1])).tolist())
        _check_equal(source, column, suspects)


def _check_equal(source: Source, column: str, suspects: set[int]) -> None:
    """Equal hashes almost always mean equal ids."""
    seen: dict[str, int] = {}
    for row, value in _values(source, column):
        if row in suspects:
            before = seen.setdefault(repr(value), row)
            if before != row:
                both = f"{source.place(before)} and {source.place(row)}"
                raise ValueError(f"{both} have the same {column}, {repr(value)[:80]}")


def _values(source: Source, column: str) -> Iterator[tuple[int, Any]]:
    row = 0
    for part in source.parts(64 * CHUNK):
        for rows in source.read(part):
            for value in column_values(rows.passed.column(column)):
                yield row, value
                row += 1
