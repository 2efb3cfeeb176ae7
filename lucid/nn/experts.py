"""Mixture of experts: each token goes through a few of many feed-forward layers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lucid.core.graph.types import DTypeLike, TensorType, int64, spec
from lucid.nn import init
from lucid.nn._checks import check_positive
from lucid.nn.init import new_parameter
from lucid.nn.layers import Linear
from lucid.nn.module import Module
from lucid.ops.experts import GATES, gated_experts, mixture_of_experts
from lucid.ops.tensor.tensor import Tensor


class GatedExperts(Module):
    """down(activation(gate(x)) * up(x)) by the experts chosen for each token: (..., dim) to (..., dim).

    Your own router chooses the experts; `MixtureOfExperts` has the usual router.

    State: ``gate_up_proj`` (num_experts, 2 hidden_dim, dim) and ``down_proj`` (num_experts, dim, hidden_dim), as in
    transformers.

    Args:
        num_experts: how many there are.
        dim: the width of a token.
        hidden_dim: the inner width of one expert.
        activation: "silu" (SwiGLU), "gelu", "gelu_tanh" or "relu".

    Raises:
        ValueError: for sizes that are not positive, or another activation.
    """

    def __init__(
        self,
        num_experts: int,
        dim: int,
        hidden_dim: int,
        activation: str = "silu",
        dtype: DTypeLike | None = None,
    ) -> None:
        check_positive("GatedExperts", num_experts=num_experts, dim=dim, hidden_dim=hidden_dim)
        if activation not in GATES:
            raise ValueError(f"GatedExperts: activation is {activation!r}, expected one of {', '.join(GATES)}")
        outer, inner = 1 / math.sqrt(dim), 1 / math.sqrt(hidden_dim)  # as of a Linear
        self.gate_up_proj = init.uniform_(new_parameter(num_experts, 2 * hidden_dim, dim, dtype=dtype), -outer, outer)
        self.down_proj = init.uniform_(new_parameter(num_experts, dim, hidden_dim, dtype=dtype), -inner, inner)
        self.activation = activation

    def forward(self, x: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
        """Tokens (..., dim), the experts (..., k) of each, integers, and their weights (..., k) to (..., dim)."""
        return gated_experts(x, indices, weights, self.gate_up_proj, self.down_proj, activation=self.activation)

    def input_specs(self) -> Mapping[str, TensorType]:
        _, dim, _ = self.down_proj.shape
        return {
            "x": spec("N", "L", dim, dtype=self.down_proj.dtype),
            "indices": spec("N", "L", 1, dtype=int64),
            "weights": spec("N", "L", 1, dtype=self.down_proj.dtype),
        }

    def extra_repr(self) -> str:
        experts, dim, hidden_dim = self.down_proj.shape
        return f"{experts}, {dim}, {hidden_dim}, {self.activation}"


class MixtureOfExperts(Module):
    """A feed-forward layer of experts, and the router that chooses k of them for each token (Shazeer et al. 2017).

    The router is a linear layer and a softmax; the most probable experts are weighted with their probabilities. It
    takes the place of a `GatedMLP`: (..., dim) to (..., dim). Time grows with k, not with the number of experts.

    State: ``gate``, a `Linear` without bias, and ``experts``, a `GatedExperts`.

    Args:
        num_experts: how many there are.
        k: the number of experts for each token.
        dim: the width of a token.
        hidden_dim: the inner width of one expert.
        activation: "silu" (SwiGLU), "gelu", "gelu_tanh" or "relu".
        normalized: whether the weights of a token's experts are divided by their sum.

    Raises:
        ValueError: for more experts a token than there are, or as `GatedExperts`.
    """

    def __init__(
        self,
        num_experts: int,
        k: int,
        dim: int,
        hidden_dim: int,
        activation: str = "silu",
        normalized: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        check_positive("MixtureOfExperts", num_experts=num_experts, k=k)
        if k > num_experts:
            raise ValueError(f"MixtureOfExperts: k is {k}, expected 1 to {num_experts}, the number of experts")
        self.gate = Linear(dim, num_experts, False, dtype)
        self.experts = GatedExperts(num_experts, dim, hidden_dim, activation, dtype)
        self.k, self.normalized = k, normalized

    def forward(self, x: Tensor) -> Tensor:
        experts = self.experts
        return mixture_of_experts(
            x,
            self.gate(x),
            experts.gate_up_proj,
            experts.down_proj,
            k=self.k,
            normalized=self.normalized,
            activation=experts.activation,
        )

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"x": spec("N", "L", self.gate.in_features, dtype=self.gate.weight.dtype)}

    def extra_repr(self) -> str:
        return f"k={self.k}{'' if self.normalized else ', normalized=False'}"
