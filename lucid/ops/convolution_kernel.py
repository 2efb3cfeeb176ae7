"""Convolution of each channel on its own in NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np

from lucid.ops.pieces import over_rows
from lucid.threads import buffer
from lucid.types import Array


def depthwise(x: Array, weight: Array, dilations: tuple[int, ...]) -> Array:
    """Cross-correlation of x (N, C, *spatial), padded already, with weight (C, *kernel), at every position.

    A channel is one long row: what a number of the kernel is multiplied with is the same row, begun later. So a product
    and a sum for each number of the kernel are all there is, over memory without gaps. They are right where the window
    does not leave its line, and the other places are cut off.
    """
    n, c, *spatial = x.shape
    kernel, size = weight.shape[1:], math.prod(spatial)
    steps = [math.prod(spatial[axis + 1 :]) * step for axis, step in enumerate(dilations)]
    starts = [sum(map(int.__mul__, place, steps)) for place in itertools.product(*map(range, kernel))]
    rows, factors = x.reshape(n * c, size), np.tile(weight.reshape(c, -1), (n, 1))
    sums = np.empty_like(rows, order="C")
    length = size - starts[-1]

    def work(part: slice) -> None:
        numbers, total, own = rows[part], sums[part, :length], factors[part]
        np.multiply(numbers[:, :length], own[:, :1], out=total)
        product = buffer("product", total.shape, total.dtype)
        for place, start in enumerate(starts[1:], start=1):
            np.multiply(numbers[:, start : start + length], own[:, place : place + 1], out=product)
            total += product

    over_rows(n * c, size, work)
    windows = [slice(s - d * (k - 1)) for s, k, d in zip(spatial, kernel, dilations, strict=True)]
    inside: Array = sums.reshape(x.shape)[(slice(None), slice(None), *windows)]
    return np.ascontiguousarray(inside)
