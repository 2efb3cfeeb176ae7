"""Tables, numbers and JSON on the terminal.

All text of the commands goes through `Output`: names come from strangers' files, so what could act on a terminal is
shown escaped (lucid.text), and nothing is read as rich's markup.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lucid.cli.errors import usage
from lucid.files import is_stream
from lucid.text import visible

_WIDE = 140  # of a pipe or a file, which have no width of their own


class Styled(NamedTuple):
    """Text with a colour."""

    text: object
    style: str


class Output:
    """Where a command tells people what it found."""

    def __init__(self, error: bool = False) -> None:
        stream = sys.stderr if error else sys.stdout
        width = None if stream.isatty() else _WIDE
        self._console = Console(highlight=False, markup=False, emoji=False, width=width, stderr=error)

    def line(self, *parts: object, style: str = "") -> None:
        """One line, whatever its parts contain."""
        self._console.print(Text.assemble(*map(_text, parts)), style=style, soft_wrap=True)

    def lines(self, text: object, style: str = "") -> None:
        """Text that has several lines of its own."""
        for line in str(text).split("\n"):
            self.line(line, style=style)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
        """A table; columns whose title ends with ">" hold numbers."""
        made = Table(
            title=title,
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
        )
        for column in columns:
            made.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
        for row in rows:
            made.add_row(*map(_text, row))
        self._console.print(made)


def _text(part: object) -> Text:
    return Text(visible(part.text), part.style) if isinstance(part, Styled) else Text(visible(part))


def console(beside: Path | None = None) -> Output:
    """The standard output; the other one where the file that the command writes is the standard output itself."""
    return Output(error=beside is not None and _is_standard_output(beside))


def check_apart(output: Path, json: bool) -> None:
    """Complain where the file to write and the JSON to print would be mixed up."""
    if json and _is_standard_output(output):
        raise usage("--json and the file to write both go to the standard output; give it the name of a file")


def _is_standard_output(path: Path) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(sys.stdout.fileno()))
    except OSError:  # no such file yet, or an output that is no file
        return False


def verdict(passed: bool) -> Styled:
    """A tick or a cross, to open a line."""
    return Styled("ok    " if passed else "FAIL  ", "green" if passed else "bold red")


def print_json(data: Any) -> None:
    """Data for machines: strict JSON, with "NaN", "Infinity" and "-Infinity" for what is no number there."""
    try:
        text = json.dumps(data, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(_strict(data), indent=2, allow_nan=False)
    print(text.replace("\x7f", "\\u007f"))  # the one control character that JSON leaves as it is


def _strict(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _strict(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_strict(value) for value in data]
    if isinstance(data, float) and not abs(data) < float("inf"):
        return "NaN" if data != data else "Infinity" if data > 0 else "-Infinity"
    return data


def number(value: float) -> float | None:
    """A number as JSON can hold it: None for infinity and NaN."""
    return float(value) if abs(value) < float("inf") else None


def bytes_of(path: Path) -> int | None:
    """The size of a file that was written; None of a pipe or device."""
    return None if is_stream(path) else path.stat().st_size


def file_and_size(path: Path) -> str:
    """A file that was written, for people."""
    count = bytes_of(path)
    return str(path) if count is None else f"{path}, {size(count)}"


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def amount(count: float) -> str:
    """A large number for people: 1.2 k, 3.4 M."""
    for unit in ("", " k", " M", " G"):
        if count < 1000:
            return f"{count:.0f}{unit}" if not unit else f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} T"
