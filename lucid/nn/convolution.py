"""Convolutions as functions and as modules, with torch's arguments and state keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from lucid import ops
from lucid.core.graph.loop_bodies import has_symbolic_size
from lucid.core.graph.types import DTypeLike, TensorType, show_shape, spec
from lucid.core.number_ranges import at_least, check
from lucid.core.torch_names.argument_names import torch_names, torch_names_and
from lucid.nn import init
from lucid.nn._checks import check_positive
from lucid.nn.init import new_parameter
from lucid.nn.module import Module
from lucid.ops.rearranging import pad
from lucid.ops.tensor.tensor import Tensor

Ints: TypeAlias = int | Sequence[int]


def per_axis(where: str, name: str, value: Ints, axes: int, least: int | None = 0) -> tuple[int, ...]:
    """One whole number of at least `least` for each spatial axis; None: any. The op checks symbolic sizes.

    Raises:
        TypeError: for anything but whole numbers.
        ValueError: for another count of numbers, and smaller ones.
    """
    if type(value) is int and (least is None or value >= least):
        return (value,) * axes
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    if len(values) == 1:
        values *= axes
    if len(values) != axes:
        raise ValueError(f"{where}: {name} is {value!r}, expected one number or {axes}")
    if least is None or (set(map(type, values)) == {int} and min(values) >= least):
        return values
    if has_symbolic_size(values):
        return values
    for each in values:
        check(f"{where}: {name}", each, at_least(least))
    return tuple(map(int, values))


def pads_of(
    where: str, padding: Ints | str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """Padding before each axis, then after each axis.

    Raises:
        ValueError: for other text than "valid" and "same", or "same" with a stride.
    """
    if not isinstance(padding, str):
        return per_axis(where, "padding", padding, len(kernel)) * 2
    if padding not in ("same", "valid") or (padding == "same" and set(stride) != {1}):
        raise ValueError(
            f'{where}: padding is {padding!r} with stride {tuple(stride)}, expected numbers, "valid", or "same" with '
            "stride 1"
        )
    spans = [d * (k - 1) * (padding == "same") for k, d in zip(kernel, dilation, strict=True)]
    return (*(span // 2 for span in spans), *(span - span // 2 for span in spans))


def over_batch(where: str, call: Callable[[Tensor], Tensor], x: Tensor, axes: int) -> Tensor:
    """Call a function of (N, C, *spatial), with `axes` spatial axes, on a batch or on a single (C, *spatial).

    Raises:
        ValueError: for another number of axes.
    """
    if x.ndim == axes + 1:
        return ops.squeeze(call(ops.unsqueeze(x, 0)), 0)
    if x.ndim != axes + 2:
        raise ValueError(
            f"{where}: got shape {show_shape(x.shape)}, expected (N, C) and {axes} more axes, or these without N"
        )
    return call(x)


Convolution: TypeAlias = Callable[..., Tensor]


def _convolution(axes: int) -> Convolution:
    name = f"conv{axes}d"

    @torch_names
    def conv(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Ints = 1,
        padding: Ints | str = 0,
        dilation: Ints = 1,
        groups: int = 1,
    ) -> Tensor:
        steps, gaps = per_axis(name, "stride", stride, axes, 1), per_axis(name, "dilation", dilation, axes, 1)
        pads = pads_of(name, padding, [int(size) for size in weight.shape[2:]], steps, gaps)

        def batch(x: Tensor) -> Tensor:
            return ops.conv(x, weight, bias, strides=steps, pads=pads, dilations=gaps, group=groups)

        return over_batch(name, batch, x, axes)

    conv.__name__ = conv.__qualname__ = name
    conv.__doc__ = (
        f"""Convolution along {axes} axes: (N, C, *spatial) or (C, *spatial) with (out, C / groups, *kernel)."""
    )
    return conv


def _transposed(axes: int) -> Convolution:
    name = f"conv_transpose{axes}d"

    @torch_names
    def conv_transpose(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        dilation: Ints = 1,
    ) -> Tensor:
        def batch(x: Tensor) -> Tensor:
            return ops.conv_transpose(
                x,
                weight,
                bias,
                strides=per_axis(name, "stride", stride, axes, 1),
                pads=per_axis(name, "padding", padding, axes) * 2,
                output_padding=per_axis(name, "output_padding", output_padding, axes),
                dilations=per_axis(name, "dilation", dilation, axes, 1),
                group=groups,
            )

        return over_batch(name, batch, x, axes)

    conv_transpose.__name__ = conv_transpose.__qualname__ = name
    conv_transpose.__doc__ = (
        f"""The transpose of a convolution along {axes} axes: (N, C, *spatial) or (C, *spatial) with """
        "(C, out / groups, *kernel)."
    )
    return conv_transpose


conv1d, conv2d, conv3d = _convolution(1), _convolution(2), _convolution(3)
conv_transpose1d, conv_transpose2d, conv_transpose3d = _transposed(1), _transposed(2), _transposed(3)


class Spatial(Module):
    """A module with a fixed number of spatial axes: checks its input's axes and gives its specs.

    A subclass computes a batch (N, C, *spatial) in `over`; one (C, *spatial) is a batch of one, as in torch.
    """

    axes: int
    channels: int | None = None  # that the input must have

    def forward(self, x: Tensor) -> Tensor:
        place = x.ndim - self.axes - 1
        fits = place in (0, 1) and (self.channels is None or x.shape[place] == self.channels)
        if not fits:
            sizes = ", ".join([str(self.channels or "C"), *("DHW"[-self.axes :] if self.axes > 1 else "L")])
            raise ValueError(
                f"{type(self).__name__}: got shape {show_shape(x.shape)}, expected (N, {sizes}) or ({sizes})"
            )
        return over_batch(type(self).__name__, self.over, x, self.axes)

    def over(self, x: Tensor) -> Tensor:
        """The result for a batch."""
        raise NotImplementedError(f"{type(self).__name__}: over(x) is not defined")

    def image_specs(self, channels: int | str, dtype: DTypeLike) -> Mapping[str, TensorType]:
        """(N, channels, *spatial), with symbolic sizes for all but the channels."""
        return {"x": spec("N", channels, *"DHW"[-self.axes :] if self.axes > 1 else "L", dtype=dtype)}


class _Convolution(Spatial):
    """A convolution or its transpose: sizes that are checked, a weight and a bias."""

    def _set_sizes(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints, dilation: Ints, groups: int
    ) -> None:
        name, axes = type(self).__name__, self.axes
        check_positive(name, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: groups {groups} must divide in_channels {in_channels} and out_channels {out_channels}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.channels = in_channels
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, axes, 1)
        self.stride = per_axis(name, "stride", stride, axes, 1)
        self.dilation = per_axis(name, "dilation", dilation, axes, 1)

    def _set_parameters(self, rows: int, columns: int, bias: bool, dtype: DTypeLike | None) -> None:
        """The weight (rows, columns / groups, *kernel_size), with one column for each input channel it reads."""
        read = columns // self.groups
        self.weight = init.kaiming_uniform_(new_parameter(rows, read, *self.kernel_size, dtype=dtype), a=math.sqrt(5))
        bound = 1 / math.sqrt(read * math.prod(self.kernel_size))
        self.bias = init.uniform_(new_parameter(self.out_channels, dtype=dtype), -bound, bound) if bias else None

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.image_specs(self.in_channels, self.weight.dtype)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(_Convolution):
    @torch_names_and("device")
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
        padding_mode: str = "zeros",
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        if padding_mode not in _PADDING_MODES:
            expected = ", ".join(map(repr, _PADDING_MODES))
            raise ValueError(f"{type(self).__name__}: padding_mode is {padding_mode!r}, expected one of {expected}")
        self.padding_mode = padding_mode
        self._set_sizes(in_channels, out_channels, kernel_size, stride, dilation, groups)
        self.padding = (
            padding if isinstance(padding, str) else per_axis(type(self).__name__, "padding", padding, self.axes)
        )
        self._pads()  # refuses wrong ones
        self._set_parameters(out_channels, in_channels, bias, dtype)

    def _pads(self) -> tuple[int, ...]:
        return pads_of(type(self).__name__, self.padding, self.kernel_size, self.stride, self.dilation)

    def over(self, x: Tensor) -> Tensor:
        pads = self._pads()
        if self.padding_mode != "zeros":
            sides = zip(reversed(pads[: self.axes]), reversed(pads[self.axes :]), strict=True)
            x, pads = pad(x, tuple(size for pair in sides for size in pair), self.padding_mode), (0,) * len(pads)
        return ops.conv(
            x,
            self.weight,
            self.bias,
            strides=self.stride,
            pads=pads,
            dilations=self.dilation,
            group=self.groups,
        )


class Conv1d(_Conv):
    """Convolution along one axis: (N, C, L) to (N, out_channels, L'), or both without N.

    Args:
        padding: zeros on both sides; "valid" for none; "same" (with stride 1) for L' = L.
        groups: the number of groups of channels; each is convolved separately.
        padding_mode: what the padding holds: "zeros", or "reflect", "replicate" or "circular" as in `F.pad`.
    """

    axes = 1


class Conv2d(_Conv):
    """Convolution over images: (N, C, H, W) to (N, out_channels, H', W'), or both without N.

    The arguments are those of `Conv1d`, each one number or a pair.
    """

    axes = 2


class Conv3d(_Conv):
    """Convolution over volumes: (N, C, D, H, W) to (N, out_channels, D', H', W').

    The arguments are those of `Conv1d`, each one number or three.
    """

    axes = 3


class _ConvTranspose(_Convolution):
    @torch_names_and("device")
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        name, axes = type(self).__name__, self.axes
        self._set_sizes(in_channels, out_channels, kernel_size, stride, dilation, groups)
        self.padding = per_axis(name, "padding", padding, axes)
        self.output_padding = per_axis(name, "output_padding", output_padding, axes)
        self._set_parameters(in_channels, out_channels, bias, dtype)

    def over(self, x: Tensor) -> Tensor:
        return ops.conv_transpose(
            x,
            self.weight,
            self.bias,
            strides=self.stride,
            pads=self.padding * 2,
            output_padding=self.output_padding,
            dilations=self.dilation,
            group=self.groups,
        )


class ConvTranspose1d(_ConvTranspose):
    """The transpose of a convolution along one axis: (N, C, L) to (N, out_channels, L').

    Args:
        padding: zeros that a convolution from L' to L would have on both sides.
        output_padding: added to L', which has several possible sizes with a stride.
    """

    axes = 1


class ConvTranspose2d(_ConvTranspose):
    """The transpose of a convolution over images: (N, C, H, W) to (N, out_channels, H', W').

    The arguments are those of `ConvTranspose1d`, each one number or a pair.
    """

    axes = 2


class ConvTranspose3d(_ConvTranspose):
    """The transpose of a convolution over volumes: (N, C, D, H, W) to (N, out_channels, D', H', W').

    The arguments are those of `ConvTranspose1d`, each one number or three.
    """

    axes = 3
