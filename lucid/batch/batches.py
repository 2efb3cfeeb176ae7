"""Batches of rows of a similar size, which together keep to a budget."""

from __future__ import annotations

from collections.abc import Sequence


def batches(sizes: Sequence[int], budget: int) -> list[list[int]]:
    """The places of rows, in batches; each row is in one.

    A batch is padded to its longest row, so a batch of n rows takes n times as many tokens as that one has. Sorted by
    length, little of this is padding. The largest batches come first: later ones fit into the memory of these.

    Args:
        sizes: the tokens of each row.
        budget: the most tokens of a batch, padding included; a row that has more is a batch of its own.
    """
    made: list[list[int]] = []
    for row in sorted(range(len(sizes)), key=lambda row: -sizes[row]):
        if made and (len(made[-1]) + 1) * sizes[made[-1][0]] <= budget:
            made[-1].append(row)
        else:
            made.append([row])
    return made
