"""Pages of the documentation as blocks of code; the outputs they show are compared with what is printed.

A `text` block right after a block that runs is its output. In it `...` matches anything in a line, and as a whole line
any lines; digits may differ in times (1.5 ms), in rounding errors (1.2e-07) and in versions (1.31.1). Everything else
is as printed, except for the number of spaces. A comment after `print(...)` that contains `...` is compared too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

RUNS = ("python", "sh")
_VARIES = re.compile(
    r"(?P<lines>^\.\.\.\n)|(?P<any>\.\.\.)"
    r"|(?P<time>\d+(?:\.\d+)?(?= ?(?:ns|µs|ms|s|min)\b))"
    r"|(?P<error>-?\d(?:\.\d+)?e[+-]\d+)"
    r"|(?P<version>\b\d+\.\d+\.\d+\b)"
    r"|(?P<space> +)",
    re.M,
)
_PATTERNS = {
    "lines": r"(?:.*\n)*?",
    "any": r".*",
    "time": r"\d+(?:\.\d+)?",
    "error": r"-?\d(?:\.\d+)?e[+-]\d+",
    "version": r"\d+\.\d+\.\d+\S*",
    "space": r" +",
}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    line: int
    text: str
    printed: str | None = None  # the output that the page shows
    title: str = ""  # of a block that is (part of) a file of that name, or a separate program


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order; a block that runs has the text block after it as its output."""
    text = page.read_text(encoding="utf-8")
    code_blocks: list[Block] = []
    end = 0
    for match in re.finditer(r"^```(\S*)(?: title=\"(.*?)\")?\n(.*?)^```$", text, re.M | re.S):
        follows = not text[end : match.start()].strip()
        if match[1] == "text" and follows and code_blocks and code_blocks[-1].language in RUNS:
            code_blocks[-1] = code_blocks[-1]._replace(printed=match[3])
        code_blocks.append(Block(match[1], text[: match.start()].count("\n") + 1, match[3], title=match[2] or ""))
        end = match.end()
    return code_blocks


def pattern(expected: str) -> re.Pattern[str]:
    """The pattern that an output must match."""
    pieces, end = [], 0
    expected = _lines(expected)
    for match in _VARIES.finditer(expected):
        pieces += [re.escape(expected[end : match.start()]), _PATTERNS[match.lastgroup or ""]]
        end = match.end()
    return re.compile("".join([*pieces, re.escape(expected[end:])]))


def difference(expected: str, printed: str) -> str:
    """A message if the output on the page differs from what is printed; else empty."""
    if pattern(expected).fullmatch(_lines(printed)):
        return ""
    return f"the page says:\n{expected}\nprinted is:\n{printed}"


def comments(block: Block) -> list[str]:
    """The comments after calls of `print` that contain `...`: other comments are explanations."""
    return re.findall(r"^print\(.*\)  # (.*\.\.\..*)$", block.text, re.M)


def missing(comment: str, printed: str) -> str:
    """A message if such a comment is not printed; else empty."""
    parts = [re.escape(part.strip()) for part in comment.split("...")]
    return "" if re.search(".*".join(parts), printed, re.S) else f"the comment says: {comment}\nprinted is:\n{printed}"


def _lines(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())
