"""Lengths that reach the branches of an exported model that sizes choose, such as attention of many queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from lucid.core.graph.graph import Graph
from lucid.core.sizes.dims import Size, evaluate, identity, names_of
from lucid.testing.random_inputs import large_enough, operations_per_token
from lucid.tracing.index_ranges import IndexRanges, largest

_MOST = 1 << 20


class Branches(NamedTuple):
    """Values of the sizes that reach a branch, just above its threshold, and the branches that would take too long."""

    reached: Sequence[Mapping[str, int]]
    not_run: Sequence[str]


def branches(
    graph: Graph,
    thresholds: Sequence[tuple[Size, int]],
    runs: Sequence[Mapping[str, int]],
    operations: float,
    reachable: Callable[[Mapping[str, int]], bool],
) -> Branches:
    """The branches that none of some runs reaches, as far as they take this number of operations together.

    Args:
        graph: what the export computes.
        thresholds: sizes, each with the number up to which it chooses one branch, and above which another.
        runs: values of all sizes, one mapping a run.
        operations: about how many the runs in all further branches may take.
        reachable: whether the model takes these values of some sizes; a branch that no input reaches is left out.
    """
    left = operations / operations_per_token(graph)
    reached: list[Mapping[str, int]] = []
    not_run: list[str] = []
    for key, size in {identity(size): size for size, _ in thresholds}.items():
        limits = sorted({limit for other, limit in thresholds if identity(other) == key})
        for limit, following in zip(limits, [*limits[1:], _MOST], strict=True):
            if any(limit < evaluate(size, run) <= following for run in runs):
                continue
            lengths = _above(size, limit)
            if evaluate(size, lengths) <= limit:
                continue
            tokens = max(lengths.values())
            if tokens <= left and reachable(lengths):
                left -= tokens
                reached.append(lengths)
            elif reachable(lengths):
                not_run.append(f"{size} above {limit}")
    return Branches(reached, not_run)


def branches_by_size(
    graph: Graph, thresholds: Sequence[tuple[Size, int]], runs: Sequence[Mapping[str, int]], operations: float
) -> Branches:
    """The same with values of all sizes: those of the first run, except for what a branch asks for."""
    ranges, first = IndexRanges(graph), runs[0]

    def whole(lengths: Mapping[str, int]) -> dict[str, int]:
        return large_enough(graph, {**first, **lengths})

    reached, not_run = branches(graph, thresholds, runs, operations, lambda lengths: ranges.fits(whole(lengths)))
    return Branches([whole(lengths) for lengths in reached], not_run)


def _above(size: Size, limit: int) -> dict[str, int]:
    """The smallest value of all names of a size with which it is above a limit."""

    def same(number: int) -> dict[str, int]:
        return dict.fromkeys(sorted(names_of([size])), number)

    return same(1 + largest(_MOST, lambda number: evaluate(size, same(number)) <= limit))
