"""How attention on arrays is divided into jobs, and which keys the rows of a job see.

A *job* is a few heads times some query rows. It walks in blocks over the keys that its rows can see by position: large
blocks where all rows see all keys, small ones at the edge of causality or a window, because a block is computed in full
even if its rows see only some of its keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lucid.core.graph.types import Array

ROWS = 512  # query rows of a job
KEYS = 512  # keys of a block that all its rows see
EDGE = 256  # keys of a block that some rows see in part: computed in full, so kept small
TILE = 1 << 18  # scores of a tile over all its heads: 1 MB of float32, what a core's cache holds
SMALL = 1 << 19  # below as many scores threads cost more than they save
FEW = 1 << 15  # up to as many, planning and checking a tile takes as long as computing it


WHOLE = (slice(None),) * 3  # the heads of the job that is a whole call


class Job(NamedTuple):
    """A part of the output: slices over (N, H_kv, group) and the query rows [start, stop)."""

    heads: tuple[slice, slice, slice]
    start: int
    stop: int


def is_small(heads: tuple[int, int, int], length: int, keys: int) -> bool:
    """Whether one thread is faster than several that share the work."""
    return math.prod(heads) * length * keys < SMALL


def are_few(heads: int, length: int, keys: int) -> bool:
    """Whether the scores are so few that they need no plan."""
    return 0 < heads * length * keys <= FEW


def jobs(heads: tuple[int, int, int], length: int, keys: int, threads: int) -> list[Job]:
    """Cut the work into jobs of about a tile, if possible as many as a multiple of the threads; longest first."""
    block = max(1, min(keys, KEYS))
    work = math.prod(heads) * length * block
    tile = work // (threads * -(-work // (threads * TILE)))
    rows = max(1, min(ROWS, length, tile // block))
    room = tile // (rows * block)  # heads that fit into a tile with these rows: of one group first, then of more
    cuts: list[list[slice]] = []
    for count in reversed(heads):
        cuts.append([slice(a, b) for a, b in _split(0, count, max(1, min(count, room)))])
        room //= max(1, count)
    spans = _split(0, length, rows)[::-1]
    return [Job((i, j, k), start, stop) for start, stop in spans for i in cuts[2] for j in cuts[1] for k in cuts[0]]


class Visibility(NamedTuple):
    """Which keys a query sees by position. Query i is at position i + past."""

    keys: int
    past: int
    ahead: int | None  # how many keys after its own position a query sees; None for all
    window: int | None

    def blocks(self, job: Job, heads: int) -> tuple[tuple[int, int, int, int], ...]:
        """Blocks of keys [start, stop), each with the job's rows [top, bottom) that see any of them.

        Large where all rows see all keys, small at the edges.
        """
        return _blocks(self.keys, job.start + self.past, job.stop + self.past, self.ahead, self.window, heads)

    def limits(self, scores: Array, row: int, start: int, stop: int) -> Iterator[tuple[Array, Array]]:
        """The parts of a tile at the edge of causality or the window, each with an array of 1 (seen) and 0 (not).

        The tile's queries start at `row`; its keys are [start, stop).
        """
        position = row + self.past
        end = position + scores.shape[-2]
        last = stop if self.ahead is None else position + self.ahead  # the last key that the first row sees
        if last < stop - 1:
            part = scores[..., : stop - 1 - last, :]
            yield part, _triangle(*part.shape[-2:], last - start, scores.dtype)
        if self.window is not None and end - self.window > start:  # the same triangle, rotated by 180 degrees
            part = scores[..., max(0, start + self.window - position) :, :][..., ::-1, ::-1]
            yield part, _triangle(*part.shape[-2:], stop - 1 - (end - self.window), scores.dtype)


@lru_cache(maxsize=1024)
def _blocks(
    keys: int, first: int, end: int, ahead: int | None, window: int | None, heads: int
) -> tuple[tuple[int, int, int, int], ...]:
    """The blocks of a job whose queries are at positions [first, end)."""
    last = end - 1
    start, stop = 0, keys
    inner_start, inner_stop = start, stop
    if ahead is not None:
        inner_stop, stop = min(stop, first + ahead), min(stop, last + 1 + ahead)
    if window is not None:
        start, inner_start = max(0, first - window + 1), max(0, last - window + 1)
    if inner_stop - inner_start < EDGE:
        inner_start = inner_stop = start
    large = max(KEYS, TILE // (heads * (end - first)))
    parts = []
    for begin, until, size in ((start, inner_start, EDGE), (inner_start, inner_stop, large), (inner_stop, stop, EDGE)):
        for a, b in _split(begin, until, size):
            top = 0 if ahead is None else max(0, a - first - ahead)
            bottom = end - first if window is None else min(end - first, b - 1 + window - first)
            if top < bottom:
                parts.append((a, b, top, bottom))
    return tuple(parts)


def _split(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """[start, stop) in the fewest parts of at most `size`, all but the first of that size."""
    starts = [start, *range(stop - (stop - start - 1) // size * size, stop, size)] if start < stop else []
    return list(zip(starts, [*starts[1:], stop], strict=False))


@lru_cache(maxsize=16)
def _triangle(rows: int, columns: int, last: int, dtype: np.dtype[Any]) -> Array:
    """1 in row i up to column `last + i`, 0 after it."""
    return np.tri(rows, columns, last, dtype=dtype)
