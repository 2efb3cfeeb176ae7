"""Pooling with torch's arguments: maxima and means of windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucid.core.graph.types import TensorType, float32
from lucid.nn import functional as F
from lucid.nn._checks import check_positive
from lucid.nn._pools import strides_of
from lucid.nn.convolution import Ints, Spatial, per_axis
from lucid.nn.module import Module
from lucid.ops.tensor.tensor import Tensor

_MAXIMA = F.max_pool1d, F.max_pool2d, F.max_pool3d
_MEANS = F.avg_pool1d, F.avg_pool2d, F.avg_pool3d
_MEANS_OF_CELLS = F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d
_MAXIMA_OF_CELLS = F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d


class _Pool(Spatial):
    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        name = type(self).__name__
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, self.axes, 1)
        self.stride = strides_of(name, stride, self.kernel_size)
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
        self.dilation = per_axis(type(self).__name__, "dilation", dilation, self.axes, 1)
        self.ceil_mode, self.return_indices = ceil_mode, return_indices

    def _pairs(self, x: Tensor) -> Any:
        pool, sizes = _MAXIMA[self.axes - 1], (self.kernel_size, self.stride, self.padding, self.dilation)
        return pool(x, *sizes, self.ceil_mode, self.return_indices)

    def over(self, x: Tensor) -> Tensor:
        result: Tensor = self._pairs(x)
        return result

    def forward(self, x: Tensor) -> Any:
        return self._pairs(x) if self.return_indices else super().forward(x)


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
        pool, options = _MEANS[self.axes - 1], (self.count_include_pad, self.divisor_override)
        means: Tensor = pool(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, *options)
        return means


class MaxPool1d(_MaxPool):
    """The maximum of windows of (N, C, L) or (C, L). The stride is the kernel size unless given."""

    axes = 1


class MaxPool2d(_MaxPool):
    """The maximum of windows of (N, C, H, W) or (C, H, W). The stride is the kernel size unless given."""

    axes = 2


class MaxPool3d(_MaxPool):
    """The maximum of windows of (N, C, D, H, W) or (C, D, H, W). The stride is the kernel size unless given."""

    axes = 3


class AvgPool1d(_AveragePool):
    """The mean of windows of (N, C, L) or (C, L). The stride is the kernel size unless given."""

    axes = 1


class AvgPool2d(_AveragePool):
    """The mean of windows of (N, C, H, W) or (C, H, W). The stride is the kernel size unless given."""

    axes = 2


class AvgPool3d(_AveragePool):
    """The mean of windows of (N, C, D, H, W) or (C, D, H, W). The stride is the kernel size unless given."""

    axes = 3


class _AdaptivePool(Spatial):
    def __init__(self, output_size: Any) -> None:
        self.output_size = per_axis(type(self).__name__, "output_size", output_size, self.axes, None)
        for size in self.output_size:
            if size is not None:
                check_positive(type(self).__name__, output_size=size)

    def over(self, x: Tensor) -> Tensor:
        result: Tensor = _MEANS_OF_CELLS[self.axes - 1](x, self.output_size)
        return result

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.image_specs("C", float32)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        return _MAXIMA_OF_CELLS[self.axes - 1](x, self.output_size, self.return_indices)


class AdaptiveAvgPool1d(_AdaptivePool):
    """Means over windows that divide L into `output_size` cells: (N, C, L) to (N, C, output_size)."""

    axes = 1


class AdaptiveAvgPool2d(_AdaptivePool):
    """Means over windows that divide H and W into cells: (N, C, H, W) to (N, C, *output_size)."""

    axes = 2


class AdaptiveAvgPool3d(_AdaptivePool):
    """Means over windows that divide D, H and W into cells: (N, C, D, H, W) to (N, C, *output_size)."""

    axes = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over windows that divide L into `output_size` cells; with `return_indices` also their places."""

    axes = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over windows that divide H and W into cells; with `return_indices` also their places."""

    axes = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over windows that divide D, H and W into cells; with `return_indices` also their places."""

    axes = 3


class Unfold(Module):
    """The windows of images (N, C, H, W) as columns, (N, C * window, number of windows); see `F.unfold`."""

    def __init__(self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None:
        options = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
        self.sizes = {
            name: per_axis("Unfold", name, value, 2, int(name != "padding")) for name, value in options.items()
        }

    def forward(self, x: Tensor) -> Tensor:
        return F.unfold(x, **self.sizes)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.sizes.items())


class Fold(Unfold):
    """The sums of windows as images, which undoes `Unfold` where no windows overlap; see `F.fold`."""

    def __init__(
        self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = per_axis("Fold", "output_size", output_size, 2, None)

    def forward(self, x: Tensor) -> Tensor:
        return F.fold(x, self.output_size, **self.sizes)
