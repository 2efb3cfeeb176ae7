"""torch's multi-head attention, with its defaults and results, for ported code."""

from __future__ import annotations

from typing import Any

from lucid.core.graph.types import DTypeLike
from lucid.core.torch_names.arguments import torch_names_and
from lucid.nn.attention import MultiHeadAttention
from lucid.ops.tensor.tensor import Tensor


class MultiheadAttention(MultiHeadAttention):
    """`MultiHeadAttention` as torch calls it: sequence first, and a call gives a pair (output, weights or None).

    New code takes `MultiHeadAttention`: batch first, and the output alone. Parameters and state keys are the same.
    """

    @torch_names_and("device")
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first=batch_first,
            dtype=dtype,
        )

    def forward(  # type: ignore[override]  # always a pair
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from query to key and value; see `F.multi_head_attention_forward` for shapes and masks.

        Returns:
            The output and the weights; without `need_weights` the output and None.
        """
        given = (query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
        result = super().forward(*given)
        return result if isinstance(result, tuple) else (result, None)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        pair: tuple[Tensor, Tensor | None] = super().__call__(*args, **kwargs)
        return pair
