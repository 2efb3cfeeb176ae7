"""The parameters of multi-head attention in one object, which projects its inputs and output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from lucid import ops
from lucid.core.graph.types import show_shape
from lucid.core.sizes.dims import Size, same
from lucid.nn.stored import StoredWeight, linear, rows_of
from lucid.ops.tensor.tensor import Tensor

NAME = "multi_head_attention"  # the name in errors
Weight: TypeAlias = Tensor | StoredWeight
W = TypeVar("W", bound=Weight)


@dataclass(frozen=True, eq=False)
class Projections:
    """The parameters of multi-head attention, where E_kv = E / heads * kv_heads, which is E without grouped heads.

    Args:
        embed_dim, heads, kv_heads: E, H and H_kv.
        in_weight: (E + 2 E_kv, E): query, key and value projections, stacked.
        in_weights: (E, E), (E_kv, kdim), (E_kv, vdim): the three projections, instead of `in_weight`.
        in_bias: (E + 2 E_kv), for either.
        out_weight, out_bias: (E, E), (E); without a weight the heads' outputs are not projected.
        bias_k, bias_v: (1, 1, E_kv): one more key and value after the sequence's own.
        add_zero_attn: one more key and value of zeros after these.

    Raises:
        ValueError: for heads that do not divide, and one of `bias_k` and `bias_v` without the other.
    """

    embed_dim: int
    heads: int
    kv_heads: int
    in_weight: Weight | None
    in_weights: tuple[Weight | None, Weight | None, Weight | None] | None
    in_bias: Tensor | None
    out_weight: Weight | None
    out_bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool

    def __post_init__(self) -> None:
        if self.heads < 1 or self.embed_dim % self.heads:
            raise ValueError(f"{NAME}: embed_dim {self.embed_dim} is not divisible by num_heads {self.heads}")
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(f"{NAME}: num_heads {self.heads} is not divisible by num_kv_heads {self.kv_heads}")
        if (self.bias_k is None) != (self.bias_v is None):
            raise ValueError(f"{NAME}: got only one of bias_k and bias_v, expected both or neither")

    @property
    def width(self) -> int:
        """E / H, the width of a head."""
        return self.embed_dim // self.heads

    def project(
        self, query: Tensor, key: Tensor, value: Tensor, static_k: Tensor | None, static_v: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(N, L, E), (N, S, kdim), (N, S, vdim) to (N, L, E), (N, S, E_kv), (N, S, E_kv).

        `static_k` and `static_v` (N*H, S, E/H) are used instead of the projected key and value.
        """
        if self.bias_k is not None and (static_k is not None or static_v is not None):
            raise ValueError(f"{NAME}: got static_k or static_v with bias_k and bias_v, expected one of these pairs")
        weights, biases = self._in_weights(), self._in_biases()
        return (
            linear(query, weights[0], biases[0]),
            linear(key, weights[1], biases[1]) if static_k is None else self._pack("static_k", static_k, key),
            linear(value, weights[2], biases[2]) if static_v is None else self._pack("static_v", static_v, value),
        )

    def project_query(self, query: Tensor) -> Tensor:
        """(N, L, E) to (N, L, E)."""
        return linear(query, self._in_weights()[0], self._in_biases()[0])

    def project_memory(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(N, S, kdim), (N, S, vdim) to (N, S, E_kv) each.

        Raises:
            ValueError: with `bias_k`, `bias_v` or `add_zero_attn`, whose rows come after all others.
        """
        if self.bias_k is not None or self.add_zero_attn:
            raise ValueError(f"{NAME}: add_bias_kv and add_zero_attn add rows after all others, so they take no cache")
        (_, *weights), (_, *biases) = self._in_weights(), self._in_biases()
        return linear(key, weights[0], biases[0]), linear(value, weights[1], biases[1])

    def with_extra_rows(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, int]:
        """Append `bias_k`, `bias_v` and zeros to projected keys and values; also returns how many rows these are."""
        rows = []
        if self.bias_k is not None and self.bias_v is not None:
            rows.append((self.bias_k, self.bias_v))
        if self.add_zero_attn:
            zero_k, zero_v = (ops.full((1, 1, x.shape[2]), 0.0, x.dtype) for x in (key, value))
            rows.append((zero_k, zero_v))
        for row_k, row_v in rows:
            key, value = _append(key, row_k), _append(value, row_v)
        return key, value, len(rows)

    def project_output(self, x: Tensor) -> Tensor:
        """(N, L, E) to (N, L, E)."""
        return x if self.out_weight is None else linear(x, self.out_weight, self.out_bias)

    def _in_weights(self) -> tuple[Weight, ...]:
        if self.in_weights is not None:
            return _all_given("q_proj_weight, k_proj_weight and v_proj_weight", *self.in_weights)
        return self._split_packed("in_proj_weight", *_all_given("in_proj_weight", self.in_weight))

    def _in_biases(self) -> tuple[Tensor | None, ...]:
        return (None, None, None) if self.in_bias is None else self._split_packed("in_proj_bias", self.in_bias)

    def _split_packed(self, name: str, packed: W) -> tuple[W, ...]:
        """The query, key and value parts of a packed weight or bias."""
        kv_dim = self.width * self.kv_heads
        bounds = (0, self.embed_dim, self.embed_dim + kv_dim, self.embed_dim + 2 * kv_dim)
        if not same(packed.shape[0], bounds[-1]):
            raise ValueError(f"{NAME}: {name} has shape {show_shape(packed.shape)}, expected {bounds[-1]} rows")
        return tuple(
            rows_of(packed, start, stop, f"[{part}]")
            for part, start, stop in zip("qkv", bounds, bounds[1:], strict=False)
        )

    def _pack(self, name: str, x: Tensor, projected: Tensor) -> Tensor:
        """(N*H, S, d) to (N, S, H*d)."""
        batch: Size = projected.shape[0]
        if x.ndim != 3 or not same(x.shape[0], batch * self.kv_heads) or not same(x.shape[2], self.width):
            raise ValueError(
                f"{NAME}: {name} has shape {show_shape(x.shape)}, expected (N*H, S, E/H) with "
                f"N*H = {batch * self.kv_heads} and E/H = {self.width}"
            )
        split = ops.permute(ops.reshape(x, (batch, self.kv_heads, x.shape[1], self.width)), (0, 2, 1, 3))
        return ops.reshape(split, (batch, x.shape[1], self.kv_heads * self.width))


def _append(x: Tensor, row: Tensor) -> Tensor:
    """(N, S, E) and (1, 1, E) to (N, S+1, E)."""
    return ops.concat([x, ops.expand(row, (x.shape[0], 1, x.shape[2])).astype(x.dtype)], 1)


def _all_given(names: str, *tensors: Weight | None) -> tuple[Weight, ...]:
    if any(t is None for t in tensors):
        raise ValueError(f"{NAME}: expected {names}, got None")
    return tuple(t for t in tensors if t is not None)
