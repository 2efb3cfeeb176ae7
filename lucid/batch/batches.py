"""Batches of rows of a similar size, which together keep to a budget."""

from __future__ import annotations

from collections.abc import Sequence

_WASTE = 0.05  # of a batch may be padding
_LEAST = 512  # tokens, below which a batch is not worth a call of its own


def batches(sizes: Sequence[int], budget: int) -> list[list[int]]:
    """The places of rows, in batches; each row is in one.

    A batch is padded to its longest row, so a batch of n rows takes n times as many tokens as that one has. Rows are
    sorted by length, and a batch of some size ends where too much of it would be padding: among a thousand texts the
    longest ones differ by much. The largest batches come first: later ones fit into the memory of these.

    Args:
        sizes: the tokens of each row.
        budget: the most tokens of a batch, padding included; a row that has more is a batch of its own.
    """
    made: list[list[int]] = []
    kept = 0  # tokens of the last batch that are no padding
    for row in sorted(range(len(sizes)), key=lambda row: -sizes[row]):
        taken = (len(made[-1]) + 1) * sizes[made[-1][0]] if made else budget + 1
        if taken <= budget and (taken <= _LEAST or kept + sizes[row] >= (1 - _WASTE) * taken):
            made[-1].append(row)
            kept += sizes[row]
        else:
            made.append([row])
            kept = sizes[row]
    return made
