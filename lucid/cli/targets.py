"""The target that `--target` and `--lengths` ask for."""

from __future__ import annotations

import re

from lucid.cli.errors import usage
from lucid.core.targets.runtimes import GENERAL
from lucid.export import Target


def target_of(name: str | None, lengths: str | None) -> Target:
    """The target of that name, or the general one, and the lengths that it expects.

    Raises:
        ExportError: for lengths that are no range.
        UsageError: for lengths that are not two numbers.
    """
    made = Target(name or GENERAL)
    return made if lengths is None else made.with_lengths(_two_numbers(lengths))


def _two_numbers(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,18}):(\d{1,18})", text)
    if found is None:
        raise usage(f"--lengths is {text!r}, expected the fewest and the most queries, such as 1:512")
    return int(found[1]), int(found[2])
