"""Making tensors: ``lucid.zeros(2, 3)``, ``lucid.randn(16, 10, 512)``, ``lucid.arange(n)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid import random
from lucid._tensor import Tensor
from lucid.dims import Dim, Size, as_size
from lucid.op import function
from lucid.ops.creation import arange_between
from lucid.ops.creation import full as _full
from lucid.types import DTypeLike, Scalar, as_dtype, float32, int64, show_shape


def tensor(data: Any, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor from an array (copied), nested lists or a number; Python floats become float32, integers int64."""
    return Tensor.from_array(Tensor(data, dtype).numpy().copy())


def _shape(sizes: Sequence[Size | Sequence[Size]]) -> tuple[Size, ...]:
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]
    shape = tuple(as_size("shape", size) for size in sizes)  # type: ignore[arg-type]  # one level of nesting is off
    for size in shape:
        if isinstance(size, int) and size < 0:
            raise ValueError(f"shape {show_shape(shape)}: size {size} is negative")
    return shape


@function
def full(shape: Size | Sequence[Size], value: Scalar, dtype: DTypeLike = float32) -> Tensor:
    """A tensor of one number everywhere."""
    return _full(_shape((shape,)), value, dtype)


@function
def zeros(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
    """A tensor of zeros."""
    return _full(_shape(shape), 0, dtype)


@function
def ones(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
    """A tensor of ones."""
    return _full(_shape(shape), 1, dtype)


@function
def empty(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
    """A tensor whose elements are yet to be set; zeros, so that nothing depends on what memory held."""
    return zeros(*shape, dtype=dtype)


@function
def arange(start: Size, stop: Size | None = None, step: int = 1, dtype: DTypeLike = int64) -> Tensor:
    """The numbers from start (0 by default) up to, not including, stop; sizes may be symbolic while tracing."""
    if stop is None:
        start, stop = 0, start
    for name, size in (("start", start), ("stop", stop)):
        if isinstance(size, bool) or not isinstance(size, (int, np.integer, Dim)):
            raise TypeError(f"arange: {name} is {size!r}, expected a whole number or a size")
    if isinstance(step, bool) or not isinstance(step, int) or step == 0:
        raise ValueError(f"arange: step is {step!r}, expected a whole number other than 0")
    if step == 1:
        return arange_between(start=start, stop=stop).astype(dtype)
    count = -(-(stop - start) // step)
    return (arange_between(start=0, stop=count) * step + start).astype(dtype)


@function
def eye(rows: int, columns: int | None = None, dtype: DTypeLike = float32) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    return Tensor.from_array(np.eye(rows, columns, dtype=as_dtype(dtype).numpy))


@function
def randn(*shape: int | Sequence[int], dtype: DTypeLike = float32) -> Tensor:
    """Standard normal random numbers; see `lucid.manual_seed`."""
    return _drawn(random.generator().standard_normal(_shape(shape)), dtype)


@function
def rand(*shape: int | Sequence[int], dtype: DTypeLike = float32) -> Tensor:
    """Uniform random numbers from 0 to 1; see `lucid.manual_seed`."""
    return _drawn(random.generator().random(_shape(shape)), dtype)


def _drawn(values: Any, dtype: DTypeLike) -> Tensor:
    return Tensor.from_array(np.asarray(values, as_dtype(dtype).numpy))
