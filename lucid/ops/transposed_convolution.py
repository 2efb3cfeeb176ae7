"""The transpose of a convolution: every element of the input writes a window of the output."""

from __future__ import annotations

import math

import numpy as np

from lucid.core.graph.types import Array, TensorType, same_shape, show_shape
from lucid.core.sizes.dims import same
from lucid.ops.op import primitive
from lucid.ops.tensor.tensor import Tensor

Ints = tuple[int, ...]


def _rule(
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
    axes = x.rank - 2
    given = f"conv_transpose: input {show_shape(x.shape)}, weight {show_shape(weight.shape)}"
    if axes < 1 or weight.rank != x.rank:
        raise ValueError(f"{given}: expected (N, C, *spatial) and (C, out / group, *kernel) with equally many axes")
    if x.dtype.kind != "float" or weight.dtype != x.dtype or (bias is not None and bias.dtype != x.dtype):
        raise TypeError(f"conv_transpose: got {x} and {weight}, expected one floating-point type; use .astype(...)")
    if group < 1 or not same(weight.shape[0], x.shape[1]) or not same(weight.shape[0] % group, 0):
        raise ValueError(f"{given}: expected {weight.shape[0]} channels, divisible by group {group}")
    channels = weight.shape[1] * group
    if bias is not None and not same_shape(bias.shape, (channels,)):
        raise ValueError(f"{given}: the bias has shape {show_shape(bias.shape)}, expected [{channels}]")
    if not len(strides) == len(output_padding) == len(dilations) == axes or len(pads) != 2 * axes:
        raise ValueError(
            f"{given}: strides {strides}, output_padding {output_padding} and dilations {dilations} need one number "
            f"for each spatial axis, pads {pads} two"
        )
    if any(more >= max(s, d) for more, s, d in zip(output_padding, strides, dilations, strict=True)):
        raise ValueError(f"{given}: output_padding {output_padding} must be smaller than the stride or the dilation")
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


def _kernel(
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
    if dtype.itemsize == 2:  # as in matmul: multiply in float32 and round once
        x, weight = x.astype(np.float32), weight.astype(np.float32)
    # What each element adds at each place of its window: (N, group, out, *kernel, *spatial).
    flat = weight.reshape(group, c // group, out * math.prod(kernel)).transpose(0, 2, 1)
    parts = np.matmul(flat, x.reshape(n, group, c // group, math.prod(spatial)))
    parts = parts.reshape(n, group * out, *kernel, *spatial)
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
        result[(slice(None), slice(None), *ends)] += parts[(slice(None), slice(None), *place)]
    if min(size - pads[i] - pads[axes + i] for i, size in enumerate(whole)) < 1:
        raise ValueError(f"conv_transpose: input {show_shape(x.shape)} is too short: pads {pads} leave no elements")
    cuts = [slice(pads[i], whole[i] - pads[axes + i]) for i in range(axes)]
    result = result[(slice(None), slice(None), *cuts)]
    if bias is not None:
        result = result + bias.astype(result.dtype).reshape(-1, *[1] * axes)
    return np.asarray(result).astype(dtype)


@primitive(kernel=_kernel, rule=_rule, onnx="ConvTranspose")
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
