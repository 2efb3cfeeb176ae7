"""Convolutions as functions, with torch's arguments; and the reading of these arguments, which the modules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lucid import ops
from lucid.core.graph.types import show_shape
from lucid.core.torch_names.arguments import torch_names
from lucid.ops.tensor.tensor import Tensor

Ints: TypeAlias = int | Sequence[int]


def per_axis(where: str, name: str, value: Ints, axes: int) -> tuple[int, ...]:
    """One number for each spatial axis."""
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values *= axes
    if len(values) != axes:
        raise ValueError(f"{where}: {name} is {value!r}, expected one number or {axes}")
    return values


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
    """A function of (N, C, *spatial), with `axes` spatial axes, called with a batch of them or with one (C, *spatial).

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
        steps, gaps = per_axis(name, "stride", stride, axes), per_axis(name, "dilation", dilation, axes)
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
                strides=per_axis(name, "stride", stride, axes),
                pads=per_axis(name, "padding", padding, axes) * 2,
                output_padding=per_axis(name, "output_padding", output_padding, axes),
                dilations=per_axis(name, "dilation", dilation, axes),
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
conv_transpose1d, conv_transpose2d = _transposed(1), _transposed(2)
