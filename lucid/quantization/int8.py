"""Weights as signed bytes with a scale for each row, and the inputs of their products as unsigned bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.process.threads import share
from lucid.quantization.rtn import LARGEST, PIECE, check_numbers, check_weight

TOP = 127  # of a weight's codes, and -127 the lowest, so that both signs reach as far
LEVELS = 255  # steps between the lowest and the highest code of an input


class Rows(NamedTuple):
    """A weight (N, K) as codes (N, K) int8, and the scales (N,) float32 of its rows: weight = scales * codes."""

    codes: Array
    scales: Array

    def dequantized(self) -> Array:
        """The weight (N, K) float32."""
        return np.asarray(self.codes * self.scales[:, None])


class Grid8(NamedTuple):
    """The numbers that inputs are rounded to: scale * (code - zero), the code being from 0 to 255."""

    scale: Array  # () float32
    zero: Array  # () uint8


def by_row(weight: Array) -> Rows:
    """Round a weight (N, K) to the nearest of 255 codes, the largest number of a row having the code 127 or -127.

    Rows of zeros are exact.

    Raises:
        ValueError: for another rank, NaN, infinity and numbers above 1e30.
    """
    check_weight("by_row", weight)
    codes, scales = np.empty(weight.shape, np.int8), np.empty(len(weight), np.float32)

    def work(starts: Iterator[int]) -> None:
        for start in starts:
            rows = slice(start, start + step)
            with np.errstate(over="ignore"):  # of float64: the check below says so
                piece = weight[rows].astype(np.float32)
            largest = np.abs(piece).max(axis=1, initial=0)
            if not (largest <= LARGEST).all():
                check_numbers("by_row", weight)
            scales[rows] = np.where(largest == 0, 1, np.maximum(largest / np.float32(TOP), np.finfo(np.float32).tiny))
            piece /= scales[rows, None]
            codes[rows] = np.clip(np.rint(piece, out=piece), -TOP, TOP, out=piece)

    step = max(1, PIECE // max(1, weight.shape[1]))
    share(range(0, len(weight), step), work)
    return Rows(codes, scales)


def grid_between(low: float, high: float) -> Grid8:
    """The codes for numbers from `low` to `high` and for 0: the scale and zero of ONNX DynamicQuantizeLinear."""
    least, most = np.float32(min(low, 0)), np.float32(max(high, 0))
    scale = (most - least) / np.float32(LEVELS) if most > least else np.float32(1)
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    return Grid8(np.asarray(scale, np.float32), np.asarray(np.clip(np.rint(-least / scale), 0, LEVELS), np.uint8))
