"""Rows of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lucid.batch.source import (
    CHUNK,
    CHUNK_BYTES,
    Part,
    Rows,
    check_names,
    column_values,
    in_files,
    no_column,
    part_size,
)
from lucid.batch.storage import open_file

_BUFFER = 1 << 20  # bytes that are read of a column at a time


class ParquetSource:
    """Parquet files of one schema.

    Args:
        files: their addresses.
        inputs: the columns that the model reads.

    Raises:
        KeyError: for a column that is not there.
        ValueError: for a file that is not Parquet, has other columns than the first one, or two of one name.
    """

    def __init__(self, files: tuple[str, ...], inputs: tuple[str, ...]) -> None:
        self.files, self._inputs = files, inputs
        self._rows: list[int] = []
        for file in files:
            with open_file(file) as stream:
                parquet = _parquet(stream, file)
                schema, rows = parquet.schema_arrow.remove_metadata(), parquet.metadata.num_rows
            check_names(schema.names, file)
            if not self._rows:
                self.schema: pa.Schema = schema
            elif not schema.equals(self.schema):
                raise ValueError(f"{file}: has the columns {_shown(schema)}, and {files[0]} has {_shown(self.schema)}")
            self._rows.append(rows)
        for name in inputs:
            if name not in self.schema.names:
                raise no_column(name, files[0], self.schema.names)
        self.total = sum(self._rows)

    def parts(self, rows: int) -> list[Part]:
        """As `Source.parts`; a part is of one file."""
        parts, first = [], 0
        for file, count in zip(self.files, self._rows, strict=True):
            start = 0
            while start < count:
                parts.append(Part(first + start, min(part_size(first + start, rows), count - start), file, start))
                start += parts[-1].rows
            first += count
        return parts

    def read(self, part: Part) -> Iterator[Rows]:
        """As `Source.read`; only the row groups that a part is in are read."""
        with open_file(part.file) as stream:
            file = _parquet(stream, part.file)
            groups, before = _groups(file.metadata, part)
            skipped, left = part.start - before, part.rows
            for batch in file.iter_batches(CHUNK, row_groups=groups):
                if skipped >= len(batch):
                    skipped -= len(batch)
                    continue
                taken = batch.slice(skipped, left)
                skipped, left = 0, left - len(taken)
                most = max(1, len(taken) * CHUNK_BYTES // max(CHUNK_BYTES, taken.nbytes))
                for start in range(0, len(taken), most):
                    yield self._rows_of(taken.slice(start, most))
                if not left:
                    return

    def place(self, row: int) -> str:
        """As `Source.place`."""
        file, number = in_files(row, self._rows)
        return f"row {number + 1} of {self.files[file]}"

    def _rows_of(self, batch: pa.RecordBatch) -> Rows:
        columns = [column_values(batch.column(name)) for name in self._inputs]
        return Rows(batch.replace_schema_metadata(None), list(zip(*columns, strict=True)))


def _parquet(stream: Any, name: str) -> Any:
    try:
        return pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{name}: is not a Parquet file, or not all of one: {error}") from error


def _groups(metadata: Any, part: Part) -> tuple[list[int], int]:
    """The row groups that a part is in, and how many rows come before them."""
    groups: list[int] = []
    before = seen = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if seen + rows > part.start and seen < part.start + part.rows:
            before = before if groups else seen
            groups.append(group)
        seen += rows
    return groups, before


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
