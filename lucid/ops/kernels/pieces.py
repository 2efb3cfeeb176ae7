"""Kernels that run in cache-sized pieces, shared by the worker threads if there is much to compute.

A chain of NumPy calls over a large array reads and writes memory at each call. Over a piece, all calls except the first
and the last find their numbers in the cache. Pieces are whole rows and depend on sizes only, so the number of threads
does not change results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.process.threads import share

PIECE = 1 << 15  # numbers in a piece: with two buffers, a fraction of a core's second cache
SHARED = 1 << 20  # with fewer numbers the other threads cost more than they save,
LARGE = 1 << 17  # as they do with smaller pieces: at each end of one a thread waits for the interpreter's lock


def widened(x: Array) -> Array:
    """Half precision as float32, in which it is computed."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def over_rows(rows: int, width: int, work: Callable[[slice], None]) -> None:
    """Call `work` with slices that together cover `rows` rows of `width` numbers each, in pieces."""
    shared = rows * width >= SHARED
    step = max(1, (LARGE if shared else PIECE) // max(1, width))

    def take(starts: Iterable[int]) -> None:
        for start in starts:
            work(slice(start, start + step))

    if rows <= step:
        work(slice(0, rows))
    elif shared:
        share(range(0, rows, step), take)
    else:
        take(range(0, rows, step))


def in_pieces(x: Array, axes: int, compute: Callable[[Array, Array], None]) -> Array:
    """The result, of the shape and type of x, that `compute` fills piece by piece.

    It gets some rows of x, (n, width), where a row is what the last `axes` axes hold (for 0, a single number), and the
    array of that shape to fill. Both are float32 for half precision.
    """
    if axes == 1 and x.size <= PIECE and x.dtype.itemsize > 2 and x.shape[-1]:
        whole = np.empty(x.shape, x.dtype)
        compute(x, whole)
        return whole
    width = math.prod(x.shape[x.ndim - axes :])
    return of_rows(x, width, lambda rows, out, _: compute(rows, out))


def of_rows(x: Array, width: int, compute: Callable[[Array, Array, slice], None]) -> Array:
    """`in_pieces` with x as rows of `width` numbers; `compute` also gets the slice of the rows that it works on."""
    if not x.size:  # of rows without numbers nothing says how many there are
        return np.empty(x.shape, x.dtype)
    rows = x.reshape(-1, width)
    result = np.empty(rows.shape, x.dtype)

    def fill(piece: slice) -> None:
        if x.dtype.itemsize == 2:
            wide = rows[piece].astype(np.float32)
            compute(wide, wide, piece)
            result[piece] = wide
        else:
            compute(rows[piece], result[piece], piece)

    over_rows(*rows.shape, fill)
    return result.reshape(x.shape)
