"""Multi-head attention as a function: projections around `ops.attention`. Public as `nn.functional`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from lucid import ops
from lucid.core.graph.types import same_shape, show_shape
from lucid.core.sizes.dims import Size, same
from lucid.nn._checks import check_probability
from lucid.nn.cache import Cache, KeyValueCache, cached_attention, cross_attention
from lucid.nn.quantized import WeightModule, linear, rows_of
from lucid.ops.attention.masks import causal_mask, extended_mask
from lucid.ops.operand_conversion import check_tensors
from lucid.ops.tensor.tensor import Tensor

NAME = "multi_head_attention"  # the name in errors
Weight: TypeAlias = Tensor | WeightModule
W = TypeVar("W", bound=Weight)


@dataclass(frozen=True, eq=False)
class Projections:
    """The parameters of multi-head attention, where E_kv = E / heads * kv_heads, which is E without grouped heads.


    Raises:
        ValueError: for heads that do not divide, and one of `bias_k` and `bias_v` without the other.
    """

    # embed_dim, heads, kv_heads: E, H and H_kv.
    embed_dim: int
    heads: int
    kv_heads: int
    in_weight: Weight | None  # (E + 2 E_kv, E): query, key and value projections, stacked
    # (E, qdim), (E_kv, kdim), (E_kv, vdim): the three projections, instead of `in_weight`.
    in_weights: tuple[Weight | None, Weight | None, Weight | None] | None
    in_bias: Tensor | None  # (E + 2 E_kv), for either
    # out_weight, out_bias: (out_dim, E), (out_dim); without a weight the heads' outputs are not projected.
    out_weight: Weight | None
    out_bias: Tensor | None
    # bias_k, bias_v: (1, 1, E_kv): one more key and value after the sequence's own.
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool  # one more key and value of zeros after these

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

    @property
    def query_width(self) -> tuple[str, Size]:
        """The width of queries, and which argument of the module gives it."""
        weight = None if self.in_weights is None else self.in_weights[0]
        width = self.embed_dim if weight is None else weight.shape[1]
        return ("embed_dim" if same(width, self.embed_dim) else "qdim"), width

    def project(
        self, query: Tensor, key: Tensor, value: Tensor, static_k: Tensor | None, static_v: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(N, L, qdim), (N, S, kdim), (N, S, vdim) to (N, L, E), (N, S, E_kv), (N, S, E_kv).

        `static_k` and `static_v` (N*H, S, E/H) are used instead of the projected key and value.

        Raises:
            ValueError: for `static_k` or `static_v` next to `bias_k` and `bias_v`.
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
        """(N, L, qdim) to (N, L, E)."""
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
        """Append `bias_k`, `bias_v` and zeros to projected keys and values; also returns the number of added rows."""
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
        """(N, L, E) to (N, L, out_dim)."""
        return x if self.out_weight is None else linear(x, self.out_weight, self.out_bias)

    def _in_weights(self) -> tuple[Weight, ...]:
        if self.in_weights is not None:
            return _all_given("q_proj_weight, k_proj_weight and v_proj_weight", *self.in_weights)
        return self._split_packed("in_proj_weight", *_all_given("in_proj_weight", self.in_weight))

    def _in_biases(self) -> tuple[Tensor | None, ...]:
        return (None, None, None) if self.in_bias is None else self._split_packed("in_proj_bias", self.in_bias)

    def _split_packed(self, name: str, packed: W) -> tuple[W, ...]:
        """The query, key and value rows of a packed weight or bias."""
        kv_dim = self.width * self.kv_heads
        bounds = (0, self.embed_dim, self.embed_dim + kv_dim, self.embed_dim + 2 * kv_dim)
        if not same(packed.shape[0], bounds[-1]):
            raise ValueError(f"{NAME}: {name} has shape {show_shape(packed.shape)}, expected {bounds[-1]} rows")
        return tuple(
            rows_of(packed, start, stop, f"[{role}]")
            for role, start, stop in zip("qkv", bounds, bounds[1:], strict=False)
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


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Weight | None = None,
    in_proj_bias: Tensor | None = None,
    bias_k: Tensor | None = None,
    bias_v: Tensor | None = None,
    add_zero_attn: bool = False,
    dropout_p: float = 0.0,
    out_proj_weight: Weight | None = None,
    out_proj_bias: Tensor | None = None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Weight | None = None,
    k_proj_weight: Weight | None = None,
    v_proj_weight: Weight | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    batch_first: bool = False,
    num_kv_heads: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2), with torch's arguments.

    Args:
        query: (L, N, E); (N, L, E) with `batch_first`; (L, E) unbatched.
        key, value: (S, N, kdim), (S, N, vdim), or in the axis order of the query.
        embed_dim_to_check: E, which the query's last size must equal unless `q_proj_weight` has another width.
        num_heads: heads; must divide E.
        in_proj_weight, in_proj_bias: (3E, E), (3E): query, key and value projections, stacked. The bias is also used
            with separate weights. With grouped heads the key and value parts have E / num_heads * num_kv_heads rows.
        bias_k, bias_v: (1, 1, E): one more key and value after the sequence's own, always visible.
        add_zero_attn: one more key and value of zeros after these, always visible.
        dropout_p, training: dropout of the attention weights, while training.
        out_proj_weight, out_proj_bias: (out_dim, E), (out_dim); without a weight the heads' outputs are not projected.
        key_padding_mask: (N, S). Boolean: true = ignore the key. Floating: added to its scores.
        need_weights: also return the attention weights.
        attn_mask: (L, S), (N*H, L, S) or broadcasting to (N, H, L, S). Boolean: true = **not** allowed. Floating:
            added.
        use_separate_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight: (E, qdim), (E, kdim), (E, vdim).
        static_k, static_v: (N*H, S, E/H): used instead of the projected key or value.
        average_attn_weights: return the mean of the weights over the heads.
        is_causal: query i sees keys up to i; also together with `key_padding_mask`. With `attn_mask` it is torch's hint
            that the mask is causal, and changes nothing.
        batch_first: batch before length in query, key, value and output.
        num_kv_heads: fewer key and value than query heads (grouped-query attention).

    Returns:
        The output, in the axis order of the query; and the weights (N, L, S) or, not averaged, (N, H, L, S), or None.

    Raises:
        ValueError, TypeError: for arguments that do not fit; the message names the argument and what was expected.
    """
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    projections = Projections(
        embed_dim=embed_dim_to_check,
        heads=num_heads,
        kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        in_weight=in_proj_weight,
        in_weights=separate if use_separate_proj_weight else None,
        in_bias=in_proj_bias,
        out_weight=out_proj_weight,
        out_bias=out_proj_bias,
        bias_k=bias_k,
        bias_v=bias_v,
        add_zero_attn=add_zero_attn,
    )
    return attend(
        projections,
        query,
        key,
        value,
        key_padding_mask=key_padding_mask,
        attn_mask=attn_mask,
        static_k=static_k,
        static_v=static_v,
        is_causal=is_causal,
        dropout_p=dropout_p,
        training=training,
        need_weights=need_weights,
        average_attn_weights=average_attn_weights,
        batch_first=batch_first,
    )


def attend(
    projections: Projections,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    is_causal: bool,
    dropout_p: float,
    training: bool,
    need_weights: bool,
    average_attn_weights: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor | None]:
    """`multi_head_attention_forward` with the parameters in one object."""
    is_causal = is_causal and attn_mask is None  # with a mask, torch's hint changes nothing
    check_probability(NAME, "dropout_p", dropout_p)
    check_tensors(NAME, query=query, key=key, value=value)
    q, k, v = _batch_first(query, key, value, batch_first)
    _check_inputs(q, k, v, projections)
    if query.ndim == 2 and key_padding_mask is not None:
        key_padding_mask = ops.unsqueeze(key_padding_mask, 0)
    q, k, v = projections.project(q, k, v, static_k, static_v)
    batch, queries, keys = q.shape[0], q.shape[1], k.shape[1]
    mask = _score_mask(attn_mask, batch, projections.heads, queries, keys)
    key_mask = _key_mask(key_padding_mask, batch, keys)
    k, v, extra = projections.with_extra_rows(k, v)
    if extra:  # every query sees these; masks and causality apply to the sequence's own keys only
        if is_causal:
            mask, is_causal = causal_mask(queries, keys), False
        mask, key_mask = (None if m is None else extended_mask(m, keys, extra) for m in (mask, key_mask))
    result = ops.attention(
        q,
        k,
        v,
        mask,
        key_mask,
        heads=projections.heads,
        kv_heads=projections.kv_heads,
        is_causal=is_causal,
        dropout_p=dropout_p if training else 0.0,
        need_weights=need_weights,
    )
    output, weights = result if need_weights else (result, None)
    output = _restore_axes(projections.project_output(output), query, batch_first)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    return output, weights if weights is None or query.ndim == 3 else ops.squeeze(weights, 0)


def attend_after(
    projections: Projections, query: Tensor, cache: Cache, *, batch_first: bool
) -> tuple[Tensor, Cache | None]:
    """Causal self-attention of new positions (N, L, E) after those in a cache, and the extended cache."""
    x, *_ = _batch_first(query, query, query, batch_first)
    _check_inputs(x, x, x, projections)
    q, (k, v) = projections.project_query(x), projections.project_memory(x, x)
    output, present = cached_attention(
        q, k, v, cache, heads=projections.heads, kv_heads=projections.kv_heads, is_causal=True
    )
    return _restore_axes(projections.project_output(output), query, batch_first), present


def keys_and_values(projections: Projections, key: Tensor, value: Tensor, *, batch_first: bool) -> KeyValueCache:
    """The keys and values of a sequence, for `attend_to`."""
    k, _, v = _batch_first(key, key, value, batch_first)
    return KeyValueCache.of(*projections.project_memory(k, v), projections.kv_heads)


def attend_to(
    projections: Projections,
    query: Tensor,
    memory: KeyValueCache,
    key_padding_mask: Tensor | None,
    *,
    batch_first: bool,
) -> Tensor:
    """Attention (N, L, E) to given keys and values; every query sees all of them."""
    x, *_ = _batch_first(query, query, query, batch_first)
    _check_inputs(x, x, x, projections)
    key_mask = _key_mask(key_padding_mask, memory.key.shape[0], memory.key.shape[2])
    output = cross_attention(projections.project_query(x), *memory, key_mask, heads=projections.heads)
    return _restore_axes(projections.project_output(output), query, batch_first)


def _batch_first(query: Tensor, key: Tensor, value: Tensor, batch_first: bool) -> tuple[Tensor, Tensor, Tensor]:
    """All three as (N, length, width). A tensor passed twice is converted once, so self-attention is recognised."""
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise ValueError(
            f"{NAME}: query {show_shape(query.shape)}, key {show_shape(key.shape)}, value {show_shape(value.shape)}: "
            "expected 3 axes each (batch, length and width), or 2 without the batch"
        )

    def to_batch_first(x: Tensor) -> Tensor:
        return ops.unsqueeze(x, 0) if x.ndim == 2 else x if batch_first else ops.transpose(x, 0, 1)

    q = to_batch_first(query)
    k = q if key is query else to_batch_first(key)
    v = q if value is query else k if value is key else to_batch_first(value)
    return q, k, v


def _restore_axes(x: Tensor, query: Tensor, batch_first: bool) -> Tensor:
    """(N, length, width) in the axis order of the query."""
    return ops.squeeze(x, 0) if query.ndim == 2 else x if batch_first else ops.transpose(x, 0, 1)


def _check_inputs(query: Tensor, key: Tensor, value: Tensor, projections: Projections) -> None:
    name, width = projections.query_width
    if not same(query.shape[2], width):
        raise ValueError(f"{NAME}: query has last size {query.shape[2]}, expected {name} {width}")
    if not same(key.shape[1], value.shape[1]):
        raise ValueError(f"{NAME}: key has length {key.shape[1]}, value {value.shape[1]}: expected the same")
    if not same(query.shape[0], key.shape[0]) or not same(key.shape[0], value.shape[0]):
        raise ValueError(
            f"{NAME}: batch sizes of query, key and value are {query.shape[0]}, {key.shape[0]} and {value.shape[0]}: "
            "expected the same (batch_first says which axis is the batch)"
        )


def _score_mask(mask: Tensor | None, batch: Size, heads: int, queries: Size, keys: Size) -> Tensor | None:
    """The attn_mask argument as a mask that broadcasts to (N, H, L, S), with true = attend."""
    if mask is None:
        return None
    _check_kind("attn_mask", mask)
    if mask.ndim not in (2, 3, 4):
        raise ValueError(
            f"{NAME}: attn_mask has shape {show_shape(mask.shape)}, expected (L, S), (N*H, L, S) or (N, H, L, S)"
        )
    if mask.ndim == 3 and same(mask.shape[0], batch * heads):
        mask = ops.reshape(mask, (batch, heads, *mask.shape[1:]))
    for axis, size in zip((-1, -2, -3, -4), (keys, queries, heads, batch), strict=True):
        if -axis <= mask.ndim and not same(mask.shape[axis], size) and not same(mask.shape[axis], 1):
            raise ValueError(
                f"{NAME}: attn_mask has shape {show_shape(mask.shape)}, expected ({queries}, {keys}), "
                f"({batch * heads}, {queries}, {keys}) or one that broadcasts to ({batch}, {heads}, {queries}, {keys})"
            )
    return ops.logical_not(mask) if mask.dtype.kind == "bool" else mask


def _key_mask(mask: Tensor | None, batch: Size, keys: Size) -> Tensor | None:
    """The key_padding_mask argument as a key mask, with true = attend."""
    if mask is None:
        return None
    _check_kind("key_padding_mask", mask)
    if not same_shape(mask.shape, (batch, keys)):
        raise ValueError(
            f"{NAME}: key_padding_mask has shape {show_shape(mask.shape)}, expected (N, S) = ({batch}, {keys})"
        )
    return ops.logical_not(mask) if mask.dtype.kind == "bool" else mask


def _check_kind(name: str, mask: Tensor) -> None:
    if mask.dtype.kind == "int":
        raise TypeError(
            f"{NAME}: {name} is {mask.spec}, expected booleans (true = not allowed) or floats (added); "
            f"convert a mask with 1 = keep with {name} == 0"
        )
