"""Whether each row has an id of its own."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from lucid.batch.source import CHUNK, Source, no_column


def check_ids(source: Source, column: str) -> None:
    """Whether no id is null and none is twice. 8 bytes for each row are in memory.

    Raises:
        KeyError: for a column that is not there.
        ValueError: naming the rows, counted from 0.
    """
    if column not in source.schema.names:
        raise no_column(column, source.files[0], source.schema.names)
    hashes = array("Q")
    for row, value in _values(source, column):
        if value is None:
            raise ValueError(f"row {row} has no {column}, expected an id of its own")
        digest = hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8)
        hashes.frombytes(digest.digest())
    found, counts = np.unique(np.frombuffer(hashes, np.uint64), return_counts=True)
    if (counts > 1).any():
        suspects = set(np.flatnonzero(np.isin(np.frombuffer(hashes, np.uint64), found[counts > 1])).tolist())
        _check_equal(source, column, suspects)


def _check_equal(source: Source, column: str, suspects: set[int]) -> None:
    """Equal hashes almost always mean equal ids."""
    seen: dict[str, int] = {}
    for row, value in _values(source, column):
        if row in suspects:
            before = seen.setdefault(repr(value), row)
            if before != row:
                raise ValueError(f"rows {before} and {row} have the same {column}, {repr(value)[:80]}")


def _values(source: Source, column: str) -> Iterator[tuple[int, Any]]:
    row = 0
    for part in source.parts(64 * CHUNK):
        for rows in source.read(part):
            for value in rows.passed.column(column).to_pylist():
                yield row, value
                row += 1
