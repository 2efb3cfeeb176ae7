"""Attention with a projection of queries, keys, values and outputs each, under the names that most checkpoints have."""

from __future__ import annotations

from lucid import Tensor, nn, ops


class Projections(nn.Module):
    """The projections of an attention layer, each from and to vectors of one width."""

    def __init__(self, width: int, heads: int, key_bias: bool = True) -> None:
        self.num_heads = heads
        self.q_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(3))
        self.k_proj = nn.Linear(width, width, bias=key_bias)


class ProjectedAttention(Projections):
    """Attention of a query (N, L, E) to a key and its value (N, S, E) each: (N, L, E)."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """`key_mask` (N, S) is false for padding."""
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return self.out_proj(ops.attention(q, k, v, None, key_mask, heads=self.num_heads, is_causal=is_causal))
