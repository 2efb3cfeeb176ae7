"""Small pieces of HTML for notebooks. They take only text, so that every module can use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lucid.core.words.safe_text import visible_lines

_CELL = "text-align:left;padding:2px 10px 2px 0;vertical-align:top"
_MONO = "font-family:monospace;white-space:pre"


def escape(text: object) -> str:
    """Text as HTML, with control characters and those that change the text direction escaped."""
    shown = visible_lines(text)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        shown = shown.replace(character, entity)
    return shown


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; cells are text."""
    head = "".join(f'<th style="{_CELL}">{escape(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL};{_MONO}">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def paragraph(text: object, good: bool | None = None) -> str:
    """A line; green or red if `good` is True or False."""
    colour = "" if good is None else f";color:{'#2e7d32' if good else '#c62828'};font-weight:bold"
    return f'<p style="margin:4px 0{colour}">{escape(text)}</p>'


def folded(summary: object, inside: str, is_open: bool = False) -> str:
    """HTML that opens with a click on its summary."""
    shown = " open" if is_open else ""
    return f'<details{shown} style="margin-left:14px"><summary>{escape(summary)}</summary>{inside}</details>'


def listing(text: str) -> str:
    """The text of a printed graph; the lines after ``# module`` are folded under the module's name."""
    first, *between, last = text.splitlines()
    parts: list[tuple[str, list[str]]] = [("", [first])]
    for line in between:
        if line.startswith("  # "):
            parts.append((line[4:], []))
        else:
            parts[-1][1].append(line)
    return "".join(_part(module, lines) for module, lines in [*parts, ("", [last])])


def _part(module: str, lines: Sequence[str]) -> str:
    inside = f'<pre style="margin:0;line-height:1.3">{escape(chr(10).join(lines))}</pre>'
    return folded(f"{module} ({len(lines)})", inside) if module not in ("", "top level") else inside
