"""Convolution of each channel on its own in NumPy, in one of two ways.

*Long lines*: a channel is one long row. Each number of the kernel is multiplied with that row, shifted, and the
products are added, over memory without gaps. Results are right where the window stays within its line; others are cut
off.

*Short lines*: an output line is the sum, over the kernel's lines, of an input line times a banded matrix, which has the
kernel's line in each column, one row further down. Most of these multiplications are with zeros; still they take as
little as a quarter of the time, because BLAS keeps its numbers in registers.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.process.threads import buffer
from lucid.ops.kernels.pieces import over_rows

SHORT = 64  # outputs of a line, and
TIMES = 10  # how many times the kernel's line they are, up to which matrices are faster


def depthwise(x: Array, weight: Array, dilations: tuple[int, ...]) -> Array:
    """Cross-correlation of x (N, C, *spatial), padded already, with weight (C, *kernel), at every position."""
    n, c, *spatial = x.shape
    channels = np.ascontiguousarray(x).reshape(n * c, *spatial)
    factors = np.tile(weight, (n, *[1] * (weight.ndim - 1)))
    out = [s - d * (k - 1) for s, k, d in zip(spatial, weight.shape[1:], dilations, strict=True)]
    # Zeros times infinity are not zero. The sum is finite only if all numbers are.
    short = 0 < out[-1] <= min(SHORT, TIMES * weight.shape[-1]) and math.isfinite(np.add.reduce(channels, None))
    result = (_by_matrices if short else _by_sums)(channels, factors, dilations, out)
    return result.reshape(n, c, *out)


def _by_matrices(x: Array, factors: Array, dilations: tuple[int, ...], out: list[int]) -> Array:
    """Short lines: x (channels, *spatial), factors (channels, *kernel), result (channels, *out)."""
    kernel, width, lines = factors.shape[1:], x.shape[-1], math.prod(factors.shape[1:-1])
    result = np.empty((len(x), *out), x.dtype)
    factors = factors.reshape(len(x), lines, kernel[-1], 1)
    places = [tuple(map(int.__mul__, place, dilations)) for place in itertools.product(*map(range, kernel[:-1]))]
    windows = [
        (slice(None), *(slice(a, a + size) for a, size in zip(place, out[:-1], strict=True))) for place in places
    ]
    between = [1] * max(0, len(out) - 2)

    def work(some: slice) -> None:
        numbers, sums = x[some], result[some]
        if len(out) == 1:  # a channel is one line
            numbers, sums = numbers[:, None], sums[:, None]
        shape = (lines, len(sums), *between, width, out[-1])
        matrices, product = buffer("matrices", shape, x.dtype), buffer("product", sums.shape, x.dtype)
        matrices.fill(0)
        (line, channel, *_), (down, right) = matrices.strides, matrices.strides[-2:]
        bands = np.ndarray(
            (len(sums), lines, kernel[-1], out[-1]),
            x.dtype,
            matrices,
            strides=(channel, line, dilations[-1] * down, down + right),
        )
        bands[...] = factors[some]
        np.matmul(numbers[windows[0]], matrices[0], out=sums)
        for window, matrix in zip(windows[1:], matrices[1:], strict=True):
            np.matmul(numbers[window], matrix, out=product)
            sums += product

    over_rows(len(x), lines * width * out[-1] // 4, work)
    return result


def _by_sums(x: Array, factors: Array, dilations: tuple[int, ...], out: list[int]) -> Array:
    """Long lines: x (channels, *spatial), factors (channels, *kernel), result (channels, *out)."""
    channels, *spatial = x.shape
    kernel, size = factors.shape[1:], math.prod(spatial)
    steps = [math.prod(spatial[axis + 1 :]) * step for axis, step in enumerate(dilations)]
    starts = [sum(map(int.__mul__, place, steps)) for place in itertools.product(*map(range, kernel))]
    rows, factors = x.reshape(channels, size), factors.reshape(channels, -1)
    sums = np.empty_like(rows)
    length = size - starts[-1]

    def work(some: slice) -> None:
        numbers, total, own = rows[some], sums[some, :length], factors[some]
        np.multiply(numbers[:, :length], own[:, :1], out=total)
        product = buffer("product", total.shape, total.dtype)
        for place, start in enumerate(starts[1:], start=1):
            np.multiply(numbers[:, start : start + length], own[:, place : place + 1], out=product)
            total += product

    over_rows(channels, size, work)
    inside: Array = sums.reshape(x.shape)[(slice(None), *map(slice, out))]
    return np.ascontiguousarray(inside)
