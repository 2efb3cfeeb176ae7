"""Windows of images as columns, and images sampled at places of a grid, with torch's arguments and results.

Both are gathers, so they are exact on every target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid import ops
from lucid.core.graph.types import int64, show_shape
from lucid.core.sizes.dims import Size, product, same
from lucid.core.torch_names.argument_names import torch_names
from lucid.nn._checks import check_positive
from lucid.nn.convolution import Ints, per_axis
from lucid.ops.creation import arange, size_op
from lucid.ops.operand_conversion import check_tensors
from lucid.ops.rearranging import pad
from lucid.ops.tensor.tensor import Tensor

_MODES = ("bilinear", "nearest")
_PADDING_MODES = ("zeros", "border", "reflection")


@torch_names
def unfold(x: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> Tensor:
    """The windows of images (N, C, H, W) as columns: (N, C * window, number of windows), zeros around the images.

    One image (C, H, W) gives (C * window, number of windows).

    Raises:
        TypeError, ValueError: for anything but images, and for sizes that are not positive.
    """
    check_tensors("unfold", x=x)
    if x.ndim == 3:
        return ops.squeeze(unfold(ops.unsqueeze(x, 0), kernel_size, dilation, padding, stride), 0)
    if x.ndim != 4:
        raise ValueError(f"unfold: got shape {show_shape(x.shape)}, expected images (N, C, H, W) or one (C, H, W)")
    given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    kernel, dilations, pads, strides = (per_axis("unfold", name, value, 2) for name, value in given.items())
    for name, values in (("kernel_size", kernel), ("dilation", dilations), ("stride", strides)):
        for value in values:
            check_positive("unfold", **{name: value})
    if min(pads) < 0:
        raise ValueError(f"unfold: padding is {pads}, expected 0 or more")
    if any(pads):
        x = pad(x, (pads[1], pads[1], pads[0], pads[0]))
    n, c, height, width = x.shape
    counts: list[Size] = []
    for axis, size, k, d, s in zip((2, 4), (height, width), kernel, dilations, strides, strict=True):
        room = size - d * (k - 1) - 1
        if isinstance(room, int) and room < 0:
            raise ValueError(f"unfold: a window of {d * (k - 1) + 1} does not fit into a padded axis of {size}")
        count = room // s + 1
        places = (arange(count) * s).unsqueeze(1) + arange(k) * d  # (windows, size of a window)
        x = ops.take(x, places, axis)
        counts.append(count)
    windows = x.permute(0, 1, 3, 5, 2, 4)  # from (N, C, rows, window, columns, window)
    return windows.reshape(n, c * kernel[0] * kernel[1], counts[0] * counts[1])


@torch_names
def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Images (N, C, H, W) at places (N, H_out, W_out, 2), a column and a row from -1 to 1: (N, C, H_out, W_out).

    Args:
        mode: "bilinear", or "nearest".
        padding_mode: the pixels outside an image: "zeros", its "border", or its "reflection".
        align_corners: whether -1 and 1 are the centres of the first and the last pixel; by default their outer edges.

    A place that is NaN is outside.

    Raises:
        TypeError, ValueError: for other shapes and element types, and unknown modes.
    """
    check_tensors("grid_sample", x=x, grid=grid)
    if x.ndim != 4 or grid.ndim != 4 or not same(grid.shape[3], 2) or not same(grid.shape[0], x.shape[0]):
        raise ValueError(
            f"grid_sample: got shapes {show_shape(x.shape)} and {show_shape(grid.shape)}, expected images (N, C, H, W) "
            "and places (N, H_out, W_out, 2)"
        )
    if x.dtype != grid.dtype:
        raise TypeError(f"grid_sample: images are {x.dtype} and places {grid.dtype}, expected one element type")
    if mode not in _MODES or padding_mode not in _PADDING_MODES:
        raise ValueError(
            f"grid_sample: mode is {mode!r} and padding_mode {padding_mode!r}, expected one of {', '.join(_MODES)} and "
            f"one of {', '.join(_PADDING_MODES)}"
        )
    n, c, height, width = x.shape
    column, row = (
        _inside(_pixel(grid[..., index], size, bool(align_corners)), size, padding_mode, bool(align_corners))
        for index, size in enumerate((width, height))
    )
    pixels = x.reshape(n, c, height * width)

    def at(column: Tensor, row: Tensor) -> Tensor:
        """The pixels at whole numbers, 0 outside."""
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        place = ops.where(inside, row * width + column, 0).reshape(n, 1, product(grid.shape[1:3]))
        values = ops.take_along(pixels, place.astype(int64), axis=2).reshape(n, c, *grid.shape[1:3])
        return ops.where(inside.unsqueeze(1), values, 0.0)

    if mode == "nearest":
        return at(ops.round(column).astype(int64), ops.round(row).astype(int64))
    left, top = ops.floor(column), ops.floor(row)
    total: Tensor | None = None
    for right in (0, 1):
        for below in (0, 1):
            across, down = (
                fraction if far else 1 - fraction for fraction, far in ((column - left, right), (row - top, below))
            )
            corner = at(left.astype(int64) + right, top.astype(int64) + below) * (across * down).unsqueeze(1)
            total = corner if total is None else total + corner
    assert total is not None
    return total


def _pixel(place: Tensor, size: Size, align_corners: bool) -> Tensor:
    """Map places from -1 to 1 to pixel indices."""
    return (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2


def _inside(pixel: Tensor, size: Size, padding_mode: str, align_corners: bool) -> Tensor:
    """Move places outside an axis into it; for zeros, to just outside."""
    last = _as_number(size, pixel) - 1
    pixel = ops.where(ops.isnan(pixel), -2.0, pixel)
    if padding_mode == "zeros":
        return ops.minimum(ops.maximum(pixel, -2.0), last + 2)
    if padding_mode == "reflection":
        low, span = (0.0, ops.maximum(last, 1.0)) if align_corners else (-0.5, last + 1)
        pixel = ops.minimum(abs(pixel - low), 2.0**22 * span)  # float32 cannot hold places beyond that
        turns = ops.floor(pixel / span)
        rest = pixel - turns * span
        pixel = low + ops.where(turns - 2 * ops.floor(turns / 2) > 0.5, span - rest, rest)
    return ops.minimum(ops.maximum(pixel, 0.0), last)


def _as_number(size: Size, like: Tensor) -> Tensor:
    """A size in the element type of another tensor."""
    if isinstance(size, int):
        return Tensor(size, like.dtype)
    return size_op(size=size).astype(like.dtype)


@torch_names
def affine_grid(theta: Tensor, size: Sequence[Size], align_corners: bool | None = None) -> Tensor:
    """The places (N, H, W, 2) for `grid_sample` that affine maps (N, 2, 3) give to the pixels of images (N, C, H, W).

    Raises:
        ValueError: for other shapes.
    """
    check_tensors("affine_grid", theta=theta)
    if theta.ndim != 3 or not same(theta.shape[1], 2) or not same(theta.shape[2], 3) or len(size) != 4:
        raise ValueError(
            f"affine_grid: theta has shape {show_shape(theta.shape)} and size {len(size)} numbers, expected (N, 2, 3) "
            "and the sizes (N, C, H, W)"
        )
    n, _, height, width = size

    def spread(count: Size) -> Any:
        """Coordinates from -1 to 1, which are the centres of the outer pixels or their edges."""
        twice = arange(count) * 2 - (count - 1)
        steps = ops.maximum(_as_number(count, theta) - 1, 1.0) if align_corners else _as_number(count, theta)
        return twice.astype(theta.dtype) / steps

    columns = spread(width).unsqueeze(0).expand(height, width)
    rows = spread(height).unsqueeze(1).expand(height, width)
    places = ops.stack([columns, rows, ops.ones_like(columns)], -1).reshape(height * width, 3)
    return (places @ theta.mT).reshape(n, height, width, 2)
