"""Pooling with torch's arguments: maxima and means of windows."""

from __future__ import annotations

from collections.abc import Mapping

from lucid import ops
from lucid.core.graph.types import TensorType, float32
from lucid.nn._checks import check_positive
from lucid.nn._image_sampling import unfold
from lucid.nn._pools import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from lucid.nn.convolution import Ints, Spatial, per_axis
from lucid.nn.module import Module
from lucid.ops.tensor.tensor import Tensor


class _Pool(Spatial):
    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        name = type(self).__name__
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, self.axes)
        self.stride = per_axis(name, "stride", kernel_size if stride is None else stride, self.axes)
        self.padding = per_axis(name, "padding", padding, self.axes)

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.image_specs("C", float32)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        if return_indices:
            raise ValueError(f"{type(self).__name__}: return_indices=True is not supported; F.unfold gives the windows")
        self.dilation = per_axis(type(self).__name__, "dilation", dilation, self.axes)
        self.ceil_mode = ceil_mode

    def over(self, x: Tensor) -> Tensor:
        pool = (max_pool1d, max_pool2d)[self.axes - 1]
        return pool(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


class _AveragePool(_Pool):
    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: float | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def over(self, x: Tensor) -> Tensor:
        pool, options = (avg_pool1d, avg_pool2d)[self.axes - 1], (self.count_include_pad, self.divisor_override)
        return pool(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, *options)


class MaxPool1d(_MaxPool):
    """The maximum of windows of (N, C, L) or (C, L). The stride is the kernel size unless given."""

    axes = 1


class MaxPool2d(_MaxPool):
    """The maximum of windows of (N, C, H, W) or (C, H, W). The stride is the kernel size unless given."""

    axes = 2


class AvgPool1d(_AveragePool):
    """The mean of windows of (N, C, L) or (C, L). The stride is the kernel size unless given."""

    axes = 1


class AvgPool2d(_AveragePool):
    """The mean of windows of (N, C, H, W) or (C, H, W). The stride is the kernel size unless given."""

    axes = 2


class _AdaptiveAveragePool(Spatial):
    def __init__(self, output_size: Ints) -> None:
        self.output_size = per_axis(type(self).__name__, "output_size", output_size, self.axes)
        for size in self.output_size:
            check_positive(type(self).__name__, output_size=size)

    def over(self, x: Tensor) -> Tensor:
        return ops.adaptive_average_pool(x, output_size=self.output_size)

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.image_specs("C", float32)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAveragePool):
    """Means over windows that divide L into `output_size` cells: (N, C, L) to (N, C, output_size)."""

    axes = 1


class AdaptiveAvgPool2d(_AdaptiveAveragePool):
    """Means over windows that divide H and W into cells: (N, C, H, W) to (N, C, *output_size)."""

    axes = 2


class Unfold(Module):
    """The windows of images (N, C, H, W) as columns, (N, C * window, number of windows); see `F.unfold`."""

    def __init__(self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None:
        given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
        self.sizes = {name: per_axis("Unfold", name, value, 2) for name, value in given.items()}

    def forward(self, x: Tensor) -> Tensor:
        return unfold(x, **self.sizes)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.sizes.items())
