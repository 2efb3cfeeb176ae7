"""Convolution, its transpose, and pooling over any number of spatial axes.

Inputs are (N, C, *spatial). Attributes carry ONNX's names and order: `pads` lists the padding before each spatial axis,
then the padding after each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lucid.core.graph.types import Array, TensorType, same_shape, show_shape
from lucid.core.sizes.dims import Shape, Size, same
from lucid.ops.creation import arange_op, size_op
from lucid.ops.elementwise import at_least_float32, minimum, where
from lucid.ops.indexing import take_op
from lucid.ops.kernels.convolution import depthwise
from lucid.ops.kernels.pieces import widened
from lucid.ops.op import composite, primitive
from lucid.ops.reduction import mean, sum_
from lucid.ops.shaping import permute, reshape, unsqueeze
from lucid.ops.tensor.tensor import Tensor

Ints = tuple[int, ...]
WINDOWED = ("conv", "max_pool", "average_pool")  # the ops that refuse axes without a window


# convolution ------------------------------------------------------------------------------------------------------


def _conv_rule(
    x: TensorType,
    weight: TensorType,
    bias: TensorType | None,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    group: int,
) -> TensorType:
    message = _checked("conv", "out, C / group", x, weight, bias, weight.shape[0] if weight.rank else 0)
    if group < 1 or not same(weight.shape[1] * group, x.shape[1]) or not same(weight.shape[0] % group, 0):
        raise ValueError(
            f"{message}: with group {group}, expected an input of {weight.shape[1] * group} channels "
            f"and a number of output channels divisible by {group}"
        )
    kernel = tuple(int(size) for size in weight.shape[2:])
    return x.with_shape((x.shape[0], weight.shape[0], *_windowed("conv", x, kernel, strides, pads, dilations)))


def _checked(name: str, layout: str, x: TensorType, weight: TensorType, bias: TensorType | None, channels: Size) -> str:
    """Check the axes and types of the operands, and the bias; gives the beginning of further messages."""
    what = f"{name}: input {show_shape(x.shape)}, weight {show_shape(weight.shape)}"
    if x.rank < 3 or weight.rank != x.rank:
        raise ValueError(f"{what}: expected (N, C, *spatial) and ({layout}, *kernel) with equally many axes")
    if x.dtype.kind != "float" or weight.dtype != x.dtype or (bias is not None and bias.dtype != x.dtype):
        raise TypeError(f"{name}: got {x} and {weight}, expected one floating-point type; use .astype(...)")
    if bias is not None and not same_shape(bias.shape, (channels,)):
        raise ValueError(f"{what}: the bias has shape {show_shape(bias.shape)}, expected [{channels}]")
    return what


def _with_bias(result: Array, bias: Array | None, dtype: np.dtype[Any]) -> Array:
    """Results (N, out, *spatial) and a bias (out), in an element type."""
    if bias is not None:
        result = result + bias.astype(result.dtype).reshape(-1, *[1] * (result.ndim - 2))
    return result.astype(dtype, copy=False)


def _windowed(name: str, x: TensorType, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints) -> list[Size]:
    """The number of windows along each spatial axis."""
    axes = x.rank - 2
    if not len(kernel) == len(strides) == len(dilations) == axes or len(pads) != 2 * axes:
        raise ValueError(
            f"{name}: input {show_shape(x.shape)} has {axes} spatial axes; kernel {kernel}, strides {strides} and "
            f"dilations {dilations} need one number per axis, pads {pads} two"
        )
    if min(*kernel, *strides, *dilations) < 1 or min(pads) < 0:
        raise ValueError(
            f"{name}: kernel {kernel}, strides {strides} and dilations {dilations} must be 1 or more, "
            f"pads {pads} 0 or more"
        )
    spans = _spans(name, x.shape, kernel, pads, dilations)
    return [(x.shape[2 + i] + pads[i] + pads[axes + i] - spans[i]) // strides[i] + 1 for i in range(axes)]


def _spans(name: str, shape: Shape, kernel: Ints, pads: Ints, dilations: Ints) -> Ints:
    """The elements that the kernel spans along each spatial axis; the axis must have as many."""
    axes = len(kernel)
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    for axis, span in enumerate(spans):
        size = shape[2 + axis] + pads[axis] + pads[axes + axis]
        if isinstance(size, int) and size < span:
            raise ValueError(
                f"{name}: input {show_shape(shape)}: axis {2 + axis} has size {size} with its padding, "
                f"less than the {span} that the kernel spans"
            )
    return spans


def _windows(name: str, x: Array, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints, fill: float) -> Array:
    """A view of all windows: (N, C, *windows, *kernel)."""
    axes = x.ndim - 2
    spans = _spans(name, x.shape, kernel, pads, dilations)  # for a traced graph, whose sizes are known only here
    view = sliding_window_view(_padded(x, pads, fill), spans, axis=tuple(range(2, 2 + axes)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    windows: Array = view[(slice(None), slice(None), *steps)]
    return windows


def _padded(x: Array, pads: Ints, fill: float) -> Array:
    if not any(pads):
        return x
    axes = x.ndim - 2
    borders = [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)]
    return np.pad(x, borders, constant_values=np.asarray(fill, x.dtype))


def _conv_kernel(
    x: Array, weight: Array, bias: Array | None, *, strides: Ints, pads: Ints, dilations: Ints, group: int
) -> Array:
    dtype, (n, c), kernel = x.dtype, x.shape[:2], weight.shape[2:]
    x, weight = widened(x), widened(weight)  # as in matmul: multiply in float32 and round once
    axes = len(kernel)
    if group == c == weight.shape[0] and max(strides) == 1:
        padded = _padded(x, pads, 0.0)
        _spans("conv", x.shape, kernel, pads, dilations)
        return _with_bias(depthwise(padded, weight.reshape(c, *kernel), dilations), bias, dtype)
    windows = _windows("conv", x, kernel, strides, pads, dilations, 0.0)
    out = windows.shape[2 : 2 + axes]
    # One column per window, so that a convolution is one matrix product per group.
    columns = windows.transpose(0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    depth = c // group * math.prod(kernel)
    columns = columns.reshape(n, group, depth, math.prod(out))
    result = np.matmul(weight.reshape(group, weight.shape[0] // group, depth), columns)
    return _with_bias(result.reshape(n, weight.shape[0], *out), bias, dtype)


@primitive(kernel=_conv_kernel, rule=_conv_rule, onnx="Conv")
def conv(  # type: ignore[empty-body]
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    group: int = 1,
) -> Tensor:
    """Cross-correlation: x (N, C, *spatial) with weight (out, C / group, *kernel) to (N, out, *windows)."""


# pooling ----------------------------------------------------------------------------------------------------------


def _check_pool(name: str, x: TensorType, kernel_shape: Ints, pads: Ints) -> None:
    if x.rank < 3 or x.dtype.kind != "float":
        raise TypeError(f"{name}: got {x}, expected a floating-point tensor (N, C, *spatial)")
    if any(pad >= size for pad, size in zip(pads, (*kernel_shape, *kernel_shape), strict=False)):
        raise ValueError(f"{name}: pads {pads} must be smaller than the kernel {kernel_shape}")


def _max_pool_rule(x: TensorType, *, kernel_shape: Ints, strides: Ints, pads: Ints, dilations: Ints) -> TensorType:
    _check_pool("max_pool", x, kernel_shape, pads)
    return x.with_shape((*x.shape[:2], *_windowed("max_pool", x, kernel_shape, strides, pads, dilations)))


def _max_pool_kernel(x: Array, *, kernel_shape: Ints, strides: Ints, pads: Ints, dilations: Ints) -> Array:
    windows = _windows("max_pool", x, kernel_shape, strides, pads, dilations, -np.inf)
    return np.asarray(windows.max(tuple(range(-len(kernel_shape), 0))))


@primitive(kernel=_max_pool_kernel, rule=_max_pool_rule, onnx="MaxPool")
def max_pool(  # type: ignore[empty-body]
    x: Tensor, *, kernel_shape: Ints, strides: Ints, pads: Ints, dilations: Ints
) -> Tensor:
    """The maximum of each window of (N, C, *spatial); padding counts as -inf."""


def _average_pool_rule(
    x: TensorType, *, kernel_shape: Ints, strides: Ints, pads: Ints, count_include_pad: int
) -> TensorType:
    _check_pool("average_pool", x, kernel_shape, pads)
    dense = (1,) * len(kernel_shape)
    return x.with_shape((*x.shape[:2], *_windowed("average_pool", x, kernel_shape, strides, pads, dense)))


def _average_pool_kernel(x: Array, *, kernel_shape: Ints, strides: Ints, pads: Ints, count_include_pad: int) -> Array:
    dense, axes = (1,) * len(kernel_shape), tuple(range(-len(kernel_shape), 0))
    wide = widened(x)
    total = _windows("average_pool", wide, kernel_shape, strides, pads, dense, 0.0).sum(axes)
    if count_include_pad:
        return np.asarray(total / math.prod(kernel_shape)).astype(x.dtype)
    ones = np.ones((1, 1, *x.shape[2:]), wide.dtype)
    counts = _windows("average_pool", ones, kernel_shape, strides, pads, dense, 0.0).sum(axes)
    return np.asarray(total / counts).astype(x.dtype)


@primitive(kernel=_average_pool_kernel, rule=_average_pool_rule, onnx="AveragePool")
def average_pool(  # type: ignore[empty-body]
    x: Tensor, *, kernel_shape: Ints, strides: Ints, pads: Ints, count_include_pad: int = 1
) -> Tensor:
    """The mean of each window of (N, C, *spatial); `count_include_pad`: whether padding counts, as zeros."""


@composite
def adaptive_average_pool(x: Tensor, *, output_size: Shape) -> Tensor:
    """Means over windows that divide each spatial axis as evenly as possible into the given number of cells.

    Cell i of n covers the elements from floor(i * size / n) up to, but not including, ceil((i + 1) * size / n).

    Raises:
        ValueError: unless there is one positive output size for each spatial axis.
    """
    if x.ndim != 2 + len(output_size) or any(isinstance(cells, int) and cells < 1 for cells in output_size):
        raise ValueError(
            f"adaptive_average_pool: input {show_shape(x.shape)}, expected (N, C, *spatial) with a positive output "
            f"size for each spatial axis, got {output_size}"
        )
    uneven = []
    if whole := tuple(axis for axis, cells in enumerate(output_size, start=2) if same(cells, 1)):
        x = mean(x, axis=whole, keepdims=True)
    for axis, cells in enumerate(output_size, start=2):
        if not same(x.shape[axis] % cells, 0):
            uneven.append(axis)
        elif not same(x.shape[axis], cells):
            divided = reshape(x, (*x.shape[:axis], cells, x.shape[axis] // cells, *x.shape[axis + 1 :]))
            x = mean(divided, axis=(axis + 1,), keepdims=False)
    # Axes whose elements are gathered come first, so that each element gathered is a long contiguous copy.
    order = uneven + [axis for axis in range(x.ndim) if axis not in uneven]
    x = permute(x, order)
    for place, axis in enumerate(uneven):
        x = _cell_means(x, place, output_size[axis - 2])
    return permute(x, [order.index(axis) for axis in range(x.ndim)])


def _cell_means(x: Tensor, axis: int, cells: Size) -> Tensor:
    """Means over the cells of an axis. Elements outside a cell are replaced: times 0, infinity would become NaN."""
    size, cell = x.shape[axis], arange_op(start=0, stop=cells)
    total = size_op(size=size)
    start, stop = cell * total // cells, ((cell + 1) * total + (cells - 1)) // cells
    element = unsqueeze(start, 1) + arange_op(start=0, stop=-(-size // cells) + 1)  # the widest cell
    following = tuple(range(2, 1 + x.ndim - axis))
    inside = unsqueeze(element < unsqueeze(stop, 1), following)
    width = unsqueeze(stop - start, tuple(axis - 1 for axis in following))
    wide = at_least_float32(x)
    kept = where(inside, take_op(wide, minimum(element, total - 1), axis=axis), 0)
    return (sum_(kept, axis=(axis + 1,)) / width.astype(wide.dtype)).astype(x.dtype)


def _transposed_rule(
    x: TensorType,
    weight: TensorType,
    bias: TensorType | None,
    *,
    strides: Ints,
    pads: Ints,
    output_padding: Ints,
    dilations: Ints,
    group: int,
) -> TensorType:
    channels = weight.shape[1] * group if weight.rank > 1 else 0
    message = _checked("conv_transpose", "C, out / group", x, weight, bias, channels)
    if group < 1 or not same(weight.shape[0], x.shape[1]) or not same(weight.shape[0] % group, 0):
        raise ValueError(f"{message}: expected {weight.shape[0]} channels, divisible by group {group}")
    axes = x.rank - 2
    if not len(strides) == len(output_padding) == len(dilations) == axes or len(pads) != 2 * axes:
        raise ValueError(
            f"{message}: strides {strides}, output_padding {output_padding} and dilations {dilations} need one number "
            f"for each spatial axis, pads {pads} two"
        )
    if any(more >= max(s, d) for more, s, d in zip(output_padding, strides, dilations, strict=True)):
        raise ValueError(f"{message}: output_padding {output_padding} must be smaller than the stride or the dilation")
    sizes = [
        (x.shape[2 + i] - 1) * strides[i]
        - pads[i]
        - pads[axes + i]
        + dilations[i] * (weight.shape[2 + i] - 1)
        + output_padding[i]
        + 1
        for i in range(axes)
    ]
    return x.with_shape((x.shape[0], channels, *sizes))


def _transposed_kernel(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    strides: Ints,
    pads: Ints,
    output_padding: Ints,
    dilations: Ints,
    group: int,
) -> Array:
    dtype, (n, c), spatial, kernel = x.dtype, x.shape[:2], x.shape[2:], weight.shape[2:]
    axes, out = len(kernel), weight.shape[1]
    x, weight = widened(x), widened(weight)  # as in matmul: multiply in float32 and round once
    # The contribution of each element at each place of its window: (N, group, out, *kernel, *spatial).
    flat = weight.reshape(group, c // group, out * math.prod(kernel)).transpose(0, 2, 1)
    products = np.matmul(flat, x.reshape(n, group, c // group, math.prod(spatial)))
    products = products.reshape(n, group * out, *kernel, *spatial)
    whole = [
        (size - 1) * s + d * (k - 1) + 1 + more
        for size, s, d, k, more in zip(spatial, strides, dilations, kernel, output_padding, strict=True)
    ]
    result = np.zeros((n, group * out, *whole), x.dtype)
    for place in np.ndindex(*kernel):
        ends = [
            slice(p * d, p * d + (size - 1) * s + 1, s)
            for p, d, s, size in zip(place, dilations, strides, spatial, strict=True)
        ]
        result[(slice(None), slice(None), *ends)] += products[(slice(None), slice(None), *place)]
    if min(size - pads[i] - pads[axes + i] for i, size in enumerate(whole)) < 1:
        raise ValueError(f"conv_transpose: input {show_shape(x.shape)} is too short: pads {pads} leave no elements")
    cuts = [slice(pads[i], whole[i] - pads[axes + i]) for i in range(axes)]
    return _with_bias(result[(slice(None), slice(None), *cuts)], bias, dtype)


@primitive(kernel=_transposed_kernel, rule=_transposed_rule, onnx="ConvTranspose")
def conv_transpose(  # type: ignore[empty-body]
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Ints,
    pads: Ints,
    output_padding: Ints,
    dilations: Ints,
    group: int = 1,
) -> Tensor:
    """x (N, C, *spatial) with weight (C, out / group, *kernel) to (N, out, *sizes) (Zeiler et al. 2010).

    Along each axis, the size is ``(size - 1) * stride - pads + dilation * (kernel - 1) + output_padding + 1``.
    """
