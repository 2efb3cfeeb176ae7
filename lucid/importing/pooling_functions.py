"""Functions of torch's pooling operators, with the places of maxima; arguments in ATen's order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid import ops
from lucid.core.graph.types import float32, int64
from lucid.core.sizes.dims import Size, same
from lucid.importing.functions import scalar_tensor
from lucid.importing.layer_functions import pair
from lucid.nn import functional as F
from lucid.ops.tensor.tensor import Tensor

Function = Callable[..., Any]


_MAXIMA = (F.max_pool1d, F.max_pool2d, F.max_pool3d)


def max_pool_with_places(rank: int) -> Function:
    """The maxima, and their places in the flattened spatial axes."""
    pool = _MAXIMA[rank - 1]

    def both(
        x: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> tuple[Tensor, Tensor]:
        maxima = pool(x if x.dtype.kind == "float" else x.astype(float32), kernel, stride, padding, dilation, ceil_mode)
        steps = zip(
            x.shape[-rank:],
            maxima.shape[-rank:],
            *(pair(each, rank) for each in (kernel, stride or kernel, padding, dilation)),
            strict=True,
        )
        tables = [_window_table(*step) for step in steps]
        if x.dtype.kind != "float":  # MaxPool would round large integers
            maxima = _windows(x, tables).amax(-1)
        return maxima, _places(x, tables)

    return both


def _window_table(size: Size, windows: Size, k: int, stride: int, pad: int, gap: int) -> Tensor:
    """The places (windows, k) that windows read; instead of padding, one within the axis that the window also reads."""
    places = ops.arange(windows).unsqueeze(1) * stride + ops.arange(k) * gap - pad
    places = ops.where(places < 0, places % gap, places)
    return ops.where(places < size, places, size - 1 - (size - 1 - places) % gap)


def _cell_table(size: Size, cells: int) -> Tensor:
    """The places (cells, width) of the elements of each cell of an axis that is divided as evenly as possible."""
    cell, total = ops.arange(cells), scalar_tensor(size, int64)
    starts, ends = cell * total // cells, ((cell + 1) * total + (cells - 1)) // cells
    places = starts.unsqueeze(1) + ops.arange(-(-size // cells) + 1)
    return ops.minimum(places, ends.unsqueeze(1) - 1)


def _windows(x: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """The elements of windows (..., *windows, elements) of the last axes, by a table of places for each."""
    rank = len(tables)
    leading = x.ndim - rank
    for number, table in enumerate(tables):
        x = x[(slice(None),) * (leading + 2 * number) + (table,)]
    order = [*range(leading), *range(leading, x.ndim, 2), *range(leading + 1, x.ndim, 2)]
    return x.permute(*order).flatten(leading + rank)


def _places(x: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """The place of the maximum of each window in the flattened spatial axes."""
    shape = x.shape[-len(tables) :]
    numbers = _windows(ops.arange(math.prod(shape)).reshape(*shape), tables)
    chosen = _windows(x, tables).argmax(-1, True)
    return numbers.expand(*chosen.shape[:-1], numbers.shape[-1]).gather(-1, chosen).squeeze(-1)


def adaptive_max_pool(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The maxima over cells that divide each spatial axis as evenly as possible, and their places."""
    tables = [_cell_table(axis, cells) for axis, cells in zip(x.shape[-len(size) :], size, strict=True)]
    if all(cells == 1 for cells in size):
        maxima = x.amax(tuple(range(-len(size), 0)), True)
    elif all(same(axis % cells, 0) for axis, cells in zip(x.shape[-len(size) :], size, strict=True)):
        steps = tuple(int(axis // cells) for axis, cells in zip(x.shape[-len(size) :], size, strict=True))
        maxima = _MAXIMA[len(size) - 1](x, steps)
    else:
        maxima = _windows(x, tables).amax(-1)
    return maxima, _places(x, tables)
