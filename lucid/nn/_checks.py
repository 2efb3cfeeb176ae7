"""Checks of arguments that modules and functions share. Each error names the caller, the value and what is expected."""

from __future__ import annotations

from lucid.core.number_ranges import PROBABILITY, check, is_whole
from lucid.core.sizes.dims import Size
from lucid.ops.indexing import from_front
from lucid.ops.tensor.tensor import Tensor


def check_positive(where: str, **sizes: int) -> None:
    """Raise ValueError for a size that is not a whole number of 1 or more."""
    for name, size in sizes.items():
        if not is_whole(size) or size < 1:
            raise ValueError(f"{where}: {name} is {size!r}, expected a whole number of 1 or more")


def check_axes(where: str, x: Tensor, least: int) -> None:
    """Raise ValueError for a tensor of fewer axes."""
    if x.ndim < least:
        raise ValueError(f"{where}: got {x.spec}, expected {least} axes or more")


def padding_row(where: str, padding_idx: int | None, rows: Size) -> Size | None:
    """The row of padding, counted from the first one; checked if the number of rows is known."""
    if isinstance(rows, int):
        return check_row(where, "padding_idx", padding_idx, rows)
    return None if padding_idx is None else from_front(padding_idx, rows)


def check_row(where: str, name: str, row: int | None, rows: int) -> int | None:
    """The row, counted from the first one; ValueError for anything but a row."""
    if row is None:
        return None
    if not is_whole(row) or not -rows <= row < rows:
        raise ValueError(
            f"{where}: {name} is {row!r}, expected a row from {-rows} to {rows - 1}; an element type is given by name: "
            "dtype=..."
        )
    return row % rows


def check_probability(where: str, name: str, p: float) -> None:
    """Raise ValueError for a number outside [0, 1], and TypeError for anything but a number."""
    check(f"{where}: {name}", p, PROBABILITY)
