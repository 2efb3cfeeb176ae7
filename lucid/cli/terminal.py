"""Tables, numbers and JSON on the terminal.

All text of the commands goes through `Output`: names come from untrusted files, so control characters are escaped
(lucid.core.words.safe_text), and nothing is read as rich's markup.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from lucid.cli.errors import usage
from lucid.core.words.json_numbers import strict
from lucid.core.words.safe_text import visible
from lucid.files.atomic import is_stream

if sys.platform != "win32":
    import termios

_START = time.monotonic()  # of the command: this is loaded first
_DEFAULT_WIDTH = 140  # for a pipe or a file, which have no width
_GAP = 3  # between the columns of a table
_LONG = 20  # a longer word, such as a path, may be broken


class Notes(logging.Handler):
    """Notes of the library about the models that it reads, one line of stderr each."""

    def emit(self, record: logging.LogRecord) -> None:
        Output(error=True).line("warning  " if record.levelno >= logging.WARNING else "note  ", record.getMessage())


def show_notes(verbose: bool) -> None:
    """Show the notes of `lucid.models` in the terminal: its warnings, or all if `verbose`."""
    log = logging.getLogger("lucid.models")
    log.setLevel(logging.INFO if verbose else logging.WARNING)
    if not any(isinstance(handler, Notes) for handler in log.handlers):
        log.addHandler(Notes())


class Styled(NamedTuple):
    """Text with a colour."""

    text: object
    style: str


class _Console(Console):
    """A console whose command goes on in silence when its reader has gone, for the files that the command writes.

    rich's own ends the process, with exit code 1.
    """

    def on_broken_pipe(self) -> None:
        """Called by rich when the reader of the output has closed it."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class Output:
    """The output of a command for people."""

    def __init__(self, error: bool = False) -> None:
        stream = sys.stderr if error else sys.stdout
        width = None if stream.isatty() else _DEFAULT_WIDTH
        self._console = _Console(highlight=False, markup=False, emoji=False, width=width, stderr=error)

    def line(self, *parts: object, style: str = "") -> None:
        """Print one line, also if its parts contain line ends."""
        self._console.print(Text.assemble(*map(_text, parts)), style=style, soft_wrap=True)

    def lines(self, text: object, style: str = "") -> None:
        """Print text that has several lines."""
        for line in str(text).split("\n"):
            self.line(line, style=style)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
        """Print a table; columns whose title ends with ">" hold numbers.

        On a terminal too narrow for its words and numbers, each row is a list of its cells.
        """
        titles, cells = [column.rstrip(">") for column in columns], [list(map(_text, row)) for row in rows]
        table = Table(
            title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, show_edge=False
        )
        least = _GAP * (len(columns) - 1)
        for place, column in enumerate(columns):
            texts = [titles[place], *(row[place].plain for row in cells)]
            number = column.endswith(">")
            words = texts if number else " ".join(texts).split()
            least += max((cell_len(word) if number else min(cell_len(word), _LONG) for word in words), default=0)
            table.add_column(titles[place], justify="right" if number else "left", overflow="fold", no_wrap=number)
        if least > self._console.width:
            self._lists(titles, cells, title)
            return
        for row in cells:
            table.add_row(*row)
        self._console.print(table)

    def _lists(self, titles: Sequence[str], rows: Sequence[Sequence[Text]], title: str) -> None:
        """Print the rows of a table one below the other, each cell with its column's title before it."""
        if title:
            self.line(title, style="bold")
        for number, row in enumerate(rows):
            if number:
                self.line()
            cells = Table.grid("", Column(overflow="fold"), padding=(0, 2, 0, 0))
            for cell in zip(titles, row, strict=True):
                cells.add_row(*cell)
            self._console.print(cells)

    def inputs_and_outputs(self, inputs: Mapping[str, object], outputs: Mapping[str, object]) -> None:
        """Print the types of a model's inputs and outputs, and an empty line."""
        rows = [("input", name, kind) for name, kind in inputs.items()]
        self.table(("", "name", "type"), [*rows, *(("output", name, kind) for name, kind in outputs.items())])
        self.line()


def _text(part: object) -> Text:
    return Text(visible(part.text), part.style) if isinstance(part, Styled) else Text(visible(part))


def console(beside: Path | None = None) -> Output:
    """The standard output; stderr if the command writes the file `beside` to the standard output."""
    return Output(error=beside is not None and _is_standard_output(beside))


def check_apart(output: Path, json: bool) -> None:
    """Raise an error if both the file to write and the JSON go to the standard output."""
    if json and _is_standard_output(output):
        raise usage("--json and the file to write both go to the standard output; write to a file instead")


def _is_standard_output(path: Path) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(sys.stdout.fileno()))
    except OSError:  # no such file yet, or an output that is not a file
        return False


def verdict(passed: bool) -> Styled:
    """The start of a line that says whether a check passed."""
    return Styled("ok    " if passed else "FAIL  ", "green" if passed else "bold red")


def print_json(data: Any) -> None:
    """Print strict JSON, with the texts "NaN", "Infinity" and "-Infinity", which are not numbers in JSON."""
    try:
        text = json.dumps(data, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(strict(data), indent=2, allow_nan=False)
    print(text.replace("\x7f", "\\u007f"))  # the only control character that JSON does not escape


def number(value: float) -> float | None:
    """A number that JSON can hold: None for infinity and NaN."""
    return float(value) if abs(value) < float("inf") else None


def bytes_of(path: Path) -> int | None:
    """The size of a file that was written; None for a pipe or device."""
    return None if is_stream(path) else path.stat().st_size


def files_json(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Files that were written, and their sizes, as plain data."""
    return [{"name": str(file), "bytes": bytes_of(file)} for file in files]


def written(out: Output, files: Sequence[Path]) -> None:
    """Print the files that a command has written with their sizes; on a terminal also how long it took."""
    for file in files:
        count = bytes_of(file)
        out.line(
            f"written     {file}{'' if count is None else f', {size(count)}'}{_took() if file == files[-1] else ''}"
        )


def written_folder(out: Output, folder: Path, verbose: bool) -> None:
    """The same for a folder; with `verbose`, its files are listed."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if verbose:
        for file in files:
            out.line(f"{'':<12}{file.relative_to(folder)}, {size(file.stat().st_size)}")
    total = size(sum(file.stat().st_size for file in files))
    out.line(f"written     {folder}, {len(files)} files, {total}{_took()}")


def _took() -> str:
    return f", in {time.monotonic() - _START:.1f} s" if sys.stdout.isatty() else ""


def size(count: float) -> str:
    """A number of bytes as text: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def amount(count: float) -> str:
    """A large number as text: 1.2 k, 3.4 M."""
    for unit in ("", " k", " M", " G"):
        if count < 1000:
            return f"{count:.0f}{unit}" if not unit else f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} T"


@contextmanager
def unseen() -> Iterator[None]:
    """Inside, typed characters are not shown; the next question reads them."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
    else:
        before = termios.tcgetattr(sys.stdin)
        without_echo = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, without_echo)
        try:
            yield
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
