"""Activations and other layers that only call a function, under torch's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from lucid.core.graph.types import DTypeLike
from lucid.core.torch_names.argument_names import torch_names, torch_names_and
from lucid.nn import functional as F
from lucid.nn.init import new_parameter
from lucid.nn.layers import AlongAxis, Dropout, InPlace
from lucid.nn.module import Module
from lucid.ops.creation import ones
from lucid.ops.tensor.tensor import Tensor


class ReLU6(InPlace):
    """min(max(x, 0), 6)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x)


class Hardswish(InPlace):
    """x * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(x)


class Hardsigmoid(InPlace):
    """min(max(x + 3, 0), 6) / 6."""

    def forward(self, x: Tensor) -> Tensor:
        return F.hardsigmoid(x)


class Mish(InPlace):
    """x * tanh(softplus(x)) (Misra 2019)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.mish(x)


class _Exponential(Module):
    @torch_names_and("inplace")
    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class ELU(_Exponential):
    """x where it is positive, else alpha * (exp(x) - 1) (Clevert et al. 2015)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, self.alpha)


class CELU(_Exponential):
    """x where it is positive, else alpha * (exp(x / alpha) - 1) (Barron 2017)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.celu(x, self.alpha)


class SELU(InPlace):
    """`ELU` with the slope and the scale that keep means and variances (Klambauer et al. 2017)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.selu(x)


class Hardtanh(Module):
    """min(max(x, min_val), max_val)."""

    @torch_names_and("inplace")
    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(x, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Softsign(Module):
    """x / (1 + |x|) (Bergstra et al. 2009)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softsign(x)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.tanhshrink(x)


class LogSigmoid(Module):
    """log(1 / (1 + exp(-x)))."""

    def forward(self, x: Tensor) -> Tensor:
        return F.logsigmoid(x)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class PReLU(Module):
    """x where it is positive, else a learned weight times x, one for all channels or one each (He et al. 2015)."""

    @torch_names_and("device")
    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: DTypeLike | None = None) -> None:
        self.weight = new_parameter(num_parameters, dtype=dtype, value=init)

    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.weight.shape[0]}"


class LogSoftmax(AlongAxis):
    """The logarithm of softmax along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x, self.axis)


class Softmin(AlongAxis):
    """The softmax of -x along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softmin(x, self.axis)


class PixelShuffle(Module):
    """(..., C * r * r, H, W) to (..., C, H * r, W * r), r the `upscale_factor` (Shi et al. 2016)."""

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(x, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(..., C, H * r, W * r) to (..., C * r * r, H, W), r the `downscale_factor`."""

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """(N, C, *spatial) with the channels of all groups taken in turn (Zhang et al. 2018)."""

    def __init__(self, groups: int) -> None:
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        return F.channel_shuffle(x, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Unflatten(Module):
    """An axis divided into several, of the sizes `unflattened_size`; -1 stands for one that follows."""

    @torch_names
    def __init__(self, axis: int, unflattened_size: Sequence[int]) -> None:
        self.axis, self.unflattened_size = axis, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(self.axis, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"axis={self.axis}, unflattened_size={self.unflattened_size}"


class _Pad(Module):
    """Padding of the last axes; `padding` is one number, or two for each axis, the last axis first."""

    axes: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: int | Sequence[int]) -> None:
        self.padding = tuple(padding) if isinstance(padding, Iterable) else (padding,) * 2 * self.axes

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"padding={self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.padding, value=self.value)


class ConstantPad1d(_ConstantPad):
    """Pads the last axis with a number; `padding` is one number, or two."""

    axes = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two axes with a number; `padding` is one number, or four, the last axis first."""

    axes = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three axes with a number; `padding` is one number, or six, the last axis first."""

    axes = 3


class ZeroPad1d(_Pad):
    """Pads the last axis with zeros; `padding` is one number, or two."""

    axes, mode = 1, "constant"


class ZeroPad2d(_Pad):
    """Pads the last two axes with zeros; `padding` is one number, or four, the last axis first."""

    axes, mode = 2, "constant"


class ZeroPad3d(_Pad):
    """Pads the last three axes with zeros; `padding` is one number, or six, the last axis first."""

    axes, mode = 3, "constant"


class ReflectionPad1d(_Pad):
    """Pads the last axis with its mirror image; `padding` is one number, or two."""

    axes, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Pads the last two axes with their mirror image; `padding` is one number, or four, the last axis first."""

    axes, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Pads the last three axes with their mirror image; `padding` is one number, or six, the last axis first."""

    axes, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Pads the last axis with the elements at the border; `padding` is one number, or two."""

    axes, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Pads the last two axes with the elements at the border; `padding` is one number, or four, the last axis first."""

    axes, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Pads the last three axes with their border; `padding` is one number, or six, the last axis first."""

    axes, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Pads the last axis with the other end; `padding` is one number, or two."""

    axes, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Pads the last two axes with the other end; `padding` is one number, or four, the last axis first."""

    axes, mode = 2, "circular"


class CircularPad3d(_Pad):
    """Pads the last three axes with the other end; `padding` is one number, or six, the last axis first."""

    axes, mode = 3, "circular"


class Dropout2d(Dropout):
    """Zeroes whole channels of (N, C, H, W) with probability p while training; the identity in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * F.dropout(ones(*x.shape[:2], *(1,) * (x.ndim - 2), dtype=x.dtype), self.p)
