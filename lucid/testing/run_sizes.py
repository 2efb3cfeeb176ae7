"""Sizes of the runs of a check: short ones, long ones, and those that reach the branches of an exported model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from lucid.core.graph.graph import Graph
from lucid.core.graph.values import Constant
from lucid.core.sizes.dims import Dim, Size, evaluate, identity, names_of
from lucid.ops.convolution import WINDOWED
from lucid.tracing.index_ranges import INDEXING, IndexRanges, largest


class Effort(NamedTuple):
    """About how many operations a check may take: the run of long sequences, and all runs that reach other branches."""

    longest: float
    branches: float


QUICK, THOROUGH = Effort(4e9, 4e9), Effort(4e10, 1e12)  # some tenths of a second, and some seconds
_VALUES = (2, 3, 5, 7, 11, 13)
_TRIPLINGS = 10  # from 1 to 59,049, some seconds of sound; odd sizes stay odd, and different ones different
_LONG = 64  # tokens of a long run where no table limits their positions
_LONGEST, _SHORTEST = 4096, 16  # tokens of a long run, at most and at least
_ENDLESS = 1 << 20


def default_sizes(graph: Graph, operations: float = QUICK.longest) -> list[dict[str, int]]:
    """`short_sizes`, and one run of long sequences.

    Sequences are those whose positions index a table, and those of integers. They are as long as the table, or as can
    be computed in about this number of operations.
    """
    long = _long_sizes(graph, operations)
    return [*short_sizes(graph), *([] if long is None else [fitting(graph, long)])]


def short_sizes(graph: Graph) -> list[dict[str, int]]:
    """All ones, and twice a different number for each size, so that sizes that were mixed up are noticed.

    They are larger where the windows of a convolution or of pooling would not fit otherwise, or a bound asks for it,
    and smaller where a bound or a table does.
    """
    names = sorted(graph.sizes())
    if not names:
        return [{}]
    runs: list[dict[str, int]] = [dict.fromkeys(names, 1)]
    for start in (1, 0):
        runs.append({name: _VALUES[(start + index) % len(_VALUES)] for index, name in enumerate(names)})
    return [fitting(graph, run) for run in runs]


def _long_sizes(graph: Graph, operations: float) -> dict[str, int] | None:
    """Sizes that make sequences long and everything else 1; None for a graph without sequences."""
    ones, ranges = dict.fromkeys(sorted(graph.sizes()), 1), IndexRanges(graph)
    limited = {name for name in ones if not ranges.fits({**ones, name: _ENDLESS})}
    whole = [value.type.shape for value in graph.inputs if value.type.dtype.kind != "float"]
    lengths = limited | names_of(size for shape in whole for size in shape[1:])
    if not lengths:
        return None
    most = max(1, longest_run(graph, operations, _LONGEST if limited else _LONG) // len(lengths))
    return {
        **ones,
        **dict.fromkeys(lengths, largest(most, lambda n: ranges.fits({**ones, **dict.fromkeys(lengths, n)}))),
    }


def longest_run(graph: Graph, operations: float, most: int = _LONG) -> int:
    """How many tokens a run may have that takes about so many operations."""
    return min(most, max(_SHORTEST, int(operations / operations_per_token(graph))))


def operations_per_token(graph: Graph) -> int:
    """About how many operations a model takes for each token: two for each number of its weights."""
    weights = {
        id(value): value.array.size
        for node in graph.nodes()
        if node.op.name not in INDEXING
        for value in node.inputs
        if isinstance(value, Constant) and value.type.rank > 1
    }
    return 2 * sum(weights.values()) + 1


def large_enough(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes, tripled until each convolution and pooling of the graph has a window, and bounds are reached."""
    enough = dict(sizes)
    needed: list[tuple[Size, int]] = [
        (size, 1)
        for node in graph.nodes()
        if node.op.name in WINDOWED
        for size in node.results[0].type.shape[2:]
        if isinstance(size, Dim)
    ]
    needed += [(size, least) for size, least, _ in graph.bounds]
    for _ in range(_TRIPLINGS):
        short = names_of(size for size, least in needed if evaluate(size, enough) < least)
        enough = {name: 3 * size if name in short else size for name, size in enough.items()}
    return enough


def fitting(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """`large_enough`, and each size no larger than the bounds and tables of the graph have room for."""
    enough, ranges = large_enough(graph, sizes), IndexRanges(graph)
    if ranges.fits(enough):
        return enough
    room = dict.fromkeys(enough, 1)
    for name, size in enough.items():
        room[name] = largest(size, lambda number: ranges.fits({**room, name: number}))  # noqa: B023 - called here
    return room


def usual_sizes(graph: Graph, rows: int, length: int) -> dict[str, int]:
    """Some rows, which the first axis of an input has, of some length, or what a graph has room for."""
    of_rows = names_of(value.type.shape[0] for value in graph.inputs if value.type.rank)
    return fitting(graph, {name: rows if name in of_rows else length for name in sorted(graph.sizes())})


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
    """Sizes for the branches that no run reaches yet, as long as these take at most `operations` together.

    Args:
        graph: what the export computes.
        thresholds: sizes, each with the largest number that chooses the first branch; above it the second is chosen.
        runs: values of all sizes, one mapping a run.
        operations: about how many the runs in all further branches may take.
        reachable: whether the model takes these values of some sizes; a branch that no input reaches is left out.
    """
    left = operations / operations_per_token(graph)
    reached: list[Mapping[str, int]] = []
    not_run: list[str] = []
    for key, size in {identity(size): size for size, _ in thresholds}.items():
        limits = sorted({limit for other, limit in thresholds if identity(other) == key})
        for limit, following in zip(limits, [*limits[1:], _ENDLESS], strict=True):
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
    """`branches` with values of all sizes: those of the first run, except for the sizes that choose the branch."""
    ranges, first = IndexRanges(graph), runs[0]

    def whole(lengths: Mapping[str, int]) -> dict[str, int]:
        return large_enough(graph, {**first, **lengths})

    reached, not_run = branches(graph, thresholds, runs, operations, lambda lengths: ranges.fits(whole(lengths)))
    return Branches([whole(lengths) for lengths in reached], not_run)


def _above(size: Size, limit: int) -> dict[str, int]:
    """The smallest value for all names of a size that puts it above a limit."""

    def same(number: int) -> dict[str, int]:
        return dict.fromkeys(sorted(names_of([size])), number)

    return same(1 + largest(_ENDLESS, lambda number: evaluate(size, same(number)) <= limit))
