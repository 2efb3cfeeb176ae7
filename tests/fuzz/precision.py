"""Floating types as the judge sees them: the size of a rounding error, and which numbers are too large or too small."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from lucid.core.graph.types import DType


@dataclass(frozen=True)
class Precision:
    """A floating type as the judge sees it."""

    epsilon: float
    largest: float
    normal: float  # numbers below it may count as zero
    step: float  # the distance of its smallest numbers

    @classmethod
    def of(cls, dtype: DType) -> Precision:
        info = ml_dtypes.finfo(dtype.numpy)
        flushed = float(max(info.tiny, np.finfo(np.float32).tiny)) if dtype.itemsize < 8 else float(info.tiny)
        if dtype.name == "float16":  # its denormals are computed in float32, in which they are normal
            flushed = float(np.finfo(np.float32).tiny)
        # The judge itself computes in float64, where an error of one unit would be rounded away.
        epsilon = float(info.eps) * (4 if dtype.itemsize == 8 else 1)
        return cls(epsilon, float(info.max), flushed, float(max(info.smallest_subnormal, flushed)))


_PRECISIONS: dict[DType, Precision] = {}


def precision(dtype: DType) -> Precision:
    if dtype not in _PRECISIONS:
        _PRECISIONS[dtype] = Precision.of(dtype)
    return _PRECISIONS[dtype]
