"""Gated units: one projection scales another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lucid.core.graph.types import DTypeLike, TensorType, spec
from lucid.core.torch_names.arguments import torch_names
from lucid.nn import functional as F
from lucid.nn.layers import Linear
from lucid.nn.module import Module
from lucid.ops.tensor.tensor import Tensor


class GLU(Module):
    """The first half of an axis times the sigmoid of the second (Dauphin et al. 2017)."""

    @torch_names
    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


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
