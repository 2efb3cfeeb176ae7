"""Rounding to the nearest code.

Here blocks are columns: (size of a block, m) for m of them. NumPy's loops then run over many blocks, not over the few
numbers in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.process.threads import share
from lucid.quantization.blocks import Blocks, blocks_of, check_format, first_wrong, middle

SHRINKS = np.linspace(1.0, 0.7, 16)  # of a range; down to 0.5 MiniLM's products are no nearer
# 1e30, far above any weight: GPTQ adds errors to it. Not a Python float, which a float16 weight would make float16.
LARGEST = np.float64(2.0**100)
PIECE = 1 << 17  # numbers that are worked on together: in smaller pieces threads wait for the interpreter
_SMALLEST = np.finfo(np.float32).tiny


class Grid(NamedTuple):
    """The numbers that m blocks can hold, scales * (code - zeros): both are float32 (m,)."""

    scales: Array  # not 0; below 0 only where the blocks are symmetric
    zeros: Array  # whole


def rtn(weight: Array, bits: int, block: int, symmetric: bool = False, search: bool = False) -> Blocks:
    """Round a weight (N, K) to the nearest codes.

    Without zeros, if it is symmetric: the middle code is 0. Blocks of zeros or of one number are exact.

    The range of a block includes all its numbers and 0, and no number moves by more than half a scale; a symmetric
    block reaches as far as its largest number, and one code less on the other side. With `search` 46 ranges from all of
    it to 0.7 of it are tried (symmetric: 17), and the one with the least squared error is taken: a smaller one clips
    the largest numbers and is finer for all others. That takes about 20 times as long.

    Raises:
        ValueError: for bits or a block that do not exist, NaN, infinity and numbers above 1e30.
    """
    return rounded("rtn", weight, bits, block, symmetric, lambda parts: choose(parts, bits, symmetric, search))


def check_weight(what: str, weight: Array) -> None:
    """Refuse a weight that is not a matrix.

    Raises:
        ValueError: naming the shape.
    """
    if weight.ndim != 2:
        raise ValueError(f"{what}: the weight has shape {list(weight.shape)}, expected (outputs, inputs)")


def check_numbers(what: str, weight: Array) -> None:
    """Refuse numbers that cannot be rounded.

    Raises:
        ValueError: naming the first number that is not finite or above `LARGEST`.
    """
    # Not by the maximum, which passes over NaN in bfloat16.
    if wrong := first_wrong(weight, np.abs(weight) <= LARGEST):
        raise ValueError(f"{what}: the weight is {wrong}, expected at most 1e30, and finite")


def rounded(what: str, weight: Array, bits: int, block: int, symmetric: bool, find: Callable[[Array], Grid]) -> Blocks:
    """Round a weight in all threads. `find` returns the grid for blocks (block, m), which it must not change.

    Raises:
        ValueError: as `check_format`, `check_weight` and `check_numbers`.
    """
    check_format(what, bits, block)
    check_weight(what, weight)
    rows, size = weight.shape
    whole = size // block
    codes = np.empty((rows, size), np.uint8)
    scales, zeros = (np.empty((rows, blocks_of(size, block)), dtype) for dtype in (np.float32, np.uint8))

    def round_piece(rows: slice, blocks: slice, columns: slice, width: int) -> None:
        # A last block that is shorter is a block of its own width: nothing is padded.
        piece, into = (array[rows, columns].reshape(-1, blocks.stop - blocks.start, width) for array in (weight, codes))
        with np.errstate(over="ignore"):  # of float64: the check below says so
            parts = piece.transpose(2, 0, 1).astype(np.float32, order="C").reshape(width, -1)
        if not np.abs(parts).max(initial=0) <= LARGEST:
            check_numbers(what, weight)
        grid = find(parts)
        nearest(parts, grid, bits, out=parts)
        parts += grid.zeros
        into[...] = parts.astype(np.uint8).reshape(width, *piece.shape[:2]).transpose(1, 2, 0)
        scales[rows, blocks], zeros[rows, blocks] = (array.reshape(piece.shape[:2]) for array in grid)

    def work(starts: Iterator[int]) -> None:
        for start in starts:
            piece = slice(start, start + step)
            if whole:
                round_piece(piece, slice(0, whole), slice(0, whole * block), block)
            if size > whole * block:
                round_piece(piece, slice(whole, whole + 1), slice(whole * block, size), size - whole * block)

    step = max(1, PIECE // max(1, size))
    share(range(0, rows, step), work)
    return Blocks(codes, scales, None if symmetric else zeros, bits, block)


def choose(parts: Array, bits: int, symmetric: bool, search: bool) -> Grid:
    """The grid of each block: for all of its range or, with `search`, the one with the least squared error."""
    low, high = (ends.astype(np.float64) for ends in (parts.min(axis=0), parts.max(axis=0)))
    candidates = (_symmetric if symmetric else _asymmetric)(low, high, bits)
    grid = next(candidates)
    if search:
        best = Best(parts, grid, bits)
        for other in candidates:
            best.consider(other)
    return grid


class Best:
    """For each block of some parts the grid of the least squared error, of those that were considered."""

    def __init__(self, parts: Array, grid: Grid, bits: int) -> None:
        """`grid` is the first one; blocks of better ones are written over its own."""
        self.grid = grid
        self.unit = grid.scales.copy()  # squares of the numbers themselves may be too large or too small
        self.buffer = np.empty_like(parts)
        self._parts, self._bits, self._error = parts, bits, np.empty_like(parts)
        self._least = self._squared_error(grid)

    def consider(self, other: Grid) -> None:
        """Take the blocks of a grid whose error is less."""
        error = self._squared_error(other)
        better = error < self._least
        for mine, its in zip((self._least, *self.grid), (error, *other), strict=True):
            np.copyto(mine, its, where=better)

    def _squared_error(self, grid: Grid) -> Array:
        """The squared error of each block, in multiples of the unit."""
        exact, error = self.buffer, self._error
        np.divide(self._parts, grid.scales, out=exact)
        np.rint(exact, out=error)
        _clipped(error, grid, self._bits)
        error -= exact
        np.multiply(error, error, out=error)
        return np.asarray(error.sum(axis=0) * (grid.scales / self.unit) ** 2)


def nearest(parts: Array, grid: Grid, bits: int, out: Array | None = None) -> Array:
    """The multiples of the scale that are nearest: codes without their zeros, whole float32 numbers."""
    steps = np.divide(parts, grid.scales, out=out)
    np.rint(steps, out=steps)
    return _clipped(steps, grid, bits)


def _clipped(steps: Array, grid: Grid, bits: int) -> Array:
    np.maximum(steps, -grid.zeros, out=steps)
    return np.asarray(np.minimum(steps, np.float32(2**bits - 1) - grid.zeros, out=steps))


def _symmetric(low: Array, high: Array, bits: int) -> Iterator[Grid]:
    """The codes reach one further below the middle than above: the number of the largest size gets the code 0."""
    zeros = np.full(low.shape, middle(bits), np.float32)
    largest = np.where(-low >= high, low, high)
    whole = np.where(low == high, largest, -largest / middle(bits))  # of one number: the scale itself
    for shrink in SHRINKS:
        yield Grid(as_scales(whole * shrink), zeros)
    yield Grid(as_scales(largest / (middle(bits) - 1)), zeros)  # both sides are held


def _asymmetric(low: Array, high: Array, bits: int) -> Iterator[Grid]:
    yield _between(low, high, bits)
    for shrink in SHRINKS[1:]:
        yield _between(low * shrink, high * shrink, bits)
        yield _between(low, high * shrink, bits)
        yield _between(low * shrink, high, bits)


def _between(low: Array, high: Array, bits: int) -> Grid:
    """The range includes 0, which has a code of its own; a block of one number has its size as the scale."""
    one = low == high
    scales = as_scales(np.where(one, np.abs(low), (np.maximum(high, 0) - np.minimum(low, 0)) / (2**bits - 1)))
    zeros = np.where(one, low < 0, np.rint(-np.minimum(low, 0) / scales))
    return Grid(scales, zeros.astype(np.float32))


def as_scales(exact: Array) -> Array:
    """Scales as float32: 1 for 0. Below 1e-38, where few digits are left, they are rounded away from 0: the codes must
    reach as far.
    """
    scales = np.where(exact == 0, 1, exact).astype(np.float32)
    short = (np.abs(scales) < _SMALLEST) & (np.abs(scales) < np.abs(exact))
    return np.where(short, np.nextafter(scales, np.copysign(np.float32(1), exact, dtype=np.float32)), scales)
