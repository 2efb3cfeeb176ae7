"""Layers: linear maps, tables, normalisations, activations, dropout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from lucid.core.graph.types import DTypeLike, TensorType, int64, spec
from lucid.core.sizes.dims import Size
from lucid.core.torch_names.arguments import torch_names, torch_names_and
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn._checks import check_positive, check_probability
from lucid.nn.init import new_parameter as new_parameter
from lucid.nn.module import Module
from lucid.ops.tensor.tensor import Tensor


class Linear(Module):
    """x @ weight.T + bias with weight (out_features, in_features): (..., in_features) to (..., out_features)."""

    quantizable: ClassVar = {"weight": "linear"}

    @torch_names_and("device")
    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: DTypeLike | None = None) -> None:
        check_positive("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = init.kaiming_uniform_(new_parameter(out_features, in_features, dtype=dtype), a=math.sqrt(5))
        bound = 1 / math.sqrt(in_features)
        self.bias = init.uniform_(new_parameter(out_features, dtype=dtype), -bound, bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"x": spec("N", self.in_features, dtype=self.weight.dtype)}

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}{'' if self.bias is not None else ', bias=False'}"


class Embedding(Module):
    """A table of vectors: integer indices (...) to (..., embedding_dim)."""

    quantizable: ClassVar = {"weight": "table"}

    @torch_names_and("device", "padding_idx", "scale_grad_by_freq", "sparse")
    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: DTypeLike | None = None) -> None:
        check_positive("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.weight = init.normal_(new_parameter(num_embeddings, embedding_dim, dtype=dtype))

    def forward(self, indices: Tensor) -> Tensor:
        return F.embedding(indices, self.weight)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"indices": spec("N", "L", dtype=int64)}

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.weight.shape))


class TiedEmbedding(Embedding):
    """An `Embedding` whose table is the output layer too: a model multiplies by it, `F.linear(x, embedding.weight)`.

    `lucid.quantize` stores it as products need it.
    """

    quantizable: ClassVar = {"weight": "linear"}


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
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        for size in shape:
            check_positive("LayerNorm", normalized_shape=size)
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
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        for size in sizes:
            check_positive("RMSNorm", normalized_shape=size)
        self.normalized_shape, self.eps = sizes, eps
        self.weight = new_parameter(*sizes, dtype=dtype, value=1.0) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{', '.join(map(str, self.normalized_shape))}, eps={self.eps}"


class Dropout(Module):
    """Zero elements with probability p while training; the identity in evaluation and in exported models."""

    @torch_names_and("inplace")
    def __init__(self, p: float = 0.5) -> None:
        check_probability("Dropout", "p", p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class GELU(Module):
    """x times the standard normal distribution function; ``approximate="tanh"`` for the approximation of GPT-2."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f'GELU: approximate is {approximate!r}, expected "none" or "tanh"')
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace: bool = False) -> None:
        """`inplace` changes nothing: the result is always a new tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class SiLU(Module):
    """x * sigmoid(x)."""

    def __init__(self, inplace: bool = False) -> None:
        """`inplace` changes nothing: the result is always a new tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()


class Softmax(Module):
    """exp(x) normalised to sum 1 along an axis."""

    @torch_names
    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class Identity(Module):
    """Returns its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class LeakyReLU(Module):
    """x where it is positive, else `negative_slope` times x (Maas et al. 2013)."""

    @torch_names_and("inplace")
    def __init__(self, negative_slope: float = 1e-2) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class Flatten(Module):
    """Joins the axes from `start` to `end` into one; by default all but the first."""

    @torch_names
    def __init__(self, start: int = 1, end: int = -1) -> None:
        self.start, self.end = start, end

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start, self.end)

    def extra_repr(self) -> str:
        return f"start={self.start}, end={self.end}"


class Upsample(Module):
    """Brings the spatial axes of (N, C, *spatial) to another size; the arguments are those of `F.interpolate`."""

    def __init__(
        self,
        size: Size | Sequence[Size] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        options = (self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)
        return F.interpolate(x, *options)

    def extra_repr(self) -> str:
        target = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{target}, mode={self.mode!r}"
