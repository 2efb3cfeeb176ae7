"""`no_grad`, `inference_mode`, `finfo` and `iinfo`: names of torch that ported code uses around its computations."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

import numpy as np

from lucid.core.graph.types import DTypeLike, as_dtype


class no_grad(ContextDecorator):  # noqa: N801  # torch's name
    """Does nothing, as a decorator or in ``with``: there are no gradients."""

    def __enter__(self) -> None:
        """Nothing changes."""

    def __exit__(self, *error: Any) -> None:
        """Nothing changes."""


inference_mode = no_grad


class iinfo:  # noqa: N801  # NumPy's and torch's name
    """The limits of a type of integers: `min` and `max`.

    Raises:
        TypeError: for another type.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        type_ = as_dtype(dtype)
        if type_.kind not in ("int", "uint"):
            raise TypeError(f"iinfo: got {type_}, expected a type of integers")
        self.dtype, limits = type_, np.iinfo(type_.numpy)
        self.bits, self.min, self.max = limits.bits, int(limits.min), int(limits.max)


class finfo:  # noqa: N801  # NumPy's and torch's name
    """The limits of a floating-point type: `min`, `max`, `eps` and `smallest_normal` (also `tiny`).

    Raises:
        TypeError: for another type.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        type_ = as_dtype(dtype)
        if type_.kind != "float":
            raise TypeError(f"finfo: got {type_}, expected a floating-point type")
        self.dtype = type_
        self.bits = 8 * type_.itemsize
        self.min, self.max, self.eps = type_.lowest, type_.largest, type_.epsilon
        self.smallest_normal = self.tiny = type_.smallest / type_.epsilon
