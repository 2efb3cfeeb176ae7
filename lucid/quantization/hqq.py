"""Half-quadratic quantization: it minimizes a norm of the errors that tolerates a few large ones.

Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models", 2023 (Mobius Labs).
"""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import Array
from lucid.quantization.blocks import Blocks
from lucid.quantization.rtn import Best, Grid, as_scales, choose, rounded

_NORM, _WEIGHT, _GROWTH, _STEPS = 0.7, 10.0, 1.01, 20  # p, beta, kappa and the iterations, as published


def hqq(weight: Array, bits: int, block: int) -> Blocks:
    """Round a weight (N, K) to codes, with scales and zeros by half-quadratic optimisation; without calibration data.

    It differs from what was published in two ways. The zeros are whole, since onnxruntime's kernels are 20 times slower
    with others. Whole zeros alone gain nothing over `rtn`, so the same steps fit the scales too, and the step with the
    least squared error is taken.

    What it gains: the mean relative error of all-MiniLM-L6-v2's products, in 4 bits and blocks of 32 (128), is 0.066
    (0.086). With `rtn` it is 0.069 (0.089), with its search 0.067 (0.084), with `fit` 0.067, and with `gptq` over 160
    sentences 0.043 (0.055).

    Raises:
        ValueError: as `rtn`.
    """
    return rounded("hqq", weight, bits, block, False, lambda parts: _find(parts, bits))


def _find(parts: Array, bits: int) -> Grid:
    best = Best(parts, choose(parts, bits, symmetric=False, search=False), bits)
    exact = parts / best.unit
    scales, zeros = np.ones_like(best.unit), best.grid.zeros.copy()
    top = np.float32(2**bits - 1)
    weight = _WEIGHT
    for _ in range(_STEPS):
        codes = np.clip(np.rint(exact / scales + zeros), 0, top)
        errors = exact - (codes - zeros) * scales
        size = np.abs(errors)
        # The proximal step of the norm: how much of each error is left out of the least squares below.
        left_out = np.copysign(np.maximum(size - np.maximum(size, 1e-6) ** (_NORM - 1) / weight, 0), errors)
        target = exact - left_out
        zeros = np.clip(np.rint((codes - target / scales).mean(axis=0)), 0, top)
        steps = codes - zeros
        scales = np.maximum((target * steps).sum(axis=0) / np.maximum((steps * steps).sum(axis=0), 1), 0.1)
        weight *= _GROWTH
        best.consider(Grid(as_scales(scales * best.unit.astype(np.float64)), zeros))
    return best.grid
