"""Untrusted text made safe to show and to send: it cannot control a terminal, and it can always be encoded."""

from __future__ import annotations

import re

# Control characters, but for line feeds and tabs, and what overrides the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def encoded(text: str) -> bytes:
    r"""Text in UTF-8, whatever is in it: half of a surrogate pair, which UTF-8 does not have, is written ``\ud800``.

    Every text of others that leaves goes through here: JSON sends such halves, and file names have them for bytes that
    are no text.
    """
    return text.encode("utf-8", "backslashreplace")


def encodable(text: str) -> str:
    """Text as `encoded` writes it, for whoever encodes it later."""
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
    """Text as it is, in any script and with its lines and tabs; only what could control a terminal is escaped."""
    return _CONTROLS.sub(lambda found: visible(found[0]), text)
