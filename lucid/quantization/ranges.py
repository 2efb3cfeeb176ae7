"""Ranges in which the inputs of a layer are rounded to codes; numbers outside are clipped.

A range is found from a histogram, which is all that is kept of the inputs.
"""

from __future__ import annotations

import math

import numpy as np

from lucid.core.graph.types import Array
from lucid.quantization.blocks import first_wrong
from lucid.quantization.rtn import LARGEST

BINS = 4096  # of a histogram; even, so that 0 is between two of them
_LEVELS = 128  # of a size in 8 bits, as published
_SMALLEST = 2.0**-100


class Histogram:
    """How many numbers are in each of `BINS` bins of one width, from -reach up to reach.

    The reach is a power of two, which doubles as larger numbers come: two bins become one, and nothing is estimated.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.reach = _SMALLEST
        self.low, self.high = math.inf, -math.inf  # the smallest and the largest number

    @property
    def width(self) -> float:
        """The width of a bin."""
        return 2 * self.reach / BINS

    @property
    def count(self) -> int:
        """How many numbers were added."""
        return int(self.counts.sum())

    def add(self, numbers: Array) -> None:
        """Count numbers of any shape.

        Raises:
            ValueError: for NaN, infinity and numbers above 1e30.
        """
        if wrong := first_wrong(numbers, np.abs(numbers) <= LARGEST):
            raise ValueError(f"the inputs have {wrong}, expected at most 1e30, and finite numbers")
        if not numbers.size:
            return
        if numbers.dtype.itemsize == 2:
            numbers = numbers.astype(np.float32)  # the edges of a histogram have the type of its numbers
        low, high = float(numbers.min()), float(numbers.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._stretch(max(-low, high))
        self.counts += np.histogram(numbers, BINS, (-self.reach, self.reach))[0]

    def _stretch(self, largest: float) -> None:
        while self.reach <= largest:
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros_like(self.counts)
            self.counts[BINS // 4 : 3 * BINS // 4] = pairs
            self.reach *= 2


def minmax(seen: Histogram) -> tuple[float, float]:
    """The range of all numbers."""
    return seen.low, seen.high


def percentile(seen: Histogram, percent: float = 99.99) -> tuple[float, float]:
    """The range that leaves out at most (100 - percent) / 2 percent of the numbers at each end, in whole bins, but
    reaches no further than the numbers."""
    allowed = int((100 - percent) / 200 * seen.count)
    edges = np.linspace(-seen.reach, seen.reach, BINS + 1)
    first = int(np.argmax(np.cumsum(seen.counts) > allowed))
    last = BINS - int(np.argmax(np.cumsum(seen.counts[::-1]) > allowed))
    return max(float(edges[first]), seen.low), min(float(edges[last]), seen.high)


def entropy(seen: Histogram) -> tuple[float, float]:
    """The range from -t to t, limited to existing numbers, whose codes keep the most information.

    For each t, P is the histogram of the sizes up to t, those beyond it being counted in the last bin. Q is the same
    without those beyond it, in 128 parts of one width, over each of which the counts are spread evenly where there were
    any. The t with the least Kullback-Leibler divergence of Q from P is taken (Migacz, "8-bit inference with TensorRT",
    2017). Where P has numbers and Q does not, the divergence is infinite.
    """
    half = BINS // 2
    sizes = seen.counts[half:] + seen.counts[half - 1 :: -1]
    reached = int(np.flatnonzero(sizes)[-1]) + 1
    ends = range(min(_LEVELS, reached), reached + 1)
    best = min(ends, key=lambda end: _divergence(sizes, end))
    limit = math.inf if best == reached else best * seen.width
    return max(seen.low, -limit), min(seen.high, limit)


def _divergence(sizes: Array, end: int) -> float:
    kept = sizes[:end].astype(np.float64)
    expected = kept.copy()
    expected[-1] += sizes[end:].sum()
    if kept[-1] == 0 < expected[-1]:
        return math.inf
    starts = np.unique(np.arange(_LEVELS) * end // _LEVELS)
    some = kept > 0
    sums, filled = np.add.reduceat(kept, starts), np.add.reduceat(some, starts, dtype=np.int64)
    spread = np.repeat(sums / np.maximum(filled, 1), np.diff(np.append(starts, end)))
    p, q = expected[some] / expected.sum(), spread[some] / kept.sum()
    return float((p * np.log(p / q)).sum())
