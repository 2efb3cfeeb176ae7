"""The target that `--target`, `--tuned` and `--lengths` ask for."""

from __future__ import annotations

import re
from pathlib import Path

from lucid.cli.errors import usage
from lucid.core.targets.known import GENERAL
from lucid.export import Target
from lucid.export.tuned.tuned_file import read_table


def target_of(name: str | None, tuned: Path | None, lengths: str | None = None) -> Target:
    """The target of that name, with a table of measured forms; without a name that of the table.

    Raises:
        TunedTableError: for a file that is no table.
        ExportError: for a table of another target, or lengths that are no range.
        UsageError: for lengths that are not two numbers.
    """
    table = None if tuned is None else read_table(tuned)
    made = Target(name or (GENERAL if table is None else table.target), tuned=table)
    return made if lengths is None else made.with_lengths(_two_numbers(lengths))


def _two_numbers(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,18}):(\d{1,18})", text)
    if found is None:
        raise usage(f"--lengths is {text!r}, expected the fewest and the most queries, such as 1:512")
    return int(found[1]), int(found[2])
