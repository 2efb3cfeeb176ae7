"""Text made short for messages, and untrusted text made safe: it controls no terminal, and can always be encoded."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterable

# Control characters, except line feeds and tabs, and characters that override the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


_SHORT = reprlib.Repr()
_SHORT.maxlist, _SHORT.maxdict, _SHORT.maxlong = 40, 12, 40
_SHORT.maxstring = _SHORT.maxother = 200


def show(value: object) -> str:
    """An untrusted value for a message: escaped, shortened, and of limited depth; a path as its text."""
    return cut(_SHORT.repr(os.fspath(value) if isinstance(value, os.PathLike) else value))


def cut(text: str, most: int = 300) -> str:
    """The first characters of a text; three dots show that it was longer."""
    return text if len(text) <= most else text[:most] + "..."


def listed(items: Iterable[str], most: int = 5, separator: str = ", ") -> str:
    """The first items, and how many more there are."""
    every = list(items)
    return separator.join(every[:most] + [f"and {len(every) - most} more"] * (len(every) > most))


def encoded(text: str) -> bytes:
    r"""Any text in UTF-8. Half of a surrogate pair, which UTF-8 lacks, is written ``\ud800``.

    All untrusted text is sent through this function: JSON may contain such halves, and so may the names of files.
    """
    return text.encode("utf-8", "backslashreplace")


def encodable(text: str) -> str:
    """Text as `encoded` writes it, to be encoded later."""
    return encoded(text).decode()


def visible(text: object) -> str:
    r"""One line, with an escape such as ``\x1b``, ``\n`` or ``\u202e`` for each character that is not printable.

    These are control characters, marks of text direction, line separators and unassigned code points.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


def visible_lines(text: object) -> str:
    """Text of several lines, each as `visible` shows it."""
    return "\n".join(map(visible, str(text).split("\n")))


def harmless(text: str) -> str:
    """Text in any script, with its lines and tabs; only characters that could control a terminal are escaped."""
    return _CONTROLS.sub(lambda control: visible(control[0]), text)
