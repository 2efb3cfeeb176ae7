"""Rows of text files, JSON lines and CSV, which are read once before anything is computed.

So all of the rows are counted, the type of each column is one that holds all of its values, and a part is read from the
byte where it begins.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from lucid.batch.rows import RowError
from lucid.batch.source import (
    CHUNK,
    CHUNK_BYTES,
    Part,
    Rows,
    check_names,
    in_files,
    no_column,
    other_separator,
    part_size,
)
from lucid.batch.storage import open_file
from lucid.core.number_ranges import is_whole
from lucid.core.words.progress import phase
from lucid.files.untrusted import json_value
from lucid.files.utf8_text import MARK, refuse_utf16

LONGEST = 1 << 26  # bytes of a line
_BROKEN = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)  # of decompressing
_INDEX = 4096  # places that are remembered in each file
_INT64 = range(-(1 << 63), 1 << 63)
_TYPES = {frozenset({bool}): pa.bool_(), frozenset({int}): pa.int64()} | {
    frozenset({float}): pa.float64(),
    frozenset({int, float}): pa.float64(),
}  # all others are text, as are columns of several types, whose values are written as JSON


class _Long(int):
    """The type of integers that float64 does not hold."""


def _kind(value: Any) -> type:
    """The type of a value, as far as it decides the type of its column."""
    if not is_whole(value) or abs(value) <= 1 << 53:
        return type(value)
    return _Long if value in _INT64 else object


def _type(kinds: set[type]) -> pa.DataType:
    if _Long in kinds:
        kinds = kinds - {_Long} | ({object} if float in kinds else {int})
    return _TYPES.get(frozenset(kinds), pa.string())


class Record(NamedTuple):
    """A row, or the reason why there is none, its first line, and the byte and line of the next one."""

    row: Mapping[str, Any] | RowError
    line: int
    end: int
    next_line: int


class _Place(NamedTuple):
    first: int  # row of the file
    start: int
    line: int


class LineSource:
    """Text files of one format.

    Args:
        files: their addresses.
        inputs: the columns that the model reads.
        separator: of CSV; None for JSON lines.

    Raises:
        KeyError: for a column that is not there.
        ValueError: for CSV without columns, with two of one name, or with a quote that is not closed; for files none of
            whose rows can be read.
    """

    def __init__(self, files: tuple[str, ...], inputs: tuple[str, ...], separator: str | None) -> None:
        self.files, self._inputs, self._separator = files, inputs, separator
        self._places: list[list[_Place]] = []
        self._rows: list[int] = []
        types: dict[str, set[type]] = {}
        with phase("reading the input", len(files)) as advance:
            for file in files:
                self._index(file, types)
                advance(1)
        self.total = sum(self._rows)
        if self.total and not types:
            first = next(file for file, rows in zip(files, self._rows, strict=True) if rows)
            raise ValueError(f"no row can be read: {next(self._records(first, 0, 1)).row}")
        for name in inputs:
            if name not in types and self.total:
                raise no_column(name, files[0], list(types))
        check_names(list(types), files[0])
        self.schema = pa.schema([(name, _type(kinds)) for name, kinds in types.items()])

    def parts(self, rows: int) -> list[Part]:
        """As `Source.parts`."""
        parts, before = [], 0
        for file, places, count in zip(self.files, self._places, self._rows, strict=True):
            chosen: list[_Place] = []
            for place in places:
                if not chosen or place.first - chosen[-1].first >= part_size(before + chosen[-1].first, rows):
                    chosen.append(place)
            starts = [place.first for place in chosen]
            for place, (start, end) in zip(chosen, pairwise([*starts, count]), strict=True):
                parts.append(Part(before + start, end - start, file, place.start, place.line))
            before += count
        return parts

    def read(self, part: Part) -> Iterator[Rows]:
        """As `Source.read`."""
        for chunk in _chunks(islice(self._records(part.file, part.start, part.line), part.rows), part.start):
            there = [{} if isinstance(row, RowError) else row for row in chunk]
            columns = {field.name: [_stored(row.get(field.name), field.type) for row in there] for field in self.schema}
            values = [
                row if isinstance(row, RowError) else tuple(row.get(name) for name in self._inputs) for row in chunk
            ]
            for name, column in columns.items():
                for row, reason in _make_unicode(column, name):
                    if name not in self._inputs and not isinstance(values[row], RowError):
                        values[row] = reason
            yield Rows(pa.RecordBatch.from_pydict(columns, schema=self.schema), values)

    def place(self, row: int) -> str:
        """As `Source.place`; the file is read from the last place before it that is remembered."""
        number, row = in_files(row, self._rows)
        file, near = self.files[number], [place for place in self._places[number] if place.first <= row][-1]
        record = next(islice(self._records(file, near.start, near.line), row - near.first, None))
        return f"line {record.line} of {file}"

    def _index(self, file: str, types: dict[str, set[type]]) -> None:
        """Count the rows of a file, and remember where some of them begin: every one, every second, every fourth ..."""
        places, every, count = [_Place(0, 0, 1)], 1, 0
        for record in self._records(file, 0, 1):
            count += 1
            if count % every == 0:
                places.append(_Place(count, record.end, record.next_line))
                if len(places) > _INDEX:
                    places, every = places[::2], 2 * every
            if not isinstance(record.row, RowError):
                for name, value in record.row.items():
                    kinds = types.setdefault(name, set())
                    if value is not None:
                        kinds.add(_kind(value))
        self._places.append([place for place in places if place.first < count])
        self._rows.append(count)

    def _records(self, file: str, start: int, line: int) -> Iterator[Record]:
        try:
            with open_file(file) as stream:
                refuse_utf16(stream.read(2), file)
                stream.seek(0)
                if self._separator is None:
                    stream.seek(start)
                    yield from _json_records(stream, file, start, line)
                else:
                    yield from _csv_records(stream, file, start, line, self._separator)
        except _BROKEN as error:
            raise ValueError(f"{file}: is not what its name says, or ends too soon ({error})") from error


def _chunks(records: Iterable[Record], start: int) -> Iterator[list[Mapping[str, Any] | RowError]]:
    """Rows, so many at a time, or fewer if they have many bytes."""
    chunk: list[Mapping[str, Any] | RowError] = []
    for record in records:
        chunk.append(record.row)
        if len(chunk) == CHUNK or record.end - start >= CHUNK_BYTES:
            yield chunk
            chunk, start = [], record.end
    if chunk:
        yield chunk


def _json_records(stream: Any, file: str, start: int, line: int) -> Iterator[Record]:
    """JSON lines; empty ones are no rows."""
    while raw := stream.readline(LONGEST):
        where, start, line = line, start + len(raw), line + 1
        if len(raw) == LONGEST and not raw.endswith(b"\n"):
            while (rest := stream.readline(LONGEST)) and not rest.endswith(b"\n"):
                start += len(rest)
            start += len(rest)
            yield Record(RowError(f"line {where} of {file} has more than {LONGEST} bytes"), where, start, line)
        elif raw.strip():
            yield Record(_object(raw.removeprefix(MARK), where, file), where, start, line)


def _object(raw: bytes, line: int, file: str) -> Mapping[str, Any] | RowError:
    if raw.lstrip().startswith(b"["):
        return RowError(
            f"line {line} of {file} begins a JSON array, expected a line for each object, as jq -c '.[]' writes them"
        )
    try:
        parsed = json_value(raw.decode("utf-8", "surrogateescape"), unique=True)
    except json.JSONDecodeError as error:  # its own line is the only one
        return RowError(f"line {line} of {file} is not valid JSON: {error.msg} at character {error.pos + 1}")
    except ValueError as error:
        return RowError(f"line {line} of {file} is not valid JSON: {str(error)[:80]}")
    if not isinstance(parsed, dict):
        return RowError(f"line {line} of {file} is {json.dumps(parsed)[:80]}, expected a JSON object")
    return parsed


def _csv_records(stream: Any, file: str, start: int, line: int, separator: str) -> Iterator[Record]:
    """CSV with a first line of names; every value is text. A record may have several lines."""
    csv.field_size_limit(LONGEST)  # of this process; its default is 131,072
    lines = _Lines(stream, file)
    reader, where = csv.reader(lines, delimiter=separator, strict=True), 1
    try:
        names = next(reader, None)
        if not names:
            what = "is empty" if names is None else "begins with an empty line"
            raise ValueError(f"{file}: {what}, expected a line with the names of columns")
        check_names(names, file)
        if start:
            stream.seek(start)
            lines.position, lines.line = start, line
        where = lines.line
        for fields in reader:
            if len(fields) == len(names):
                yield Record(dict(zip(names, fields, strict=True)), where, lines.position, lines.line)
            elif fields:  # an empty line is no row
                count = f"{len(fields)} value{'s' * (len(fields) != 1)}"
                wrong = RowError(f"line {where} of {file} has {count}, expected {len(names)}")
                yield Record(wrong, where, lines.position, lines.line)
            where = lines.line
    except csv.Error as error:
        hint, problem = other_separator(lines.text, '"') if separator == "," else "", str(error).partition(" - ")[0]
        if "\r" in lines.text.rstrip("\r\n"):
            hint = "; its lines end with CR alone: save it with LF or CR LF"
        elif not hint and problem.startswith(("unexpected end", "'")):  # what Python says of quotation marks
            hint = "; double quotation marks within a text, and close it right before the separator"
        raise ValueError(f"{file}: the record at line {where} is not CSV: {problem}{hint}") from error


class _Lines:
    """The lines of a stream as text, and where the next one begins."""

    def __init__(self, stream: Any, file: str) -> None:
        self._stream, self._file = stream, file
        self.position, self.line = 0, 1
        self.text = ""  # of the last line

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        raw: bytes = self._stream.readline(LONGEST)
        if not raw:
            raise StopIteration
        if len(raw) == LONGEST:
            raise csv.Error(f"line {self.line} has more than {LONGEST} bytes")
        first = self.position == 0
        self.position, self.line = self.position + len(raw), self.line + 1
        self.text = (raw.removeprefix(MARK) if first else raw).decode("utf-8", "surrogateescape")
        return self.text


def _stored(value: Any, kind: pa.DataType) -> Any:
    """A value as Arrow takes it for a column."""
    if value is None or not pa.types.is_string(kind):
        return float(value) if value is not None and pa.types.is_floating(kind) else value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _make_unicode(column: list[Any], name: str) -> Iterator[tuple[int, RowError]]:
    """Replace what is no character in the texts of a column, in place; the rows where that is, with the reason."""
    for row, text in enumerate(column):
        if isinstance(text, str) and not text.isascii():
            column[row] = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if column[row] != text:
                yield row, RowError(f"the column {name!r} is not valid Unicode, {column[row][:80]!r}; give it in UTF-8")
