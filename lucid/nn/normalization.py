"""Normalisation over the last axes and over channels, with torch's arguments and state keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from lucid import ops
from lucid.core.graph.types import DTypeLike, TensorType, as_dtype, convert, float32, show_shape, spec
from lucid.core.torch_names.argument_names import torch_names_and
from lucid.nn import functional as F
from lucid.nn._checks import check_positive, check_probability
from lucid.nn.convolution import Spatial
from lucid.nn.init import new_parameter
from lucid.nn.module import Module
from lucid.ops.elementwise import at_least_float32
from lucid.ops.tensor.tensor import Tensor, TracedValueError


def _sizes(name: str, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(normalized_shape) if isinstance(normalized_shape, Iterable) else (normalized_shape,)
    for size in sizes:
        check_positive(name, normalized_shape=size)
    return sizes


class LayerNorm(Module):
    """Layer normalisation over the last axes, which have the sizes `normalized_shape` (Ba et al. 2016)."""

    @torch_names_and("device")
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        shape = _sizes("LayerNorm", normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight = new_parameter(*shape, dtype=dtype, value=1.0) if elementwise_affine else None
        self.bias = new_parameter(*shape, dtype=dtype) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{', '.join(map(str, self.normalized_shape))}, eps={self.eps}"


class RMSNorm(Module):
    """Root-mean-square normalisation over the last axes, whose sizes are `normalized_shape` (Zhang & Sennrich 2019).

    The default `eps` is the machine epsilon of the type it is computed in, as in torch: 1.2e-7, for float64 2.2e-16.
    """

    @torch_names_and("device")
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        self.normalized_shape, self.eps = _sizes("RMSNorm", normalized_shape), eps
        self.weight = new_parameter(*self.normalized_shape, dtype=dtype, value=1.0) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{', '.join(map(str, self.normalized_shape))}, eps={self.eps}"


class _BatchNorm(Module):
    shapes: ClassVar[Mapping[int, str]]  # shapes of inputs by their number of axes; specs take the last one

    @torch_names_and("device", "track_running_stats")
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        name = type(self).__name__
        check_positive(name, num_features=num_features)
        self.num_features = num_features
        if momentum is not None:
            check_probability(name, "momentum", momentum)
        self.eps, self.momentum = eps, momentum
        self.weight = new_parameter(num_features, dtype=dtype, value=1.0) if affine else None
        self.bias = new_parameter(num_features, dtype=dtype) if affine else None
        numpy_dtype = as_dtype(float32 if dtype is None else dtype).numpy
        self.running_mean = Tensor(np.zeros(num_features, numpy_dtype))
        self.running_var = Tensor(np.ones(num_features, numpy_dtype))
        self.num_batches_tracked = Tensor(np.zeros((), np.int64))

    def forward(self, x: Tensor) -> Tensor:
        channels = self.running_mean.numpy().shape[0]
        if x.ndim not in self.shapes or x.shape[1] != channels:
            expected = " or ".join(f"(N, {channels}{rest})" for rest in self.shapes.values())
            raise ValueError(f"{type(self).__name__}: got shape {show_shape(x.shape)}, expected {expected}")
        if not self.training:
            return ops.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        wide = at_least_float32(x)  # half precision does not hold sums and squares of a batch
        normal = ops.batch_norm(wide, *self._batch_statistics(wide), self.weight, self.bias, eps=self.eps)
        return normal if wide is x else normal.astype(x.dtype)

    def _batch_statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.is_traced:
            raise TracedValueError(
                f"{type(self).__name__}: in training mode it changes its running statistics, which a traced function, "
                "such as that of value_and_grad, cannot: call eval() on it, to use the stored ones, or write "
                "F.batch_norm(x, None, None, weight, bias, training=True), to use those of the batch"
            )
        values = x.numpy()
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        mean, variance, count = values.mean(axes), values.var(axes), values.size // values.shape[1]
        if count < 2:
            raise ValueError(f"{type(self).__name__}: got {count} value(s) per channel in training, expected 2 or more")
        batches = self.num_batches_tracked.numpy() + 1
        m = 1 / batches if self.momentum is None else self.momentum
        updated = {}
        for name, new in (("running_mean", mean), ("running_var", variance * (count / (count - 1)))):
            old: Tensor = getattr(self, name)
            mixed = (1 - m) * old.numpy().astype(new.dtype) + m * new
            updated[name] = Tensor(convert(mixed, old.dtype, f"{type(self).__name__}: {name}"))
        self.running_mean, self.running_var = updated["running_mean"], updated["running_var"]
        self.num_batches_tracked = Tensor(batches)
        return Tensor(mean), Tensor(variance)

    def input_specs(self) -> Mapping[str, TensorType]:
        sizes = [*self.shapes.values()][-1].split(", ")[1:]
        return {"x": spec("N", *self.running_mean.shape, *sizes, dtype=self.running_mean.dtype)}

    def extra_repr(self) -> str:
        return f"{self.running_mean.shape[0]}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(_BatchNorm):
    """Batch normalisation (Ioffe & Szegedy 2015) of (N, C) or (N, C, L).

    In evaluation mode it uses the running statistics; in training mode, which is eager, it uses those of the batch
    and updates the running ones with `momentum`; with None they are the means over all batches. A statistic that the
    element type cannot hold is an OverflowError.

    State: ``weight``, ``bias``, ``running_mean``, ``running_var`` (C) and ``num_batches_tracked``.
    """

    shapes: ClassVar[Mapping[int, str]] = {2: "", 3: ", L"}


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of images (N, C, H, W); all else is as for `BatchNorm1d`."""

    shapes: ClassVar[Mapping[int, str]] = {4: ", H, W"}


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of volumes (N, C, D, H, W); all else is as for `BatchNorm1d`."""

    shapes: ClassVar[Mapping[int, str]] = {5: ", D, H, W"}


class _InstanceNorm(Spatial):
    @torch_names_and("device")
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        dtype: DTypeLike | None = None,
    ) -> None:
        check_positive(type(self).__name__, num_features=num_features)
        self.channels, self.eps, self.momentum = num_features, eps, momentum
        self.weight = new_parameter(num_features, dtype=dtype, value=1.0) if affine else None
        self.bias = new_parameter(num_features, dtype=dtype) if affine else None
        numpy_dtype = as_dtype(float32 if dtype is None else dtype).numpy
        self.running_mean = Tensor(np.zeros(num_features, numpy_dtype)) if track_running_stats else None
        self.running_var = Tensor(np.ones(num_features, numpy_dtype)) if track_running_stats else None
        self.num_batches_tracked = Tensor(np.zeros((), np.int64)) if track_running_stats else None

    def over(self, x: Tensor) -> Tensor:
        statistics = self.running_mean, self.running_var
        own = self.training or self.running_mean is None
        return F.instance_norm(x, *statistics, self.weight, self.bias, own, self.momentum, self.eps)

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.image_specs(self.channels or "C", float32 if self.weight is None else self.weight.dtype)

    def extra_repr(self) -> str:
        return f"{self.channels}, eps={self.eps}"


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each element of (N, C, L) or (C, L) by itself (Ulyanov et al. 2016).

    With `track_running_stats` it has running statistics, and uses them; then it cannot train.
    """

    axes = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalises each channel of each image (N, C, H, W) or (C, H, W) by itself; else as for `InstanceNorm1d`."""

    axes = 2


class InstanceNorm3d(_InstanceNorm):
    """Normalises each channel of each volume (N, C, D, H, W) by itself; else as for `InstanceNorm1d`."""

    axes = 3


class GroupNorm(Module):
    """Group normalisation (Wu & He 2018) of (N, C, *spatial), over each of `num_groups` groups of channels.

    Raises:
        ValueError: for sizes that are not positive, or groups that do not divide the channels.
    """

    @torch_names_and("device")
    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        check_positive("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_groups {num_groups} does not divide num_channels {num_channels}")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = new_parameter(num_channels, dtype=dtype, value=1.0) if affine else None
        self.bias = new_parameter(num_channels, dtype=dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.group_norm(x, self.weight, self.bias, groups=self.num_groups, eps=self.eps)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"x": spec("N", self.num_channels, "L", dtype=float32 if self.weight is None else self.weight.dtype)}

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}"
