"""Maxima and means of windows as functions, with torch's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid import ops
from lucid.core.graph.scope import is_differentiated
from lucid.core.graph.types import float32, show_shape
from lucid.core.sizes.dims import Shape, Size, product, same
from lucid.core.torch_names.argument_names import torch_names
from lucid.nn.convolution import Ints, over_batch, per_axis
from lucid.ops.creation import size_op
from lucid.ops.rearranging import pad
from lucid.ops.tensor.tensor import Tensor

Pool = Callable[..., Any]


def strides_of(where: str, stride: Ints | None, kernel: Sequence[int]) -> tuple[int, ...]:
    """The steps of windows; without any, as None or (), windows do not overlap."""
    return per_axis(where, "stride", kernel if stride is None or stride in ((), []) else stride, len(kernel), 1)


def _ends(
    where: str, x: Tensor, sizes: Any, strides: Any, pads: Any, dilations: Any, ceil_mode: bool
) -> tuple[int, ...]:
    """The padding at the ends of axes: with `ceil_mode`, so much more that the last, partial windows count as well."""
    ends = []
    for size, k, stride, before, dilation in zip(x.shape[2:], sizes, strides, pads, dilations, strict=True):
        reach = dilation * (k - 1) + 1
        more = stride - 1 if ceil_mode else 0
        if more and stride > reach - before:  # torch drops a window that would begin beyond the axis
            if not isinstance(size, int):
                raise NotImplementedError(
                    f"{where} with ceil_mode, windows of {reach} and steps of {stride}, of an axis of size {size}: "
                    "whether the last window counts is known only at run time; give it a number in lucid.spec(...)"
                )
            last = -(-(size + 2 * before - reach) // stride) * stride
            more = last + reach - size - 2 * before if last < size + before else 0
        ends.append(before + max(more, 0))
    return tuple(ends)


def _reaching(sizes: Sequence[Size], kernel: Sequence[int], pads: Sequence[int], ceil_mode: bool) -> tuple[int, ...]:
    """The sizes of windows; with `ceil_mode` one that is longer than its padded axis holds all of it, not more."""
    axes = zip(sizes, kernel, pads, strict=True)
    return tuple(min(k, size + 2 * pad) if ceil_mode and isinstance(size, int) else k for size, k, pad in axes)


def _average(axes: int) -> Pool:
    name = f"avg_pool{axes}d"

    @torch_names
    def pool(
        x: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: float | None = None,
    ) -> Tensor:
        kernel, pads = per_axis(name, "kernel_size", kernel_size, axes, 1), per_axis(name, "padding", padding, axes)
        strides = strides_of(name, stride, kernel)

        def batch(x: Tensor) -> Tensor:
            sizes, before = _reaching(x.shape[2:], kernel, pads, ceil_mode), pads
            ends = _ends(name, x, sizes, strides, pads, (1,) * axes, ceil_mode)
            counted = bool(divisor_override) or (count_include_pad and not ceil_mode)
            if count_include_pad and not counted:  # what ceil_mode adds never counts, the padding does
                x = pad(x, tuple(size for each in reversed(pads) for size in (each, each)))
                ends, before = tuple(end - each for end, each in zip(ends, pads, strict=True)), (0,) * axes
            means = ops.average_pool(
                x, kernel_shape=sizes, strides=strides, pads=before + ends, count_include_pad=int(counted)
            )
            return means * (math.prod(sizes) / divisor_override) if divisor_override else means

        return over_batch(name, batch, x, axes)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"The means of windows along {axes} axes, by default without overlap."
    return pool


def _window_table(size: Size, windows: Size, k: int, stride: int, pad: int, gap: int) -> Tensor:
    """The places (windows, k) that windows read; instead of padding, one within the axis that the window also reads."""
    places = ops.arange(windows).unsqueeze(1) * stride + ops.arange(k) * gap - pad
    places = ops.where(places < 0, places % gap, places)
    return ops.where(places < size, places, size - 1 - (size - 1 - places) % gap)


def _cell_table(size: Size, cells: Size) -> Tensor:
    """The places (cells, width) of the elements of each cell of an axis that is divided as evenly as possible."""
    cell, total = ops.arange(cells), size_op(size=size)
    starts, ends = cell * total // cells, ((cell + 1) * total + (cells - 1)) // cells
    places = starts.unsqueeze(1) + ops.arange(-(-size // cells) + 1)
    return ops.minimum(places, ends.unsqueeze(1) - 1)


def _windows(x: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """The elements of windows (..., *windows, elements) of the last axes, by a table of places for each."""
    leading = x.ndim - len(tables)
    for number, table in enumerate(tables):
        x = x[(slice(None),) * (leading + 2 * number) + (table,)]
    order = [*range(leading), *range(leading, x.ndim, 2), *range(leading + 1, x.ndim, 2)]
    return x.permute(*order).flatten(leading + len(tables))


def _largest(x: Tensor) -> Tensor:
    """The maxima of the last axis; the gradient goes to the first one, as in torch."""
    return x.max(dim=-1).values if is_differentiated() else x.amax(-1)


def _places(x: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """The place of the maximum of each window in the flattened spatial axes."""
    shape = x.shape[-len(tables) :]
    numbers = _windows(ops.arange(product(shape)).reshape(*shape), tables)
    chosen = _windows(x, tables).argmax(-1, True)
    return numbers.expand(*chosen.shape[:-1], numbers.shape[-1]).gather(-1, chosen).squeeze(-1)


def _maximum(axes: int) -> Pool:
    name = f"max_pool{axes}d"

    @torch_names
    def pool(
        x: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        kernel, pads = per_axis(name, "kernel_size", kernel_size, axes, 1), per_axis(name, "padding", padding, axes)
        strides = strides_of(name, stride, kernel)
        gaps = per_axis(name, "dilation", dilation, axes, 1)

        def batch(x: Tensor) -> Tensor:
            ends = _ends(name, x, kernel, strides, pads, gaps, ceil_mode)
            within = ends
            if ceil_mode:  # with which the end may reach further than MaxPool pads
                within = tuple(min(end, size - 1) for end, size in zip(ends, kernel, strict=True))
            if within != ends:
                over = [end - most for end, most in zip(ends, within, strict=True)]
                x = pad(x, [size for more in reversed(over) for size in (0, more)], value=-math.inf)
            return ops.max_pool(x, kernel_shape=kernel, strides=strides, pads=pads + within, dilations=gaps)

        whole = x.dtype.kind == "int"
        maxima = over_batch(name, batch, x.astype(float32) if whole else x, axes)
        if not whole and not return_indices:
            return maxima
        steps = zip(x.shape[-axes:], maxima.shape[-axes:], kernel, strides, pads, gaps, strict=True)
        tables = [_window_table(*step) for step in steps]
        if whole:  # MaxPool would round large integers
            maxima = _largest(_windows(x, tables))
        return (maxima, _places(x, tables)) if return_indices else maxima

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"The maxima of windows along {axes} axes; `return_indices`: and their places, as one number."
    return pool


def _cells(name: str, x: Tensor, output_size: Any, axes: int) -> Shape:
    """The numbers of cells; for None that of the elements."""
    if x.ndim not in (axes + 1, axes + 2):
        raise ValueError(f"{name}: got shape {show_shape(x.shape)}, expected (N, C) and {axes} more axes, or without N")
    output_sizes: Any = (None,) if output_size is None else output_size
    sizes = per_axis(name, "output_size", output_sizes, axes, None)
    cells = tuple(size if cells is None else cells for size, cells in zip(x.shape[-axes:], sizes, strict=True))
    return per_axis(name, "output_size", cells, axes, 1)


def _adaptive(axes: int) -> Pool:
    name = f"adaptive_avg_pool{axes}d"

    @torch_names
    def pool(x: Tensor, output_size: Any) -> Tensor:
        sizes = _cells(name, x, output_size, axes)
        return over_batch(name, lambda x: ops.adaptive_average_pool(x, output_size=sizes), x, axes)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"The means of cells that divide each of {axes} axes as evenly as possible."
    return pool


def _adaptive_maximum(axes: int) -> Pool:
    name, maximum = f"adaptive_max_pool{axes}d", _maximum(axes)

    @torch_names
    def pool(x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        sizes = _cells(name, x, output_size, axes)
        pairs = list(zip(x.shape[-axes:], sizes, strict=True))
        tables = [_cell_table(size, cells) for size, cells in pairs]
        whole = tuple(axis for axis, cells in enumerate(sizes, start=-axes) if same(cells, 1))
        if all(same(cells, 1) or same(size, cells) for size, cells in pairs) and not is_differentiated():
            maxima = x.amax(whole, True) if whole else x
        elif all(isinstance(size, int) and isinstance(cells, int) and not size % cells for size, cells in pairs):
            maxima = maximum(x, tuple(int(size // cells) for size, cells in pairs))
        else:
            maxima = _largest(_windows(x, tables))
        return (maxima, _places(x, tables)) if return_indices else maxima

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"The maxima of cells that divide each of {axes} axes evenly; `return_indices`: and their places."
    return pool


avg_pool1d, avg_pool2d, avg_pool3d = _average(1), _average(2), _average(3)
max_pool1d, max_pool2d, max_pool3d = _maximum(1), _maximum(2), _maximum(3)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = _adaptive(1), _adaptive(2), _adaptive(3)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_maximum, (1, 2, 3))
