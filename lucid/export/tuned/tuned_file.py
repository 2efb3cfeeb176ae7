"""Reading a table of measured forms. The file may be untrusted: each field is checked, and errors name it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from lucid.core.targets.known import RUNTIMES
from lucid.export.tuned.tuned_table import SCHEMA, TunedForm, TunedTable
from lucid.files.atomic import NotAFileError, open_regular

_LARGEST = 16 << 20  # bytes; the table of a large model has some kilobytes
_T = TypeVar("_T")
_TYPES: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


class TunedTableError(ValueError):
    """A file that is no table of measured forms, or one that this release cannot read."""


def read_table(path: str | os.PathLike[str]) -> TunedTable:
    """The table in a file that `lucid tune` or `TunedTable.save` wrote.

    Raises:
        TunedTableError: for a file that is corrupt or of another format; the message names the field.
        OSError: if it cannot be read.
    """
    where = os.fspath(path)
    try:
        with open_regular(path) as file:
            text = file.read(_LARGEST + 1)
    except NotAFileError as error:
        raise TunedTableError(str(error)) from None
    if len(text) > _LARGEST:
        raise TunedTableError(f"{where}: more than {_LARGEST} bytes, expected a table that lucid tune wrote")
    try:
        data = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TunedTableError(
            f"{where}: is not JSON ({str(error)[:80]}), expected a table that lucid tune wrote"
        ) from None
    table = _Fields(where, "", data)
    schema = table.of("schema", int)
    if schema != SCHEMA:
        raise TunedTableError(
            f"{where}: schema is {schema}, this release of Lucid reads {SCHEMA}; measure again with lucid tune"
        )
    target = table.of("target", str)
    if target not in RUNTIMES:
        raise table.wrong("target", f"is {target!r}, expected one of {', '.join(RUNTIMES)}")
    found: dict[str, TunedForm] = {}
    for fields in table.objects("forms"):
        form = _form(fields)
        if form.node in found:
            raise fields.wrong("node", f"is that of forms[{[*found].index(form.node)}], expected each node once")
        found[form.node] = form
    return TunedTable(
        target=target,
        forms=tuple(found.values()),
        threads=None if table.held("threads") is None else table.count("threads"),
        processor=table.of("processor", str),
        onnxruntime=table.of("onnxruntime", str),
        lucid=table.of("lucid", str),
    )


class _Fields:
    """A JSON object of a file."""

    def __init__(self, file: str, path: str, data: object) -> None:
        self._file, self._path = file, path
        self._data = self._checked("", data, dict)

    @property
    def names(self) -> list[str]:
        """The names of its fields."""
        return list(self._data)

    def held(self, name: str) -> Any:
        """What a field holds."""
        if name not in self._data:
            raise self.wrong(name, "is missing")
        return self._data[name]

    def of(self, name: str, kind: type[_T]) -> _T:
        """A field of a type."""
        return self._checked(name, self.held(name), kind)

    def count(self, name: str) -> int:
        """A whole number of 1 or more."""
        held = self.of(name, int)
        if held < 1:
            raise self.wrong(name, f"is {held}, expected 1 or more")
        return held

    def inner(self, name: str) -> _Fields:
        """An object."""
        return _Fields(self._file, f"{self._path}{name}.", self.of(name, dict))

    def objects(self, name: str) -> list[_Fields]:
        """A list of objects."""
        held = self.of(name, list)
        return [_Fields(self._file, f"{self._path}{name}[{index}].", one) for index, one in enumerate(held)]

    def wrong(self, name: str, how: str) -> TunedTableError:
        """The error about a field."""
        return TunedTableError(f"{self._file}: {(self._path + name).rstrip('.') or 'the file'} {how}")

    def _checked(self, name: str, held: object, kind: type[_T]) -> _T:
        if not isinstance(held, kind) or isinstance(held, bool):
            raise self.wrong(name, f"is {_TYPES[type(held)]}, expected {_TYPES[kind]}")
        return held


def _form(fields: _Fields) -> TunedForm:
    sizes = tuple({name: one.count(name) for name in one.names} for one in fields.objects("sizes"))
    measured = fields.inner("microseconds")
    times: dict[str, tuple[float, ...]] = {}
    for name in measured.names:
        held = measured.of(name, list)
        if len(held) != len(sizes) or not all(map(_is_time, held)):
            raise measured.wrong(name, f"is {str(held)[:80]}, expected {len(sizes)} times, one for each of sizes")
        times[name] = tuple(map(float, held))
    for role in ("form", "default"):
        if fields.of(role, str) not in times and (times or sizes):
            raise fields.wrong(role, f"is {fields.of(role, str)!r}, expected one of {', '.join(times) or 'no forms'}")
    return TunedForm(fields.of("node", str), fields.of("form", str), fields.of("default", str), sizes, times)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
