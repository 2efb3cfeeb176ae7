"""Maxima and means of windows as functions, with torch's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid import ops
from lucid.core.sizes.dims import Size
from lucid.core.torch_names.argument_names import torch_names
from lucid.nn.convolution import Ints, over_batch, per_axis
from lucid.ops.rearranging import pad
from lucid.ops.tensor.tensor import Tensor

Pool = Callable[..., Tensor]


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
        kernel, pads = per_axis(name, "kernel_size", kernel_size, axes), per_axis(name, "padding", padding, axes)
        strides = per_axis(name, "stride", stride or kernel, axes)

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
    ) -> Tensor:
        kernel, pads = per_axis(name, "kernel_size", kernel_size, axes), per_axis(name, "padding", padding, axes)
        strides = per_axis(name, "stride", stride or kernel, axes)
        gaps = per_axis(name, "dilation", dilation, axes)

        def batch(x: Tensor) -> Tensor:
            ends = _ends(name, x, kernel, strides, pads, gaps, ceil_mode)
            return ops.max_pool(x, kernel_shape=kernel, strides=strides, pads=pads + ends, dilations=gaps)

        return over_batch(name, batch, x, axes)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"The maxima of windows along {axes} axes, by default without overlap."
    return pool


def _adaptive(axes: int) -> Pool:
    name = f"adaptive_avg_pool{axes}d"

    @torch_names
    def pool(x: Tensor, output_size: Ints) -> Tensor:
        sizes = per_axis(name, "output_size", output_size, axes)
        return over_batch(name, lambda x: ops.adaptive_average_pool(x, output_size=sizes), x, axes)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"The means of cells that divide each of {axes} axes as evenly as possible."
    return pool


avg_pool1d, avg_pool2d, avg_pool3d = _average(1), _average(2), _average(3)
max_pool1d, max_pool2d, max_pool3d = _maximum(1), _maximum(2), _maximum(3)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = _adaptive(1), _adaptive(2), _adaptive(3)
