"""Tables, numbers and JSON on the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 140  # of a pipe or a file, which have no width of their own


def console() -> Console:
    """The standard output."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
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
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return made


def verdict(passed: bool, text: str) -> Text:
    """A line with a tick or a cross."""
    return Text.assemble(("ok    " if passed else "FAIL  ", "green" if passed else "bold red"), text)


def print_json(data: Any) -> None:
    """Data for machines."""
    print(json.dumps(data, indent=2, allow_nan=False))


def number(value: float) -> float | None:
    """A number as JSON can hold it: None for infinity and NaN."""
    return float(value) if abs(value) < float("inf") else None


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
