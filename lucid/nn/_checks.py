"""Checks of arguments that modules and functions share. Each names who was called, what came and what was expected."""

from __future__ import annotations

import numpy as np


def check_positive(where: str, **sizes: int) -> None:
    """Raise ValueError for a size that is not a whole number of 1 or more."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise ValueError(f"{where}: {name} is {size!r}, expected a whole number of 1 or more")


def check_probability(where: str, name: str, p: float) -> None:
    """Raise ValueError for a number outside [0, 1]."""
    if not 0 <= p <= 1:
        raise ValueError(f"{where}: {name} is {p!r}, expected a probability from 0 to 1")


def check_causal(where: str, is_causal: bool, attn_mask: object) -> None:
    """Raise ValueError for causality and a mask of queries and keys together: which of torch's readings is meant?"""
    if is_causal and attn_mask is not None:
        raise ValueError(f"{where}: is_causal and attn_mask exclude each other; put the triangle into the mask")
