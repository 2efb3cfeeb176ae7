"""How large the sizes of a model's inputs may be, by the tables that its graph indexes."""

from __future__ import annotations

from lucid.core.graph.graph import Graph
from lucid.tracing.index_ranges import IndexRanges, largest

_ENDLESS = 1 << 20


def size_limits(graph: Graph) -> dict[str, int]:
    """The largest value of each symbolic size, the others being 1, for which tables hold all positions that the graph
    computes, such as 512 for the length of a BERT; sizes without a limit are left out.
    """
    ones, ranges = dict.fromkeys(sorted(graph.sizes()), 1), IndexRanges(graph)

    def largest_of(name: str) -> int:
        return largest(_ENDLESS, lambda size: ranges.fits({**ones, name: size}))

    try:
        if not ranges.fits(ones):
            return {}
        return {name: largest_of(name) for name in ones if not ranges.fits({**ones, name: _ENDLESS})}
    except ZeroDivisionError:  # a size that is divided by another one less 1
        return {}
