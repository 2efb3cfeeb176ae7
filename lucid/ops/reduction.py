"""Reductions over axes: sums, means, extremes, variances and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from lucid.core.graph.scope import is_differentiated
from lucid.core.graph.types import Array, DType, TensorType, as_dtype, bool_, float32, float64, int64, show_shape, uint8
from lucid.core.sizes.dims import Size, product, same
from lucid.core.torch_names.argument_names import torch_names
from lucid.ops.elementwise import (
    abs_,
    at_least_float32,
    check_kind,
    clip,
    exp,
    isfinite,
    log,
    maximum,
    pow_,
    sqrt,
    stop_gradient,
    where,
)
from lucid.ops.op import Op, composite, function, primitive
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.shaping import each_axis, normalize_axis, squeeze
from lucid.ops.tensor.tensor import Axes, Tensor, TensorLike

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
        check_kind(name, x, kinds)
        shape = _reduced(name, x, axis, keepdims)
        reduced = x.shape if axis is None else [x.shape[a] for a in axis]
        if not empty and any(same(size, 0) for size in reduced):
            raise ValueError(f"{name}: {show_shape(x.shape)} has no elements along axis {axis}, expected at least one")
        return TensorType(result(x.dtype), shape)

    def compute(x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
        numpy_dtype = result(as_dtype(x.dtype)).numpy
        # Sums of half-precision numbers are accumulated in float32, as onnxruntime and torch do.
        wide = x.astype(np.float32 if x.dtype.itemsize == 2 else numpy_dtype, copy=False)
        return np.asarray(kernel(wide, axis=axis, keepdims=keepdims)).astype(numpy_dtype, copy=False)

    def call(x: Tensor, *, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor: ...  # type: ignore[empty-body]

    widened = "; that of integers and booleans is int64" if result is _counted else ""
    call.__doc__ = f"The {name} over axes, all of them by default{widened}."
    return Op(call, name=name, kernel=compute, rule=rule, by_kind=by_kind)


# What np.sum, np.max and the like call: they take 1.4 µs to get there, a fifth of a small call.
_add: Callable[..., Any] = np.add.reduce  # its overloads require a literal keepdims


def _mean(x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
    """The mean; NaN without elements, as on every backend (np.mean would warn)."""
    count = math.prod(x.shape if axis is None else (x.shape[a] for a in axis))
    return np.divide(_add(x, axis=axis, keepdims=keepdims), count, dtype=x.dtype)


def _counted(dtype: DType) -> DType:
    """Integers and booleans are added and multiplied as int64, as torch and NumPy do."""
    return dtype if dtype.kind == "float" else int64


def _of_truths(op: Reduction, x: Tensor, **attributes: Any) -> Tensor:
    """Whether numbers are not 0; the result of uint8 is uint8, as in torch."""
    truths = op(x.astype(bool_), **attributes)
    return truths.astype(uint8) if x.dtype == uint8 else truths


def _of_codes(op: Reduction, x: Tensor, **attributes: Any) -> Tensor:
    """Reduce booleans as 0 and 1."""
    return op(x.astype(uint8), **attributes).astype(bool_)


_NUMBERS = ("int", "float")
_TRUTHS = {"int": _of_truths, "float": _of_truths}
_CODES = {"bool": _of_codes}

sum_ = _reduction("sum", _add, ("bool", *_NUMBERS), result=_counted)
mean = _reduction("mean", _mean, ("float",))
max_ = _reduction("max", np.maximum.reduce, _NUMBERS, empty=False, by_kind=_CODES)
min_ = _reduction("min", np.minimum.reduce, _NUMBERS, empty=False, by_kind=_CODES)
prod = _reduction("prod", np.multiply.reduce, ("bool", *_NUMBERS), result=_counted)
any_ = _reduction("any", np.logical_or.reduce, ("bool",), by_kind=_TRUTHS)
all_ = _reduction("all", np.logical_and.reduce, ("bool",), by_kind=_TRUTHS)


def _argmax_rule(x: TensorType, *, axis: int, keepdims: bool) -> TensorType:
    if same(x.shape[normalize_axis("argmax", axis, x.rank)], 0):
        raise ValueError(f"argmax: {show_shape(x.shape)} has no elements along axis {axis}, expected at least one")
    return TensorType(int64, _reduced("argmax", x, (axis,), keepdims))


def _argmax_kernel(x: Array, *, axis: int, keepdims: bool) -> Array:
    index = np.asarray(np.argmax(x, axis=axis), np.int64)
    return np.expand_dims(index, axis) if keepdims else index


@primitive(kernel=_argmax_kernel, rule=_argmax_rule)
def argmax(x: Tensor, *, axis: int = -1, keepdims: bool = False) -> Tensor:  # type: ignore[empty-body]
    """The index of the first maximum along an axis."""


def _cumsum_rule(x: TensorType, *, axis: int) -> TensorType:
    normalize_axis("cumsum", axis, x.rank)
    return x.with_dtype(_counted(x.dtype))


def _cumsum_kernel(x: Array, *, axis: int) -> Array:
    # Added one by one, not pairwise, and therefore accumulated in a wider type, as in torch.
    wide = {"float16": np.float32, "bfloat16": np.float32, "float32": np.float64, "float64": np.float64}
    sums = np.cumsum(x, axis=axis, dtype=wide.get(x.dtype.name, np.int64))
    return sums.astype(_counted(as_dtype(x.dtype)).numpy, copy=False)


@primitive(kernel=_cumsum_kernel, rule=_cumsum_rule)
def cumsum(x: Tensor, *, axis: int) -> Tensor:  # type: ignore[empty-body]
    """Running sum along an axis; that of integers and booleans is int64."""


@composite
def sum_of_squares(*tensors: TensorLike) -> Tensor:
    """The sum of the squares of all numbers of one or more floating-point tensors, ()."""
    numbers = [as_tensor("sum_of_squares", x) for x in tensors]
    for x in numbers:
        check_kind("sum_of_squares", x.spec, ("float",))
    squares = [sum_(x * x) for x in numbers]
    return sum(squares[1:], start=squares[0])


def variance(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """Mean squared distance from the mean, with the axes kept at size 1. Half precision is computed in float32."""
    axis = each_axis(axis)
    wide = at_least_float32(x)
    centred = wide - mean(wide, axis=axis, keepdims=True)
    return mean(centred * centred, axis=axis, keepdims=True).astype(x.dtype)


def _root(powers: Tensor, power: float = 2) -> Tensor:
    """powers ** (1 / power), for a sum of squares or other powers; the gradient of a sum of 0 is 0, as in torch."""
    root = sqrt(powers) if power == 2 else pow_(powers, 1 / power)
    return where(powers > 0, root, stop_gradient(powers)) if is_differentiated() else root


def _every(where: str, x: Tensor, axis: Axes) -> tuple[int, ...]:
    chosen = range(x.ndim) if axis is None else each_axis(axis)
    return tuple(normalize_axis(where, each, x.ndim) for each in chosen)


@function
def var(x: Tensor, axis: Axes = None, correction: float = 1, keepdims: bool = False) -> Tensor:
    """Squared distances from the mean, summed over axes and divided by their number less `correction`.

    Infinite or NaN where there are no more elements than that. Half precision is computed in float32.
    """
    axes = _every("var", x, axis)
    wide = at_least_float32(x)
    centred = wide - mean(wide, axis=axes, keepdims=True)
    count = as_tensor("var", product(x.shape[i] for i in axes)).astype(wide.dtype)
    return (sum_(centred * centred, axis=axes, keepdims=keepdims) / maximum(count - correction, 0)).astype(x.dtype)


@function
def std(x: Tensor, axis: Axes = None, correction: float = 1, keepdims: bool = False) -> Tensor:
    """The root of the variance, also where the variance or the sum of the numbers overflows."""
    axes = _every("std", x, axis)
    wide = at_least_float32(x)
    count = as_tensor("std", product(x.shape[i] for i in axes)).astype(wide.dtype)
    divisor = sqrt(maximum(count - correction, 0))

    def deviation(numbers: Tensor) -> Tensor:
        centred = numbers - mean(numbers, axis=axes, keepdims=True)
        return _root(sum_(centred * centred, axis=axes, keepdims=keepdims)) / divisor

    return _scaled(deviation, wide, axes, keepdims).astype(x.dtype)


@function
def logsumexp(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of exp(x) over axes, without overflow; of infinities alone it is that infinity.

    Integers are computed in float32. A number without axes is its own; that of no elements is -infinity.
    """
    x = x if x.dtype.kind == "float" else x.astype(float32)
    if not x.ndim:
        for each in () if axis is None else each_axis(axis):
            normalize_axis("logsumexp", each, 1)
        return x
    axes = _every("logsumexp", x, axis)
    if any(same(x.shape[each], 0) for each in axes):
        return log(sum_(exp(x), axis=axes, keepdims=keepdims))
    top = max_(x, axis=axes, keepdims=True)
    top = where(isfinite(top), top, 0)
    total = log(sum_(exp(x - top), axis=axes, keepdims=True)) + top
    return total if keepdims else squeeze(total, axes)


@function
def norm(x: Tensor, p: Any = 2, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The p-norm over axes, all of them by default: (sum of |x|^p)^(1/p), or the largest or least |x| for p infinite.

    Half precision is computed in float32. The 2-norm is right where the squares overflow.

    Raises:
        TypeError: for anything but a floating-point tensor.
        ValueError: for a norm of matrices, such as "nuc".
    """
    check_kind("norm", x.spec, ("float",))
    if isinstance(p, str) and p != "fro":
        raise ValueError(f"norm: p is {p!r}, expected a number or 'fro'")
    power = 2.0 if p in ("fro", None) else float(p)
    if power != 2:
        return norm_by_definition(x, power, axis, keepdims)
    axes = _every("norm", x, axis)

    def root(numbers: Tensor) -> Tensor:
        return _root(sum_(numbers * numbers, axis=axes, keepdims=keepdims))

    return _scaled(root, at_least_float32(x), axes, keepdims).astype(x.dtype)


def _scaled(root: Callable[[Tensor], Tensor], x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Apply a function that squares its numbers and is proportional to them, without overflow.

    Numbers whose squares may overflow are first multiplied by a power of two, and the result is divided by it, which
    rounds nothing.
    """
    if not x.is_traced:
        result = root(x)
        if np.isfinite(result.numpy()).all():
            return result
    large, factor = (2.0**500, 2.0**-600) if x.dtype == float64 else (2.0**62, 2.0**-80)
    one, less = (as_tensor("norm", number, x.dtype) for number in (1.0, factor))
    factors = where(sum_(abs_(x), axis=axes, keepdims=True) > large, less, one)
    return root(x * factors) / (factors if keepdims else squeeze(factors, axes))


def norm_by_definition(x: Tensor, power: float, axis: Axes, keepdims: bool) -> Tensor:
    """The p-norm over axes by its definition: the 2-norm is infinite where the squares overflow."""
    axes, size = _every("norm", x, axis), at_least_float32(x)
    size = size if power == 2 else abs_(size)
    if math.isinf(power):
        length = (max_ if power > 0 else min_)(size, axis=axes, keepdims=keepdims)
    elif power == 0:
        length = sum_((size != 0).astype(size.dtype), axis=axes, keepdims=keepdims)
    elif power == 1:
        length = sum_(size, axis=axes, keepdims=keepdims)
    elif power == 2:
        size = at_least_float32(x) if is_differentiated() else size  # the second derivative of |x|**2 at 0 is 2
        length = _root(sum_(size * size, axis=axes, keepdims=keepdims))
    else:
        powers = _root(size, 1 / power) if 0 < power < 1 else pow_(size, power)
        length = _root(sum_(powers, axis=axes, keepdims=keepdims), power)
    return length.astype(x.dtype)


@torch_names
def normalize(x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm along an axis, or by `eps` where that is greater."""
    return x / clip(norm_by_definition(x, float(p), axis, keepdims=True), eps)
