"""The target that `--target` and `--tuned` ask for."""

from __future__ import annotations

from pathlib import Path

from lucid.export import Target
from lucid.export.tuned_file import read_table

DEFAULT = "any"


def target_of(name: str | None, tuned: Path | None) -> Target:
    """The target of that name, with a table of measured forms; without a name that of the table.

    Raises:
        TunedTableError: for a file that is no table.
        ExportError: for a table of another target.
    """
    table = None if tuned is None else read_table(tuned)
    return Target(name or (DEFAULT if table is None else table.target), tuned=table)
