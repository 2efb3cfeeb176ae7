"""Activation functions with torch's arguments, made of ops. `inplace` changes nothing: the result is a new tensor."""

from __future__ import annotations

from lucid import ops
from lucid.core.graph.types import DTypeLike, show_shape
from lucid.core.sizes.dims import same
from lucid.core.torch_names.arguments import torch_names
from lucid.ops.derived import expm1
from lucid.ops.shaping import normalize_axis
from lucid.ops.tensor.tensor import Tensor


@torch_names
def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    return ops.relu(x)


@torch_names
def relu6(x: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)."""
    return ops.clamp(x, 0, 6)


@torch_names
def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where it is positive, else `negative_slope` times x (Maas et al. 2013)."""
    return ops.where(x > 0, x, x * negative_slope)


@torch_names
def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1), accurate near 0 (Clevert et al. 2015)."""
    return ops.where(x > 0, x, alpha * expm1(ops.minimum(x, 0)))


@torch_names
def silu(x: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return ops.silu(x)


@torch_names
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the standard normal distribution function; "tanh" is the approximation that GPT-2 uses."""
    return ops.gelu(x, approximate=approximate)


@torch_names
def hardsigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x + 3, 0), 6) / 6."""
    return relu6(x + 3) / 6


@torch_names
def hardswish(x: Tensor, inplace: bool = False) -> Tensor:
    """x * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019)."""
    return x * hardsigmoid(x)


@torch_names
def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return ops.sigmoid(x)


@torch_names
def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return ops.tanh(x)


@torch_names
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""
    scaled = x if beta == 1 else x * beta
    soft = ops.softplus(scaled)
    return ops.where(scaled > threshold, x, soft if beta == 1 else soft / beta)


@torch_names
def logsigmoid(x: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x)))."""
    return -ops.softplus(-x)


@torch_names
def glu(x: Tensor, axis: int = -1) -> Tensor:
    """The first half of an axis times the sigmoid of the second (Dauphin et al. 2017).

    Raises:
        ValueError: for an axis of an odd size.
    """
    if not same(x.shape[normalize_axis("glu", axis, x.ndim)] % 2, 0):
        raise ValueError(f"glu: axis {axis} of {show_shape(x.shape)} has an odd size, expected an even one")
    value, gate = x.chunk(2, axis)
    return value * gate.sigmoid()


@torch_names
def softmax(x: Tensor, axis: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """exp(x) normalised to sum 1 along an axis; `dtype`: converted to this element type first."""
    return ops.softmax(x if dtype is None else x.astype(dtype), axis=axis)


@torch_names
def log_softmax(x: Tensor, axis: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of softmax; `dtype`: converted to this element type first."""
    return ops.log_softmax(x if dtype is None else x.astype(dtype), axis=axis)
