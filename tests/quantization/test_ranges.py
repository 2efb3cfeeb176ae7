"""Ranges of inputs from their histograms, held to their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lucid.core.graph.types import Array
from lucid.quantization import Histogram, entropy, minmax, percentile
from lucid.quantization.ranges import BINS


def numbers(kind: str) -> Array:
    generator = np.random.default_rng(0)
    normal = generator.standard_normal(20000)
    return {
        "normal": normal,
        "far": np.concatenate([normal, [-300.0, 40.0]]),
        "one side": np.maximum(normal, -0.17),
        "few": np.repeat([-2.0, 0.5, 7.0], [3, 900, 2]),
        "small": normal * 1e-20,
        "zeros": np.zeros(10),
    }[kind].astype(np.float32)


KINDS = ("normal", "far", "one side", "few", "small", "zeros")


def seen(values: Array, parts: int = 7) -> Histogram:
    histogram = Histogram()
    for part in np.array_split(values.reshape(2, -1) if values.size % 2 == 0 else values, parts):
        histogram.add(part)
    return histogram


@pytest.mark.parametrize("kind", KINDS)
def test_a_histogram_counts_every_number_once(kind: str) -> None:
    """However large they become: as if its reach had been known before."""
    values = numbers(kind)
    histogram = seen(values[np.argsort(np.abs(values))])
    assert histogram.count == values.size and minmax(histogram) == (values.min(), values.max())
    assert histogram.reach < 2 * max(np.abs(values).max(), 1e-30)
    counts, _ = np.histogram(values, BINS, (-histogram.reach, histogram.reach))
    np.testing.assert_array_equal(histogram.counts, counts)


@pytest.mark.parametrize("percent", [99.99, 99, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_a_percentile_leaves_out_no_more_at_each_end(kind: str, percent: float) -> None:
    """To the width of a bin."""
    values, histogram = numbers(kind), seen(numbers(kind))
    out = int((100 - percent) / 200 * values.size)
    ordered = np.sort(values)
    low, high = percentile(histogram, percent)
    assert low <= ordered[out] < low + histogram.width
    assert high - histogram.width <= ordered[-1 - out] <= high


def divergence(sizes: Array, end: int) -> float:
    """Of the histogram up to `end` from itself in 128 levels, by the definition, one bin at a time."""
    p = [float(n) for n in sizes[:end]]
    q = [0.0] * end
    for level in range(128):
        start, stop = level * end // 128, (level + 1) * end // 128
        filled = [k for k in range(start, stop) if p[k]]
        for k in filled:
            q[k] = sum(p[start:stop]) / len(filled)
    p[-1] += float(sizes[end:].sum())
    total = 0.0
    for one, other in zip(p, q, strict=True):
        if one and not other:
            return math.inf
        if one:
            total += one / sum(p) * math.log((one / sum(p)) / (other / sum(q)))
    return total


@pytest.mark.parametrize("kind", ["far", "one side", "few"])
def test_the_entropy_range_loses_the_least_information(kind: str) -> None:
    histogram = seen(numbers(kind))
    half = BINS // 2
    sizes = histogram.counts[half:] + histogram.counts[:half][::-1]
    reached = int(np.flatnonzero(sizes).max()) + 1
    low, high = entropy(histogram)
    limit = max(-low, high)
    taken = reached if limit == max(-histogram.low, histogram.high) else round(limit / histogram.width)
    others = [*range(128, reached + 1, 97), taken - 1, taken + 1, reached]
    assert all(
        divergence(sizes, taken) <= divergence(sizes, other) + 1e-12 for other in others if 128 <= other <= reached
    )
    assert low >= histogram.low and high <= histogram.high
    if kind == "far":
        assert limit < 100  # two numbers of 20000 are not worth the codes


@pytest.mark.parametrize("kind", ["small", "zeros"])
def test_ranges_of_small_numbers_are_finite(kind: str) -> None:
    histogram = seen(numbers(kind))
    assert histogram.low <= entropy(histogram)[0] <= entropy(histogram)[1] <= histogram.high


@pytest.mark.parametrize("size", [6e4, 1.0, 1e-5, 0.0])
def test_half_precision_is_counted_in_float32(size: float) -> None:
    values = (np.linspace(-1, 1, 1000) * size).astype(np.float16)
    halves, singles = seen(values), seen(values.astype(np.float32))
    assert (halves.low, halves.high, halves.reach) == (singles.low, singles.high, singles.reach)
    np.testing.assert_array_equal(halves.counts, singles.counts)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e31])
def test_inputs_that_are_not_numbers(value: float) -> None:
    with pytest.raises(ValueError, match=r"the inputs have .* at \[0, 1\], expected at most 1e30, and finite numbers"):
        Histogram().add(np.array([[0, value]]))
