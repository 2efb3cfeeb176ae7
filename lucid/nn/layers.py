"""Layers: linear maps, tables, activations, gated units, dropout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from lucid.core.graph.types import DTypeLike, TensorType, int64, spec
from lucid.core.sizes.dims import Size
from lucid.core.torch_names.argument_names import torch_names, torch_names_and
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn._checks import check_positive, check_probability, check_row
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
    """A table of vectors: integer indices (...) to (..., embedding_dim).

    The vector of `padding_idx` starts as zeros and has no gradient. `_freeze` sets `requires_grad` to false.

    Raises:
        ValueError: for a `padding_idx` that is no row.
    """

    quantizable: ClassVar = {"weight": "table"}

    @torch_names_and("device", "scale_grad_by_freq", "sparse")
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        _freeze: bool = False,
    ) -> None:
        check_positive("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = check_row("Embedding", "padding_idx", padding_idx, num_embeddings)
        self.weight = init.new_table(num_embeddings, embedding_dim, self.padding_idx, dtype).requires_grad_(not _freeze)

    def forward(self, indices: Tensor) -> Tensor:
        return F.embedding(indices, self.weight, self.padding_idx)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"indices": spec("N", "L", dtype=int64)}

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.weight.shape))


class TiedEmbedding(Embedding):
    """An `Embedding` whose table is also the output layer: a model multiplies by it, `F.linear(x, embedding.weight)`.

    `lucid.quantize` stores it in the layout for products.
    """

    quantizable: ClassVar = {"weight": "linear"}


class EmbeddingBag(Module):
    """A table of vectors, and the mean, sum or maximum of the vectors in each bag of indices; see `F.embedding_bag`."""

    @torch_names_and("device", "scale_grad_by_freq", "sparse")
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        check_positive("EmbeddingBag", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.mode, self.include_last_offset = mode, include_last_offset
        self.padding_idx = check_row("EmbeddingBag", "padding_idx", padding_idx, num_embeddings)
        self.weight = init.new_table(num_embeddings, embedding_dim, self.padding_idx, dtype)

    def forward(
        self, indices: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(
            indices,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"indices": spec("N", "L", dtype=int64)}

    def extra_repr(self) -> str:
        return f"{', '.join(map(str, self.weight.shape))}, mode={self.mode}"


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
    """x times the standard normal distribution function; ``approximate="tanh"`` for the approximation of GPT-2.

    Raises:
        ValueError: for another approximation.
    """

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f'GELU: approximate is {approximate!r}, expected "none" or "tanh"')
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class InPlace(Module):
    """The base of activations with torch's option `inplace`, which changes nothing: the result is a new tensor."""

    def __init__(self, inplace: bool = False) -> None:
        """`inplace` changes nothing: the result is always a new tensor."""


class ReLU(InPlace):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class SiLU(InPlace):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()


class AlongAxis(Module):
    """The base of functions along an axis, by default the last one."""

    @torch_names
    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class Softmax(AlongAxis):
    """exp(x) normalised to sum 1 along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.axis)


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
    """Resizes the spatial axes of (N, C, *spatial); the arguments are those of `F.interpolate`."""

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


class GLU(AlongAxis):
    """The first half of an axis times the sigmoid of the second (Dauphin et al. 2017)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, self.axis)


class GatedMLP(Module):
    """down(activation(gate(x)) * up(x)) (Shazeer 2020): (..., dim) to (..., dim).

    State: ``gate_proj``, ``up_proj``, ``down_proj``, each a `Linear`, as Llama names them.

    Args:
        dim: the width.
        hidden_dim: the inner width.
        activation: the gate's activation.
        bias: whether the three projections have biases.
    """

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        activation: Callable[[Tensor], Tensor] = F.silu,
        bias: bool = False,
        dtype: DTypeLike | None = None,
    ) -> None:
        self.gate_proj = Linear(dim, hidden_dim, bias, dtype)
        self.up_proj = Linear(dim, hidden_dim, bias, dtype)
        self.down_proj = Linear(hidden_dim, dim, bias, dtype)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"x": spec("N", "L", self.gate_proj.in_features, dtype=self.gate_proj.weight.dtype)}


class SwiGLU(GatedMLP):
    """A `GatedMLP` with SiLU, as in Llama."""

    def __init__(self, dim: int, hidden_dim: int, bias: bool = False, dtype: DTypeLike | None = None) -> None:
        super().__init__(dim, hidden_dim, F.silu, bias, dtype)
