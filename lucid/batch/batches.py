"""Batches of rows of similar lengths, because a batch is padded to its longest row."""

from __future__ import annotations

from collections.abc import Sequence

BUDGET = 4096
"""The tokens of a batch, where nothing else is asked for."""
_WASTE = 0.05  # the share of a batch that may be padding
_LEAST = 512  # tokens; a smaller batch is not worth a call of its own


def padded_batches(sizes: Sequence[int], budget: int) -> list[list[int]]:
    """Batches of rows, as their places; each row is in one batch.

    A batch is padded to its longest row, so n rows take n times as many tokens as the longest has. Rows are sorted by
    length, and a batch ends where too much of it would be padding. The largest batches come first: later ones fit into
    the memory of these.

    Args:
        sizes: the tokens of each row.
        budget: the most tokens of a batch, padding included; a row that has more is a batch of its own.
    """
    batches: list[list[int]] = []
    kept = 0  # tokens of the last batch that are no padding
    for row in sorted(range(len(sizes)), key=lambda row: -sizes[row]):
        taken = (len(batches[-1]) + 1) * sizes[batches[-1][0]] if batches else budget + 1
        if taken <= budget and (taken <= _LEAST or kept + sizes[row] >= (1 - _WASTE) * taken):
            batches[-1].append(row)
            kept += sizes[row]
        else:
            batches.append([row])
            kept = sizes[row]
    return batches
