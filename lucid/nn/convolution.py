"""Convolutions, with torch's arguments and state keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from lucid import ops
from lucid.nn import init
from lucid.nn._checks import check_positive
from lucid.nn.init import new_parameter
from lucid.nn.module import Module
from lucid.ops.tensor import Tensor
from lucid.types import DTypeLike, TensorType, show_shape, spec

Ints: TypeAlias = int | Sequence[int]


def per_axis(where: str, name: str, value: Ints, axes: int) -> tuple[int, ...]:
    """One number for each spatial axis."""
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(values) != axes:
        raise ValueError(f"{where}: {name} is {value!r}, expected one number or {axes}")
    return values


class Spatial(Module):
    """A module with a fixed number of spatial axes: checks its input's axes and gives its specs."""

    axes: int

    def check_input(self, x: Tensor, channels: int | None = None) -> None:
        """Raise ValueError for another number of axes or channels."""
        fits = x.ndim == self.axes + 2 and (channels is None or x.shape[1] == channels)
        if not fits:
            sizes = ", ".join("LHW"[-self.axes :] if self.axes > 1 else "L")
            raise ValueError(
                f"{type(self).__name__}: got shape {show_shape(x.shape)}, expected (N, {channels or 'C'}, {sizes})"
            )

    def image_specs(self, channels: int | str, dtype: DTypeLike) -> Mapping[str, TensorType]:
        """(N, channels, *spatial), with symbolic sizes for all but the channels."""
        return {"x": spec("N", channels, *("H", "W", "L")[: self.axes] if self.axes > 1 else "L", dtype=dtype)}


class _Conv(Spatial):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints | str = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        name, axes = type(self).__name__, self.axes
        check_positive(name, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: groups {groups} must divide in_channels {in_channels} and out_channels {out_channels}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, axes)
        self.stride = per_axis(name, "stride", stride, axes)
        self.dilation = per_axis(name, "dilation", dilation, axes)
        self.padding = self._padding(padding)
        self.weight = init.kaiming_uniform_(
            new_parameter(out_channels, in_channels // groups, *self.kernel_size, dtype=dtype), a=math.sqrt(5)
        )
        bound = 1 / math.sqrt(in_channels // groups * math.prod(self.kernel_size))
        self.bias = init.uniform_(new_parameter(out_channels, dtype=dtype), -bound, bound) if bias else None

    def _padding(self, padding: Ints | str) -> tuple[int, ...]:
        """Padding before each axis, then after each axis."""
        if not isinstance(padding, str):
            return per_axis(type(self).__name__, "padding", padding, self.axes) * 2
        if padding not in ("same", "valid") or (padding == "same" and set(self.stride) != {1}):
            raise ValueError(
                f'{type(self).__name__}: padding is {padding!r} with stride {self.stride}, expected numbers, "valid", '
                'or "same" with stride 1'
            )
        spans = [d * (k - 1) * (padding == "same") for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        return (*(span // 2 for span in spans), *(span - span // 2 for span in spans))

    def forward(self, x: Tensor) -> Tensor:
        self.check_input(x, self.in_channels)
        return ops.conv(
            x,
            self.weight,
            self.bias,
            strides=self.stride,
            pads=self.padding,
            dilations=self.dilation,
            group=self.groups,
        )

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.image_specs(self.in_channels, self.weight.dtype)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class Conv1d(_Conv):
    """Convolution along one axis: (N, C, L) to (N, out_channels, L').

    Args:
        padding: zeros on both sides; "valid" for none; "same" (with stride 1) for L' = L.
        groups: the number of groups of channels; each is convolved separately.
    """

    axes = 1


class Conv2d(_Conv):
    """Convolution over images: (N, C, H, W) to (N, out_channels, H', W').

    The arguments are those of `Conv1d`, each one number or a pair.
    """

    axes = 2
