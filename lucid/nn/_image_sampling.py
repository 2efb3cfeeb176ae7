"""Windows of images as columns, and images sampled at places of a grid, with torch's arguments and results.

Both are gathers, so they are exact on every target.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from lucid import ops
from lucid.core.graph.scope import is_differentiated
from lucid.core.graph.types import int64, show_shape
from lucid.core.sizes.dims import Size, product, same
from lucid.core.torch_names.argument_names import torch_names
from lucid.nn.convolution import Ints, per_axis
from lucid.ops.creation import arange, size_op
from lucid.ops.interpolation import cubic_weights
from lucid.ops.operand_conversion import check_tensors
from lucid.ops.rearranging import pad
from lucid.ops.tensor.tensor import Tensor

_MODES = ("bilinear", "nearest", "bicubic")
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
    options = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    kernel, dilations, pads, strides = (
        per_axis("unfold", name, value, 2, int(name != "padding")) for name, value in options.items()
    )
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
def fold(
    x: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Tensor:
    """Images (N, C, *output_size) in which windows as columns (N, C * window, number of windows) are added up.

    One image's columns (C * window, number of windows) give (C, *output_size).

    Raises:
        ValueError: for other columns than those that `unfold` makes of such images.
    """
    if x.ndim == 2:
        return ops.squeeze(fold(ops.unsqueeze(x, 0), output_size, kernel_size, dilation, padding, stride), 0)
    height, width = per_axis("fold", "output_size", output_size, 2, None)
    pixels = arange(height * width).reshape(1, 1, height, width) + 1
    places = unfold(pixels, kernel_size, dilation, padding, stride)[0]  # 0 is outside
    window, count = places.shape
    if x.ndim != 3 or not same(x.shape[1] % window, 0) or not same(x.shape[2], count):
        raise ValueError(
            f"fold: got shape {show_shape(x.shape)}, expected (N, C * {window}, {count}) for {height} x {width} images"
        )
    n, channels = x.shape[0], x.shape[1] // window
    values, places = x.reshape(n, channels, window * count), places.reshape(1, 1, window * count)
    sums = ops.zeros_like(values[..., :1]).expand(n, channels, height * width + 1)
    added = sums.scatter_add(2, places.expand(*values.shape), values)
    return added[..., 1:].reshape(n, channels, height, width)


@torch_names
def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Images (N, C, H, W) at places (N, H_out, W_out, 2), a column and a row from -1 to 1: (N, C, H_out, W_out).

    Volumes (N, C, D, H, W) at places (N, D_out, H_out, W_out, 3), which end with the depth, give (N, C, D_out, H_out,
    W_out).

    Args:
        mode: "bilinear", which is trilinear for volumes, "nearest", or "bicubic" for images.
        padding_mode: the pixels outside an image: "zeros", its "border", or its "reflection".
        align_corners: whether -1 and 1 are the centres of the first and the last pixel; by default their outer edges.

    A place that is NaN is outside.

    Raises:
        TypeError, ValueError: for other shapes and element types, and unknown modes.
    """
    check_tensors("grid_sample", x=x, grid=grid)
    axes = x.ndim - 2
    fits = axes in (2, 3) and grid.ndim == x.ndim and same(grid.shape[-1], axes) and same(grid.shape[0], x.shape[0])
    if not fits:
        raise ValueError(
            f"grid_sample: got shapes {show_shape(x.shape)} and {show_shape(grid.shape)}, expected images (N, C, H, W) "
            "and places (N, H_out, W_out, 2), or volumes (N, C, D, H, W) and places (N, D_out, H_out, W_out, 3)"
        )
    if x.dtype != grid.dtype:
        raise TypeError(f"grid_sample: images are {x.dtype} and places {grid.dtype}, expected one element type")
    modes = _MODES[: 5 - axes]
    if mode not in modes or padding_mode not in _PADDING_MODES:
        raise ValueError(
            f"grid_sample: mode is {mode!r} and padding_mode {padding_mode!r}, expected one of {', '.join(modes)} and "
            f"one of {', '.join(_PADDING_MODES)}"
        )
    corners, axis_neighbours = bool(align_corners), []
    for index, size in enumerate(x.shape[:1:-1]):  # columns first, as places have them
        axis_neighbours.append(_neighbours(_pixel(grid[..., index], size, corners), size, mode, padding_mode, corners))
    total: Tensor | None = None
    for neighbours in itertools.product(*axis_neighbours):
        pixels = _at(x, [place for place, _ in neighbours])
        if mode == "nearest":
            return pixels
        corner = pixels * functools.reduce(operator.mul, (weight for _, weight in neighbours)).unsqueeze(1)
        total = corner if total is None else total + corner
    assert total is not None
    return total


def _neighbours(
    pixel: Tensor, size: Size, mode: str, padding_mode: str, align_corners: bool
) -> list[tuple[Tensor, Tensor]]:
    """The pixels of an axis that a place is computed from, with their weights."""
    if mode != "bicubic":
        pixel = _inside(pixel, size, padding_mode, align_corners)
    if mode == "nearest":
        return [(ops.round(pixel).astype(int64), pixel)]
    if mode == "bilinear":
        first = ops.floor(pixel)
        fraction = pixel - first
        return [(first.astype(int64), 1 - fraction), (first.astype(int64) + 1, fraction)]
    far = 2.0**22 * _as_number(size, pixel)  # float32 cannot hold neighbours of places beyond that
    pixel = ops.clip(ops.where(ops.isnan(pixel), -far, pixel), -far, far)
    first = ops.floor(pixel)
    weights = cubic_weights(pixel - first)
    moved = {step: _inside(first + step, size, padding_mode, align_corners) for step in weights}
    return [(ops.round(moved[step]).astype(int64), weight) for step, weight in weights.items()]


def _at(x: Tensor, places: Sequence[Tensor]) -> Tensor:
    """The pixels (N, C, ...) at whole numbers, columns first; 0 outside."""
    sizes = x.shape[:1:-1]
    around = places[0].shape[1:]
    seen = functools.reduce(
        operator.and_, (test for p, n in zip(places, sizes, strict=True) for test in (p >= 0, p < n))
    )
    place = places[-1]
    for inner, size in zip(places[-2::-1], sizes[-2::-1], strict=True):
        place = place * size + inner
    pixels = x.reshape(*x.shape[:2], product(x.shape[2:]))
    place = ops.where(seen, place, 0).reshape(x.shape[0], 1, product(around))
    values = ops.take_along(pixels, place.astype(int64), axis=2).reshape(*x.shape[:2], *around)
    return ops.where(seen.unsqueeze(1), values, 0.0)


def _pixel(place: Tensor, size: Size, align_corners: bool) -> Tensor:
    """Map places from -1 to 1 to pixel indices."""
    return (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2


def _inside(pixel: Tensor, size: Size, padding_mode: str, align_corners: bool) -> Tensor:
    """Move places outside an axis into it; for zeros, to just outside."""
    last = _as_number(size, pixel) - 1
    pixel = ops.where(ops.isnan(pixel), -2.0, pixel)
    if padding_mode == "zeros":
        return ops.clip(pixel, -2.0, last + 2)
    if padding_mode == "reflection":
        low, span = (0.0, ops.maximum(last, 1.0)) if align_corners else (-0.5, last + 1)
        pixel = ops.minimum(abs(pixel - low), 2.0**22 * span)  # float32 cannot hold places beyond that
        turns = ops.floor(pixel / span)
        rest = pixel - turns * span
        pixel = low + ops.where(turns - 2 * ops.floor(turns / 2) > 0.5, span - rest, rest)
    clipped = ops.clip(pixel, 0.0, last)
    if not is_differentiated():
        return clipped
    return ops.where((pixel > 0) & (pixel < last), clipped, ops.stop_gradient(clipped))  # at a border as in torch


def _as_number(size: Size, like: Tensor) -> Tensor:
    """A size in the element type of another tensor."""
    if isinstance(size, int):
        return Tensor(size, like.dtype)
    return size_op(size=size).astype(like.dtype)


@torch_names
def affine_grid(theta: Tensor, size: Sequence[Size], align_corners: bool | None = None) -> Tensor:
    """The places (N, H, W, 2) for `grid_sample` that affine maps (N, 2, 3) give to the pixels of images (N, C, H, W).

    Maps (N, 3, 4) give those (N, D, H, W, 3) of volumes (N, C, D, H, W).

    Raises:
        ValueError: for other shapes.
    """
    check_tensors("affine_grid", theta=theta)
    axes = len(size) - 2
    if theta.ndim != 3 or axes not in (2, 3) or not same(theta.shape[1], axes) or not same(theta.shape[2], axes + 1):
        raise ValueError(
            f"affine_grid: theta has shape {show_shape(theta.shape)} and size {len(size)} numbers, expected (N, 2, 3) "
            "and the sizes (N, C, H, W), or (N, 3, 4) and the sizes (N, C, D, H, W)"
        )
    n, _, *lengths = size

    def spread(count: Size) -> Any:
        """Coordinates from -1 to 1, which are the centres of the outer pixels or their edges."""
        twice = arange(count) * 2 - (count - 1)
        steps = ops.maximum(_as_number(count, theta) - 1, 1.0) if align_corners else _as_number(count, theta)
        return twice.astype(theta.dtype) / steps

    coordinates = []
    for axis in reversed(range(axes)):  # columns first
        others = tuple(other for other in range(axes) if other != axis)
        coordinates.append(ops.unsqueeze(spread(lengths[axis]), others).expand(*lengths))
    places = ops.stack([*coordinates, ops.ones_like(coordinates[0])], -1).reshape(product(lengths), axes + 1)
    return (places @ theta.mT).reshape(n, *lengths, axes)
