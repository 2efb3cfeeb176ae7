"""Reductions over axes. `axis` is a tuple of axes, or None for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from lucid.core.graph.types import Array, DType, TensorType, as_dtype, bool_, float32, int64, show_shape, uint8
from lucid.core.sizes.dims import Size, same
from lucid.ops.op import Op, primitive
from lucid.ops.shaping import each_axis, normalize_axis
from lucid.ops.tensor.tensor import Tensor

Reduction: TypeAlias = Op[..., Tensor]


def _reduced(where: str, x: TensorType, axis: tuple[int, ...] | None, keepdims: bool) -> tuple[Size, ...]:
    if axis is not None and not isinstance(axis, tuple):
        raise TypeError(f"{where}: axis is {axis!r}, expected a tuple of axes, or None for all of them")
    axes = range(x.rank) if axis is None else [normalize_axis(where, a, x.rank) for a in axis]
    if len(set(axes)) != len(axes):
        raise ValueError(f"{where}: axis {axis} names an axis twice")
    return tuple(1 if i in axes else size for i, size in enumerate(x.shape) if keepdims or i not in axes)


def _reduction(
    name: str,
    kernel: Callable[..., Any],
    kinds: tuple[str, ...],
    *,
    empty: bool = True,
    result: Callable[[DType], DType] = lambda dtype: dtype,
    by_kind: Mapping[str, Callable[..., Tensor]] | None = None,
) -> Reduction:
    """`empty`: whether the reduction of no elements has a value. `result`: the element type of the result."""

    def rule(x: TensorType, *, axis: tuple[int, ...] | None, keepdims: bool) -> TensorType:
        if x.dtype.kind not in kinds:
            raise TypeError(f"{name}: got {x}, expected a tensor of {' or '.join(kinds)}; convert it with .astype(...)")
        shape = _reduced(name, x, axis, keepdims)
        reduced = x.shape if axis is None else [x.shape[a] for a in axis]
        if not empty and any(same(size, 0) for size in reduced):
            raise ValueError(f"{name}: {show_shape(x.shape)} has no elements along axis {axis}, expected at least one")
        return TensorType(result(x.dtype), shape)

    def compute(x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
        kind = result(as_dtype(x.dtype)).numpy
        # Sums of half-precision numbers are accumulated in float32, as onnxruntime and torch do.
        wide = x.astype(np.float32 if x.dtype.itemsize == 2 else kind, copy=False)
        return np.asarray(kernel(wide, axis=axis, keepdims=keepdims)).astype(kind, copy=False)

    def call(x: Tensor, *, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor: ...  # type: ignore[empty-body]

    widened = "; that of integers and booleans is int64" if result is _counted else ""
    call.__doc__ = f"The {name} over axes, all of them by default{widened}."
    return Op(call, name=name, kernel=compute, rule=rule, by_kind=by_kind)


_np_sum: Callable[..., Any] = np.sum  # its overloads require a literal keepdims


def _mean(x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
    """np.mean warns if there are no elements; here the result is NaN, as on every backend."""
    count = math.prod(x.shape if axis is None else (x.shape[a] for a in axis))
    return np.divide(_np_sum(x, axis=axis, keepdims=keepdims), count, dtype=x.dtype)


def _counted(dtype: DType) -> DType:
    """Integers and booleans are added and multiplied as int64, as torch and NumPy do."""
    return dtype if dtype.kind == "float" else int64


def _of_truths(op: Reduction, x: Tensor, **attributes: Any) -> Tensor:
    """Whether numbers are not 0; the result of uint8 is uint8, as in torch."""
    found = op(x.astype(bool_), **attributes)
    return found.astype(uint8) if x.dtype == uint8 else found


def _of_codes(op: Reduction, x: Tensor, **attributes: Any) -> Tensor:
    """Of booleans as 0 and 1."""
    return op(x.astype(uint8), **attributes).astype(bool_)


_NUMBERS = ("int", "float")
_TRUTHS = {"int": _of_truths, "float": _of_truths}
_CODES = {"bool": _of_codes}

sum_ = _reduction("sum", np.sum, ("bool", *_NUMBERS), result=_counted)
mean = _reduction("mean", _mean, ("float",))
max_ = _reduction("max", np.max, _NUMBERS, empty=False, by_kind=_CODES)
min_ = _reduction("min", np.min, _NUMBERS, empty=False, by_kind=_CODES)
prod = _reduction("prod", np.prod, ("bool", *_NUMBERS), result=_counted)
any_ = _reduction("any", np.any, ("bool",), by_kind=_TRUTHS)
all_ = _reduction("all", np.all, ("bool",), by_kind=_TRUTHS)


def _argmax_rule(x: TensorType, *, axis: int, keepdims: bool) -> TensorType:
    if same(x.shape[normalize_axis("argmax", axis, x.rank)], 0):
        raise ValueError(f"argmax: {show_shape(x.shape)} has no elements along axis {axis}, expected at least one")
    return TensorType(int64, _reduced("argmax", x, (axis,), keepdims))


def _argmax_kernel(x: Array, *, axis: int, keepdims: bool) -> Array:
    found = np.asarray(np.argmax(x, axis=axis), np.int64)
    return np.expand_dims(found, axis) if keepdims else found


@primitive(kernel=_argmax_kernel, rule=_argmax_rule)
def argmax(x: Tensor, *, axis: int = -1, keepdims: bool = False) -> Tensor:  # type: ignore[empty-body]
    """The index of the first maximum along an axis."""


def _cumsum_rule(x: TensorType, *, axis: int) -> TensorType:
    normalize_axis("cumsum", axis, x.rank)
    return x.with_dtype(_counted(x.dtype))


def _cumsum_kernel(x: Array, *, axis: int) -> Array:
    # Added one by one, not pairwise, and therefore accumulated in a wider type, as in torch.
    wide = {"float16": np.float32, "bfloat16": np.float32, "float32": np.float64, "float64": np.float64}
    found = np.cumsum(x, axis=axis, dtype=wide.get(x.dtype.name, np.int64))
    return found.astype(_counted(as_dtype(x.dtype)).numpy, copy=False)


@primitive(kernel=_cumsum_kernel, rule=_cumsum_rule)
def cumsum(x: Tensor, *, axis: int) -> Tensor:  # type: ignore[empty-body]
    """Running sum along an axis; that of integers and booleans is int64."""


def variance(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """Mean squared distance from the mean, with the axes kept at size 1. Half precision is computed in float32."""
    axis = each_axis(axis)
    wide = x.astype(float32) if x.dtype.itemsize == 2 else x
    centred = wide - mean(wide, axis=axis, keepdims=True)
    return mean(centred * centred, axis=axis, keepdims=True).astype(x.dtype)
