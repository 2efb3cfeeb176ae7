"""Products of matrices."""

from __future__ import annotations

import math

import numpy as np

from lucid.core.graph.types import Array, TensorType, array_type, as_dtype, broadcast, common_dtype, promote, show_shape
from lucid.core.sizes.dims import same
from lucid.ops.op import composite_with, primitive
from lucid.ops.tensor.tensor import Tensor, TensorLike

FEW = 48  # up to so many rows the transpose of a product is faster if the weight is stored transposed


def _matmul_rule(x: TensorType, y: TensorType) -> TensorType:
    if x.dtype.kind == "bool":
        raise TypeError(f"matmul: got {x}, expected numbers; convert it with .astype(...)")
    if not x.rank or not y.rank:
        raise ValueError(f"matmul: got {x} and {y}, expected at least 1 axis each")
    inner = y.shape[-2] if y.rank > 1 else y.shape[0]
    if not same(x.shape[-1], inner):
        raise ValueError(
            f"matmul: {show_shape(x.shape)} @ {show_shape(y.shape)}: inner sizes {x.shape[-1]} and {inner} differ"
        )
    batch = broadcast("matmul", x.shape[:-2], y.shape[:-2])
    return x.with_shape((*batch, *x.shape[-2:-1], *(y.shape[-1:] if y.rank > 1 else ())))


def _matmul_kernel(x: Array, y: Array) -> Array:
    if x.dtype.itemsize == 2:  # half precision has no BLAS: multiply in float32 and round once
        return _matmul_kernel(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
    if x.ndim < 2 or y.ndim != 2:
        return np.asarray(np.matmul(x, y))
    # NumPy computes a product for each matrix of x and rearranges y for each: here they are one product.
    rows = x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    if 1 < len(rows) <= FEW and y.flags.f_contiguous and y.dtype.kind == "f":
        product = np.ascontiguousarray(np.matmul(y.T, rows.T).T)
    else:
        product = np.matmul(rows, y)
    return product if x.ndim == 2 else product.reshape(*x.shape[:-1], y.shape[1])


@primitive(kernel=_matmul_kernel, rule=_matmul_rule, onnx="MatMul", promoted=slice(0, 2))
def matmul(x: TensorLike, y: TensorLike) -> Tensor:  # type: ignore[empty-body]
    """Matrix product over the last two axes, broadcast over the others, as ``x @ y``."""


def _linear_kernel(x: Array, weight: Array, bias: Array | None) -> Array:
    if x.dtype == weight.dtype:
        product = _matmul_kernel(x, weight.T)
    else:
        common = promote(as_dtype(x.dtype), as_dtype(weight.dtype)).numpy
        product = _matmul_kernel(x.astype(common, copy=False), weight.T.astype(common, copy=False))
    if bias is None:
        return product
    if bias.dtype == product.dtype and bias.shape == product.shape[-1:]:
        product += bias
        return product
    sum_type = common_dtype([array_type(each.dtype, each.shape) for each in (product, bias)]).numpy
    total: Array = product.astype(sum_type) + bias.astype(sum_type)
    return total


@composite_with(kernel=_linear_kernel)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias with x (..., in), weight (out, in) and bias (out), as torch stores them.

    Raises:
        ValueError: for a weight without two axes, or one that does not fit the last axis of x.
    """
    if not x.ndim or weight.ndim != 2 or not same(x.shape[-1], weight.shape[1]):
        raise ValueError(
            f"linear: input {show_shape(x.shape)} and weight {show_shape(weight.shape)}: the last size of the input "
            "must equal the second of the weight (out_features, in_features); write x @ weight for a vector"
        )
    product = x @ weight.mT
    return product if bias is None else product + bias
