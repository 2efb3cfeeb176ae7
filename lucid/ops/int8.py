"""Products of 8-bit weights with 8-bit inputs, and rows of 8-bit tables.

A weight (N, K) is stored as signed bytes with a scale for each row: weight = scales * codes. An input is rounded to
unsigned bytes in one of three ways, so that the products are integer products, for which onnxruntime has fast kernels.

A traced model keeps the bytes: these ops are never computed while tracing. The result for NaN and infinity, which have
no codes, is undefined: onnxruntime ignores NaN.
"""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import int8, show_shape, uint8
from lucid.core.sizes.dims import Shape, same
from lucid.ops.elementwise import at_least_float32, clip, maximum, round_, where
from lucid.ops.indexing import take
from lucid.ops.linalg import matmul
from lucid.ops.neural import check_rows
from lucid.ops.op import composite_with
from lucid.ops.reduction import max_, min_
from lucid.ops.shaping import concat
from lucid.ops.tensor.tensor import Tensor
from lucid.quantization.int8 import LEVELS

TINY = float(np.finfo(np.float32).tiny)  # the least scale, used if all numbers of a row are equal


@composite_with(folded=False)
def int8_linear_dynamic(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x @ (scales * weight).T, with x rounded to 256 numbers between its minimum and its maximum.

    As in ONNX DynamicQuantizeLinear, 0 is one of the 256. The result of a row depends on the other rows of its batch.
    Half precision is computed in float32.

    Args:
        x: (..., K).
        weight: (N, K) int8.
        scales: (N,).

    Raises:
        TypeError: for an input or scales that are not floating-point, and a weight that is not int8.
        ValueError: for shapes that do not fit.
    """
    wide, scales = _operands("int8_linear_dynamic", x, weight, scales)
    numbers = concat([wide.reshape(-1), Tensor([0.0], wide.dtype)])  # with the 0, so that an empty input has some
    low, high = min_(numbers), max_(numbers)
    step = (high - low) / LEVELS
    step = where(step == 0, 1.0, step)
    zero = clip(round_(-low / step), 0, LEVELS)
    return _product(_codes(wide, step, zero), weight, step * scales).astype(x.dtype)


@composite_with(folded=False)
def int8_linear_rows(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x @ (scales * weight).T, with each row of x rounded to 256 numbers between its minimum and its maximum.

    With codes c, each row is x = low + step * c, and the product is step * (c @ weight.T) + low * sums, in units of
    `scales`, with the sums of the weight's rows. The result of a row does not depend on the other rows.

    Args and errors as for `int8_linear_dynamic`.
    """
    wide, scales = _operands("int8_linear_rows", x, weight, scales)
    low, step = row_ranges(wide)
    codes = clip(round_((wide - low) / step), 0, LEVELS)
    return (_product(codes, weight, scales) * step + low * row_sums(weight, scales)).astype(x.dtype)


@composite_with(folded=False)
def int8_linear_static(
    x: Tensor, weight: Tensor, scales: Tensor, input_scale: Tensor, input_zero_point: Tensor
) -> Tensor:
    """x @ (scales * weight).T, with x rounded to the numbers input_scale * (code - input_zero_point).

    As in ONNX QuantizeLinear, numbers beyond the codes 0 to 255 become the nearest one.

    Args:
        x, weight, scales: as for `int8_linear_dynamic`.
        input_scale: () floating-point.
        input_zero_point: () uint8.

    Raises:
        TypeError: for an input or scales that are not floating-point, a weight that is not int8, and a zero point that
            is not uint8.
        ValueError: for shapes that do not fit.
    """
    what = "int8_linear_static"
    wide, scales = _operands(what, x, weight, scales)
    if input_scale.dtype.kind != "float" or input_zero_point.dtype != uint8:
        raise TypeError(
            f"{what}: the scale and zero point of the input are {input_scale.spec} and {input_zero_point.spec}, "
            "expected a floating-point number and uint8"
        )
    if input_scale.ndim or input_zero_point.ndim:
        shapes = f"{show_shape(input_scale.shape)} and {show_shape(input_zero_point.shape)}"
        raise ValueError(f"{what}: the scale and zero point of the input are {shapes}, expected one number each")
    step, zero = input_scale.astype(wide.dtype), input_zero_point.astype(wide.dtype)
    return _product(_codes(wide, step, zero), weight, step * scales).astype(x.dtype)


@composite_with(folded=False)
def int8_embedding(indices: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Rows of the table scales * weight by index: (...) integers to (..., width), in the type of `scales`.

    Args:
        indices: (...) integers.
        weight: (entries, width) int8.
        scales: (entries,).

    Raises:
        IndexError: eagerly, for an index outside the table.
        TypeError: for scales that are not floating-point, and a table that is not int8.
        ValueError: for shapes that do not fit.
    """
    _check("int8_embedding", weight, scales)
    check_rows("int8_embedding", indices, weight)
    factors = at_least_float32(take(scales, indices)).unsqueeze(-1)
    return (take(weight, indices).astype(factors.dtype) * factors).astype(scales.dtype)


def row_ranges(x: Tensor) -> tuple[Tensor, Tensor]:
    """The minimum of each row (..., 1), and the step between codes (..., 1)."""
    low = min_(x, axis=(-1,), keepdims=True)
    return low, maximum((max_(x, axis=(-1,), keepdims=True) - low) / LEVELS, TINY)


def row_sums(weight: Tensor, scales: Tensor) -> Tensor:
    """The sums (N,) of the rows of scales * weight."""
    return weight.astype(scales.dtype).sum(axis=-1) * scales


def _codes(x: Tensor, step: Tensor, zero: Tensor) -> Tensor:
    """Codes minus their zero point."""
    return clip(round_(x / step) + zero, 0, LEVELS) - zero


def _product(codes: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """An integer product in floating-point: long sums are rounded as in any product."""
    return matmul(codes, weight.astype(codes.dtype).mT) * scales


def _operands(what: str, x: Tensor, weight: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """The input and the scales, checked and in the type of the computation."""
    if x.dtype.kind != "float":
        raise TypeError(f"{what}: the input is {x.spec}, expected floating-point numbers")
    _check(what, weight, scales)
    if not x.ndim or not same(x.shape[-1], weight.shape[1]):
        raise ValueError(
            f"{what}: the input is {show_shape(x.shape)} and the weight {show_shape(weight.shape)}, expected the same "
            "last axis"
        )
    wide = at_least_float32(x)
    return wide, scales.astype(wide.dtype)


def _check(what: str, weight: Tensor, scales: Tensor) -> None:
    if weight.dtype != int8:
        raise TypeError(f"{what}: the weight is {weight.spec}, expected int8")
    if scales.dtype.kind != "float":
        raise TypeError(f"{what}: the scales are {scales.spec}, expected floating-point numbers")
    rows: Shape = weight.shape[:1]
    if weight.ndim != 2 or scales.ndim != 1 or not same(scales.shape[0], rows[0]):
        raise ValueError(
            f"{what}: the weight is {show_shape(weight.shape)} and the scales are {show_shape(scales.shape)}, expected "
            "(N, K) and (N,)"
        )


ROUNDING = (int8_linear_dynamic, int8_linear_rows, int8_linear_static)  # the ops that round their first input
