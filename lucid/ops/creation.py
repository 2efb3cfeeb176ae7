"""Ops that make tensors from sizes alone."""

from __future__ import annotations

import numpy as np

from lucid._tensor import Tensor
from lucid.dims import Shape, Size
from lucid.op import function, primitive
from lucid.ops.elementwise import where
from lucid.types import Array, DType, DTypeLike, Scalar, TensorType, as_dtype, convert, float32, int64


def _full_rule(*, shape: Shape, value: Scalar, dtype: DType) -> TensorType:
    return TensorType(dtype, shape)


def _full_kernel(*, shape: tuple[int, ...], value: Scalar, dtype: DType) -> Array:
    return np.full(shape, value, dtype.numpy)


@primitive(kernel=_full_kernel, rule=_full_rule)
def full_of(*, shape: Shape, value: Scalar, dtype: DType) -> Tensor:  # type: ignore[empty-body]
    """One number everywhere."""


def full(shape: Size | tuple[Size, ...], value: Scalar, dtype: DTypeLike = float32) -> Tensor:
    """A tensor of one number everywhere; sizes may be symbolic while tracing."""
    wanted = as_dtype(dtype)
    convert(np.asarray(value), wanted, "full")  # an OverflowError, where the number does not fit
    return full_of(shape=shape if isinstance(shape, tuple) else (shape,), value=value, dtype=wanted)


def _arange_rule(*, start: Size, stop: Size) -> TensorType:
    return TensorType(int64, (stop - start,))


def _arange_kernel(*, start: int, stop: int) -> Array:
    return np.arange(start, max(start, stop), dtype=np.int64)


@primitive(kernel=_arange_kernel, rule=_arange_rule)
def arange_between(*, start: Size, stop: Size) -> Tensor:  # type: ignore[empty-body]
    """The int64 numbers from start up to, not including, stop."""


def _size_rule(*, size: Size) -> TensorType:
    return TensorType(int64, ())


def _size_kernel(*, size: int) -> Array:
    return np.asarray(size, np.int64)


@primitive(kernel=_size_kernel, rule=_size_rule)
def size_value(*, size: Size) -> Tensor:  # type: ignore[empty-body]
    """A size as an int64 number, for arithmetic with tensors."""


def _check_matrix(name: str, x: TensorType) -> None:
    if x.rank < 2:
        raise ValueError(f"{name}: got {x}, expected at least 2 axes")


def _triangle_rule(x: TensorType, *, diagonal: int = 0) -> TensorType:
    _check_matrix("tril or triu", x)
    return x


def _tril_kernel(x: Array, *, diagonal: int) -> Array:
    return np.tril(x, diagonal)


def _triu_kernel(x: Array, *, diagonal: int) -> Array:
    return np.triu(x, diagonal)


@primitive(kernel=_tril_kernel, rule=_triangle_rule)
def tril(x: Tensor, *, diagonal: int = 0) -> Tensor:  # type: ignore[empty-body]
    """Zero above a diagonal of the last two axes."""


@primitive(kernel=_triu_kernel, rule=_triangle_rule)
def triu(x: Tensor, *, diagonal: int = 0) -> Tensor:  # type: ignore[empty-body]
    """Zero below a diagonal of the last two axes."""


@function
def one_hot(x: Tensor, classes: int, dtype: DTypeLike = float32) -> Tensor:
    """1 at the index that x holds along a new last axis, 0 elsewhere."""
    if classes < 1:
        raise ValueError(f"one_hot: {classes} classes, expected 1 or more")
    hit = x.unsqueeze(-1) == arange_between(start=0, stop=classes)
    return where(hit, 1.0, 0.0).astype(dtype)
