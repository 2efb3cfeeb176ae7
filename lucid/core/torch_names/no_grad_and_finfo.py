"""`no_grad`, `inference_mode`, `finfo` and `iinfo`: names of torch that ported code uses around its computations."""

from __future__ import annotations

from typing import Self

import numpy as np

from lucid.core.graph.scope import no_gradients
from lucid.core.graph.types import DTypeLike, as_dtype
from lucid.core.process.context import holding


class no_grad(holding[bool]):  # noqa: N801  # torch's name
    """Values computed inside, in ``with`` or in a decorated function, are constants for `lucid.value_and_grad`."""

    def __init__(self) -> None:
        super().__init__(no_gradients, True)

    def _recreate_cm(self) -> Self:
        return type(self)()


inference_mode = no_grad


class iinfo:  # noqa: N801  # NumPy's and torch's name
    """The limits of a type of integers: `min` and `max`.

    Raises:
        TypeError: for another type.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        type_ = as_dtype(dtype)
        if type_.kind != "int":
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
