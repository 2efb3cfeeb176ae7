"""Attention modules, which hold parameters and options.

Users take them from `lucid.nn`; only `nn` imports from here. What is computed with them belongs to `nn.functional`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, overload

import numpy as np

from lucid.core.graph.types import DTypeLike, TensorType, show_shape, spec
from lucid.core.torch_names.argument_names import torch_names_and
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn._checks import check_positive, check_probability
from lucid.nn._dot_product_attention import Causality, real_scale
from lucid.nn._multi_head_attention import Projections, attend, attend_after, attend_to, keys_and_values
from lucid.nn.attention import bias as bias  # torch's nn.attention.bias
from lucid.nn.cache import Cache, KeyValueCache
from lucid.nn.layers import Linear, new_parameter
from lucid.nn.module import Module, StateError, scoped
from lucid.ops.tensor.tensor import Tensor


class ScaledDotProductAttention(Module):
    """softmax(scale * query @ key.T + mask) @ value on (N, H, L, d), as `F.scaled_dot_product_attention`.

    Args:
        attn_mask: the mask of calls without one. Boolean: true = attend.
        dropout_p: probability of dropping a weight while training.
        is_causal: query i sees keys up to i; "lower_right": up to i + S - L.
        scale: multiplies the scores; 1 / sqrt(d) by default.
    """

    def __init__(
        self,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: Causality = False,
        scale: complex | None = None,
    ) -> None:
        check_probability("ScaledDotProductAttention", "dropout_p", dropout_p)
        self._attn_mask = attn_mask
        self.dropout_p, self.is_causal = dropout_p, is_causal
        self.scale = real_scale("ScaledDotProductAttention", scale)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        mask = self._attn_mask if attn_mask is None else attn_mask
        dropout_p = self.dropout_p if self.training else 0.0
        grouped = np.ndim(query) == 4
        return F.scaled_dot_product_attention(
            query, key, value, mask, dropout_p, self.is_causal, self.scale, enable_gqa=grouped
        )

    def input_specs(self) -> Mapping[str, TensorType]:
        if self.scale is None:  # the default, 1 / sqrt(d), needs a number for d
            return {}
        shapes = {"query": ("N", "H", "L", "d"), "key": ("N", "H", "S", "d"), "value": ("N", "H", "S", "d_v")}
        return {name: spec(*shape) for name, shape in shapes.items()}

    def extra_repr(self) -> str:
        return f"dropout_p={self.dropout_p}, is_causal={self.is_causal!r}, scale={self.scale}"


class MultiHeadAttention(Module):
    """Multi-head attention (Vaswani et al. 2017) with torch's parameters and state keys.

    Args:
        embed_dim: E, the width of all heads together; a multiple of `num_heads`.
        num_heads: H.
        dropout: probability of dropping an attention weight while training.
        bias: whether the projections have biases.
        add_bias_kv: a learned key and value after the sequence's own.
        add_zero_attn: a key and value of zeros after these.
        kdim, vdim, qdim, out_dim: widths of keys, values, queries and output; E by default.
        num_kv_heads: fewer key and value heads than query heads (grouped-query attention, Ainslie et al. 2023).
        batch_first: inputs and output are (N, L, E), else (L, N, E).
        dtype: element type of the parameters.

    State: ``in_proj_weight`` (3E, E), or ``q_proj_weight``, ``k_proj_weight``, ``v_proj_weight`` where kdim, vdim or
    qdim differs from E; ``in_proj_bias`` (3E), ``out_proj.weight``, ``out_proj.bias``, ``bias_k``, ``bias_v``
    (1, 1, E). It also loads ``q_proj.weight``, ``q_proj.bias`` and so on.

    Raises:
        ValueError: for sizes that are not positive or do not divide, or a dropout outside [0, 1].
    """

    quantizable: ClassVar = {
        "in_proj_weight": "linear",
        "q_proj_weight": "linear",
        "k_proj_weight": "linear",
        "v_proj_weight": "linear",
    }

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
        *,
        qdim: int | None = None,
        out_dim: int | None = None,
        num_kv_heads: int | None = None,
        batch_first: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        name = "MultiHeadAttention"
        qdim, kdim, vdim, out_dim = (embed_dim if width is None else width for width in (qdim, kdim, vdim, out_dim))
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_positive(name, embed_dim=embed_dim, num_heads=num_heads, num_kv_heads=kv_heads)
        check_positive(name, qdim=qdim, kdim=kdim, vdim=vdim, out_dim=out_dim)
        check_probability(name, "dropout", dropout)
        if embed_dim % num_heads:
            raise ValueError(f"{name}: embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        if num_heads % kv_heads:
            raise ValueError(f"{name}: num_heads {num_heads} is not divisible by num_kv_heads {kv_heads}")
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, kv_heads
        self.dropout, self.add_zero_attn, self.batch_first = dropout, add_zero_attn, batch_first
        self.qdim, self.kdim, self.vdim, self.out_dim = qdim, kdim, vdim, out_dim

        kv_dim = embed_dim // num_heads * kv_heads
        self.in_proj_weight = self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        if qdim == kdim == vdim == embed_dim:
            self.in_proj_weight = init.xavier_uniform_(new_parameter(embed_dim + 2 * kv_dim, embed_dim, dtype=dtype))
        else:
            self.q_proj_weight = init.xavier_uniform_(new_parameter(embed_dim, qdim, dtype=dtype))
            self.k_proj_weight = init.xavier_uniform_(new_parameter(kv_dim, kdim, dtype=dtype))
            self.v_proj_weight = init.xavier_uniform_(new_parameter(kv_dim, vdim, dtype=dtype))
        self.in_proj_bias = new_parameter(embed_dim + 2 * kv_dim, dtype=dtype) if bias else None
        self.out_proj = Linear(embed_dim, out_dim, bias, dtype)
        bound = 1 / math.sqrt(embed_dim)
        init.uniform_(self.out_proj.weight, -bound, bound)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)
        self.bias_k = init.xavier_normal_(new_parameter(1, 1, kv_dim, dtype=dtype)) if add_bias_kv else None
        self.bias_v = init.xavier_normal_(new_parameter(1, 1, kv_dim, dtype=dtype)) if add_bias_kv else None

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from query to key and value; see `F.multi_head_attention_forward` for shapes and masks.

        Without a key this is self-attention; without a value the key is the value.

        Returns:
            The output; with `need_weights` the pair (output, weights).
        """
        key = query if key is None else key
        value = key if value is None else value
        output, weights = attend(
            self._projections(),
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            is_causal=is_causal,
            dropout_p=self.dropout,
            training=self.training,
            need_weights=need_weights,
            average_attn_weights=average_attn_weights,
            batch_first=self.batch_first,
        )
        return output if weights is None else (output, weights)

    # The return type depends on need_weights, which a ParamSpec cannot express.
    @overload
    def __call__(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: Literal[False] = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        *,
        need_weights: Literal[True],
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def __call__(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)

    @scoped
    def step(self, query: Tensor, cache: Cache) -> tuple[Tensor, Cache | None]:
        """Causal self-attention of new positions after those in a cache (`nn.KeyValueCache`, `nn.KeyValueBuffer`).

        Args:
            query: (N, L, qdim), or as `batch_first` says.
            cache: of the earlier positions.

        Returns:
            The output, in the axis order of the query, and the cache of all positions. There is no dropout of weights.

        Raises:
            ValueError: with `add_bias_kv` or `add_zero_attn`, and for a cache that does not fit.
        """
        return attend_after(self._projections(), query, cache, batch_first=self.batch_first)

    @scoped
    def keys_and_values(self, key: Tensor, value: Tensor | None = None) -> KeyValueCache:
        """The keys and values of a sequence (N, S, kdim), for `attend_to`; without a value the key is the value.

        Raises:
            ValueError: with `add_bias_kv` or `add_zero_attn`.
        """
        value = key if value is None else value
        return keys_and_values(self._projections(), key, value, batch_first=self.batch_first)

    @scoped
    def attend_to(self, query: Tensor, memory: KeyValueCache, key_padding_mask: Tensor | None = None) -> Tensor:
        """The result of `forward` for a query (N, L, qdim) and the sequence of these keys and values.

        `key_padding_mask` (N, S) is true for keys to ignore.
        """
        return attend_to(self._projections(), query, memory, key_padding_mask, batch_first=self.batch_first)

    def _projections(self) -> Projections:
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return Projections(
            embed_dim=self.embed_dim,
            heads=self.num_heads,
            kv_heads=self.num_kv_heads,
            in_weight=self.in_proj_weight,
            in_weights=separate if self.in_proj_weight is None else None,
            in_bias=self.in_proj_bias,
            out_weight=self.out_proj.weight,
            out_bias=self.out_proj.bias,
            bias_k=self.bias_k,
            bias_v=self.bias_v,
            add_zero_attn=self.add_zero_attn,
        )

    def input_specs(self) -> Mapping[str, TensorType]:
        shapes = {"query": ("N", "L", self.qdim), "key": ("N", "S", self.kdim), "value": ("N", "S", self.vdim)}
        in_order = {name: (n, l, e) if self.batch_first else (l, n, e) for name, (n, l, e) in shapes.items()}
        return {name: spec(*shape, dtype=self.out_proj.weight.dtype) for name, shape in in_order.items()}

    def renamed_keys(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Join ``q_proj.weight``, ``k_proj.weight``, ``v_proj.weight`` (and biases) into the packed layout.

        Raises:
            StateError: for projections of other shapes.
        """
        renamed = dict(state)
        rows = (self.embed_dim, *[self.embed_dim // self.num_heads * self.num_kv_heads] * 2)
        columns = (self.qdim, self.kdim, self.vdim)
        for role, packed in (("weight", self.in_proj_weight), ("bias", self.in_proj_bias)):
            names = [f"{part}_proj.{role}" for part in "qkv"]
            if not all(name in renamed for name in names):
                continue
            arrays = [np.asarray(renamed.pop(name)) for name in names]
            shapes = list(zip(rows, columns, strict=True)) if role == "weight" else [(size,) for size in rows]
            wrong = [
                f"{name} has shape {show_shape(part.shape)}, expected {show_shape(shape)}"
                for name, part, shape in zip(names, arrays, shapes, strict=True)
                if part.shape != shape
            ]
            if wrong:
                raise StateError("; ".join(wrong))
            if packed is not None:
                renamed[f"in_proj_{role}"] = np.concatenate(arrays)
            else:
                renamed |= {f"{part}_proj_{role}": array for part, array in zip("qkv", arrays, strict=True)}
        return renamed

    def extra_repr(self) -> str:
        grouped = f", num_kv_heads={self.num_kv_heads}" if self.num_kv_heads != self.num_heads else ""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}{grouped}"


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
        arguments = (query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
        result = super().forward(*arguments)
        return result if isinstance(result, tuple) else (result, None)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        pair: tuple[Tensor, Tensor | None] = super().__call__(*args, **kwargs)
        return pair
