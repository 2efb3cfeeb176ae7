"""Text that may come from a stranger, as people are shown it: it cannot act on a terminal or turn a line around."""

from __future__ import annotations


def visible(text: object) -> str:
    r"""One line, with an escape such as ``\x1b``, ``\n`` or ``\u202e`` for each character that is not printable.

    Those are control characters, what orders text from right to left, separators of lines, and what is not assigned.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


def visible_lines(text: object) -> str:
    """Text of several lines, each as `visible` shows it."""
    return "\n".join(map(visible, str(text).split("\n")))
