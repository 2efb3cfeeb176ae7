"""GPTQ: rounding column by column, the later columns making up for the errors of the earlier ones.

Frantar, Ashkboos, Hoefler and Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2022 (arXiv:2210.17323), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.process.threads import share
from lucid.quantization.blocks import Blocks, blocks_of, check_format, first_wrong
from lucid.quantization.rtn import check_numbers, check_weight, choose, nearest

_ROWS = 4096  # of the weight, which do not depend on each other; with fewer, threads wait for the interpreter
_BATCH = 64  # columns whose errors are brought into the later ones by one product


class Hessian:
    """The sum of x x^T over the inputs x of a layer, which is all that `gptq` needs of them."""

    def __init__(self, size: int) -> None:
        """`size`: K, how many numbers an input has."""
        self.count = 0  # inputs
        self._sum = np.zeros((size, size))

    def add(self, inputs: Array) -> None:
        """Add inputs (..., K).

        Raises:
            ValueError: for another last axis, NaN and infinity.
        """
        size = len(self._sum)
        if not inputs.ndim or inputs.shape[-1] != size:
            raise ValueError(f"Hessian: the inputs are {list(inputs.shape)}, expected (..., {size})")
        if wrong := first_wrong(inputs, np.isfinite(inputs)):
            raise ValueError(f"Hessian: the inputs have {wrong}, expected finite numbers")
        rows = inputs.reshape(-1, size)
        step = max(1, (1 << 20) // max(1, size))
        for start in range(0, len(rows), step):
            some = rows[start : start + step].astype(np.float64)
            self._sum += some.T @ some
        self.count += len(rows)

    def __add__(self, other: Hessian) -> Hessian:
        """The sum over the inputs of both."""
        both = Hessian(len(self._sum))
        both.count, both._sum = self.count + other.count, self._sum + other._sum
        return both

    @property
    def matrix(self) -> Array:
        """(K, K) float64.

        Raises:
            ValueError: if nothing has been added.
        """
        if not self.count:
            raise ValueError("Hessian: no inputs have been added; the layer has not run, or on empty arrays")
        return self._sum


def gptq(
    weight: Array, hessian: Array, bits: int, block: int, symmetric: bool = False, damping: float = 0.01
) -> Blocks:
    """Find codes for a weight W (N, K) such that the layer's output X W^T changes little, by the inputs X it has seen.

    The columns are rounded in order. The error of each is brought into those that follow, as the Cholesky factor of the
    inverse Hessian says. The grid of a block is chosen as by `rtn` with its search, when its first column is reached.
    Inputs that have always been 0 are rounded on their own.

    Args:
        weight: (N, K).
        hessian: X^T X (K, K), as `Hessian` sums it; its unit does not matter.
        bits, block, symmetric: as for `rtn`.
        damping: what is added to the diagonal, as a share of its mean: few inputs say little about others.

    Raises:
        ValueError: as `rtn`; for a Hessian of another shape, with NaN or infinity, or that is no X^T X: not
            symmetric, negative on the diagonal, or singular with the damping.
    """
    check_format("gptq", bits, block)
    check_weight("gptq", weight)
    check_numbers("gptq", weight)
    rows, size = weight.shape
    factor = _inverse_factor(hessian, size, damping)
    count = blocks_of(size, block)
    codes = np.empty((rows, size), np.uint8)
    scales, zeros = np.empty((rows, count), np.float32), np.empty((rows, count), np.uint8)

    def work(starts: Iterator[int]) -> None:
        for start in starts:
            piece = slice(start, start + _ROWS)
            _round(weight[piece], factor, codes[piece], scales[piece], zeros[piece], bits, block, symmetric)

    share(range(0, rows, _ROWS), work)
    return Blocks(codes, scales, None if symmetric else zeros, bits, block)


def _round(
    weight: Array, factor: Array, codes: Array, scales: Array, zeros: Array, bits: int, block: int, symmetric: bool
) -> None:
    """Round some rows. One product brings all errors so far into a column, just before that column is rounded."""
    size = weight.shape[1]
    columns = np.array(weight.T, np.float32, order="C")
    errors = np.empty_like(columns)

    def bring_up_to_date(first: int, last: int, since: int, until: int) -> None:
        """Bring the errors of the columns from `since` to `until` into those from `first` to `last`."""
        columns[first:last] -= factor[since:until, first:last].T @ errors[since:until]

    for number, start in enumerate(range(0, size, block)):
        end = min(start + block, size)
        bring_up_to_date(start, end, 0, start)
        grid = choose(columns[start:end], bits, symmetric, search=True)
        scales[:, number], zeros[:, number] = grid
        for first in range(start, end, _BATCH):
            last = min(first + _BATCH, end)
            bring_up_to_date(first, last, start, first)
            for at in range(first, last):
                bring_up_to_date(at, at + 1, first, at)
                steps = nearest(columns[at], grid, bits)
                codes[:, at] = steps + grid.zeros
                errors[at] = (columns[at] - steps * grid.scales) / factor[at, at]


def _inverse_factor(hessian: Array, size: int, damping: float) -> Array:
    """U (K, K) float32, upper triangular, U^T U being the inverse of the damped Hessian (in units of its mean)."""
    if not (math.isfinite(damping) and damping >= 0):
        raise ValueError(f"gptq: damping is {damping}, expected 0 or more; 0.01 is usual")
    if hessian.shape != (size, size):
        raise ValueError(f"gptq: the Hessian is {list(hessian.shape)}, expected [{size}, {size}] for {size} inputs")
    if wrong := first_wrong(hessian, np.isfinite(hessian)):
        raise ValueError(f"gptq: the Hessian is {wrong}, expected finite numbers")
    diagonal = hessian.diagonal()
    if (diagonal < 0).any() or not np.allclose(hessian, hessian.T, rtol=1e-5, atol=1e-8 * diagonal.max(initial=0)):
        raise ValueError("gptq: the Hessian is not symmetric or negative on its diagonal, expected X^T X of inputs X")
    seen = diagonal > 0
    damped = hessian.astype(np.float64) / (diagonal[seen].mean() if seen.any() else 1)
    damped[np.diag_indices(size)] += np.where(seen, damping, 1)
    # With H = R R^T, R upper triangular, U is the inverse of R. Cholesky from the last row to the first, and the
    # inverse of a triangle, are more exact than the factor of an inverse.
    try:
        lower = np.linalg.cholesky(damped[::-1, ::-1])
    except np.linalg.LinAlgError:
        lower = None
    if lower is None or (lower.diagonal() ** 2 < size * np.finfo(np.float64).eps).any():
        raise ValueError(f"gptq: the Hessian is singular with damping {damping}; give more damping (0.01) or inputs")
    return np.ascontiguousarray(_inverse_of_triangle(lower)[::-1, ::-1], np.float32)


def _inverse_of_triangle(lower: Array) -> Array:
    """The inverse of a triangle, by halves. NumPy's inverse of any matrix takes seven times as long."""
    size = len(lower)
    if size <= 64:
        return np.tril(np.linalg.inv(lower))
    half = size // 2
    inverse = np.zeros_like(lower)
    inverse[:half, :half] = _inverse_of_triangle(lower[:half, :half])
    inverse[half:, half:] = _inverse_of_triangle(lower[half:, half:])
    inverse[half:, :half] = -inverse[half:, half:] @ (lower[half:, :half] @ inverse[:half, :half])
    return inverse
