"""How large the sizes of a model's inputs may be, by the tables that its graph indexes."""

from __future__ import annotations

from collections.abc import Mapping

from lucid.core.graph.graph import Graph
from lucid.tracing.index_ranges import IndexRanges, largest

_ENDLESS = 1 << 20


def size_limits(graph: Graph) -> dict[str, int]:
    """The largest value of each symbolic size for which tables hold all positions that the graph computes, such as 512
    for the length of a BERT. Left out are sizes without a limit, and those whose limit depends on another size, as that
    of new tokens does on the capacity of a buffer.
    """
    ones, ranges = dict.fromkeys(sorted(graph.sizes()), 1), IndexRanges(graph)

    def largest_of(name: str, others: Mapping[str, int]) -> int:
        return largest(_ENDLESS, lambda size: ranges.fits({**others, name: size}))

    try:
        if not ranges.fits(ones):
            return {}
        found = {name: largest_of(name, ones) for name in ones if not ranges.fits({**ones, name: _ENDLESS})}
        most = {**dict.fromkeys(ones, _ENDLESS), **found}
        return {name: limit for name, limit in found.items() if largest_of(name, most) == limit}
    except ZeroDivisionError:  # a size that is divided by another one less 1
        return {}
