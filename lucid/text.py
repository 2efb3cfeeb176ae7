"""Untrusted text made safe to show: it cannot control a terminal or change the text direction."""

from __future__ import annotations


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
