"""Multi-head attention as a function: projections around `ops.attention`. Public as `nn.functional`."""

from __future__ import annotations

from lucid import ops
from lucid.dims import Size, same
from lucid.ops.attention_masks import causal_mask, with_visible
from lucid.ops.op import check_tensors
from lucid.ops.tensor import Tensor
from lucid.types import same_shape, show_shape

_NAME = "multi_head_attention"


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None = None,
    in_proj_bias: Tensor | None = None,
    bias_k: Tensor | None = None,
    bias_v: Tensor | None = None,
    add_zero_attn: bool = False,
    dropout_p: float = 0.0,
    out_proj_weight: Tensor | None = None,
    out_proj_bias: Tensor | None = None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
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
        key, value: (S, N, kdim), (S, N, vdim), or laid out as the query is.
        embed_dim_to_check: E, which the query's last size must equal.
        num_heads: heads; must divide E.
        in_proj_weight, in_proj_bias: (3E, E), (3E): query, key and value projections one under the other. The bias also
            serves the separate weights. With grouped heads the key and value parts have E / num_heads * num_kv_heads
            rows.
        bias_k, bias_v: (1, 1, E): one more key and value, behind those of the sequence, always visible.
        add_zero_attn: one more key and value of zeros behind these, always visible.
        dropout_p, training: dropout of the attention weights, while training.
        out_proj_weight, out_proj_bias: (E, E), (E); without a weight the heads' outputs are returned as they are.
        key_padding_mask: (N, S). Boolean: true = ignore the key. Floating: added to its scores.
        need_weights: also return the attention weights.
        attn_mask: (L, S), (N*H, L, S) or broadcasting to (N, H, L, S). Boolean: true = **not** allowed. Floating:
            added.
        use_separate_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight: (E, E), (E, kdim), (E, vdim).
        static_k, static_v: (N*H, S, E/H): take the place of the projected key or value.
        average_attn_weights: return the mean of the weights over the heads.
        is_causal: query i sees keys up to i; together with `key_padding_mask`, but not with `attn_mask`.
        batch_first: batch before length in query, key, value and output.
        num_kv_heads: fewer key and value than query heads (grouped-query attention).

    Returns:
        The output, laid out as the query; and the weights (N, L, S) or, not averaged, (N, H, L, S), or None.

    Raises:
        ValueError, TypeError: naming the argument, what came and what was expected.
    """
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    _check_heads(embed_dim_to_check, num_heads, kv_heads)
    if is_causal and attn_mask is not None:
        raise ValueError(f"{_NAME}: is_causal and attn_mask exclude each other; put the triangle into the mask")
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"{_NAME}: dropout_p is {dropout_p}, expected a probability from 0 to 1")
    check_tensors(_NAME, query=query, key=key, value=value)
    unbatched = query.ndim == 2
    if unbatched and key_padding_mask is not None:
        key_padding_mask = ops.unsqueeze(key_padding_mask, 0)
    q, k, v = _batch_first(query, key, value, batch_first)
    _check_inputs(q, k, v, embed_dim_to_check)

    if use_separate_proj_weight:
        weights = _all_given(
            "q_proj_weight, k_proj_weight and v_proj_weight", q_proj_weight, k_proj_weight, v_proj_weight
        )
    else:
        weights = _thirds("in_proj_weight", in_proj_weight, embed_dim_to_check, num_heads, kv_heads)
    biases: tuple[Tensor | None, ...] = (None, None, None)
    if in_proj_bias is not None:
        biases = _thirds("in_proj_bias", in_proj_bias, embed_dim_to_check, num_heads, kv_heads)
    batch, queries = q.shape[0], q.shape[1]
    width = embed_dim_to_check // num_heads
    q = ops.linear(q, weights[0], biases[0])
    k = (
        ops.linear(k, weights[1], biases[1])
        if static_k is None
        else _packed("static_k", static_k, batch, kv_heads, width)
    )
    v = (
        ops.linear(v, weights[2], biases[2])
        if static_v is None
        else _packed("static_v", static_v, batch, kv_heads, width)
    )
    keys, extra = k.shape[1], 0

    if bias_k is not None or bias_v is not None:
        if bias_k is None or bias_v is None:
            raise ValueError(f"{_NAME}: bias_k and bias_v come together, got one of them")
        if static_k is not None or static_v is not None:
            raise ValueError(f"{_NAME}: static_k and static_v cannot be combined with bias_k and bias_v")
        k, v, extra = _append(k, bias_k), _append(v, bias_v), extra + 1
    if add_zero_attn:
        zero_k, zero_v = (ops.full((1, 1, x.shape[2]), 0.0, x.dtype) for x in (k, v))
        k, v, extra = _append(k, zero_k), _append(v, zero_v), extra + 1

    mask = _attend_mask(attn_mask, batch, num_heads, queries, keys)
    key_mask = _key_mask(key_padding_mask, batch, keys)
    if extra:
        if is_causal:
            mask, is_causal = causal_mask(queries, keys), False
        mask = None if mask is None else with_visible(mask, keys, extra)
        key_mask = None if key_mask is None else with_visible(key_mask, keys, extra)

    result = ops.attention(
        q,
        k,
        v,
        mask,
        key_mask,
        heads=num_heads,
        kv_heads=kv_heads,
        is_causal=is_causal,
        dropout_p=dropout_p if training else 0.0,
        need_weights=need_weights,
    )
    output, attention_weights = result if need_weights else (result, None)
    if out_proj_weight is not None:
        output = ops.linear(output, out_proj_weight, out_proj_bias)
    if unbatched:
        output = ops.squeeze(output, 0)
    elif not batch_first:
        output = ops.transpose(output, 0, 1)
    if attention_weights is not None and average_attn_weights:
        attention_weights = attention_weights.mean(1)
    if attention_weights is not None and unbatched:
        attention_weights = ops.squeeze(attention_weights, 0)
    return output, attention_weights


def _check_heads(embed_dim: int, heads: int, kv_heads: int) -> None:
    if heads < 1 or embed_dim % heads:
        raise ValueError(f"{_NAME}: embed_dim {embed_dim} is not divisible by num_heads {heads}")
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"{_NAME}: num_heads {heads} is not divisible by num_kv_heads {kv_heads}")


def _batch_first(query: Tensor, key: Tensor, value: Tensor, batch_first: bool) -> tuple[Tensor, Tensor, Tensor]:
    """All three as (N, length, width). One tensor given twice stays one, so that self-attention is still recognised."""
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise ValueError(
            f"{_NAME}: query {show_shape(query.shape)}, key {show_shape(key.shape)}, value {show_shape(value.shape)}: "
            "expected 3 axes each (batch, length and width), or 2 without the batch"
        )

    def turn(x: Tensor) -> Tensor:
        return ops.unsqueeze(x, 0) if x.ndim == 2 else x if batch_first else ops.transpose(x, 0, 1)

    q = turn(query)
    k = q if key is query else turn(key)
    v = q if value is query else k if value is key else turn(value)
    return q, k, v


def _check_inputs(query: Tensor, key: Tensor, value: Tensor, embed_dim: int) -> None:
    if not same(query.shape[2], embed_dim):
        raise ValueError(f"{_NAME}: query has last size {query.shape[2]}, expected embed_dim {embed_dim}")
    if not same(key.shape[1], value.shape[1]):
        raise ValueError(f"{_NAME}: key has length {key.shape[1]}, value {value.shape[1]}: expected the same")
    if not same(query.shape[0], key.shape[0]) or not same(key.shape[0], value.shape[0]):
        raise ValueError(
            f"{_NAME}: batch sizes of query, key and value are {query.shape[0]}, {key.shape[0]} and {value.shape[0]}: "
            "expected the same (batch_first says which axis is the batch)"
        )


def _all_given(names: str, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    if any(t is None for t in tensors):
        raise ValueError(f"{_NAME}: expected {names}, got None")
    return tuple(t for t in tensors if t is not None)


def _thirds(name: str, packed: Tensor | None, embed_dim: int, heads: int, kv_heads: int) -> tuple[Tensor, ...]:
    """The query, key and value parts of a packed weight or bias."""
    (packed,) = _all_given(name, packed)
    kv_dim = embed_dim // heads * kv_heads
    if not same(packed.shape[0], embed_dim + 2 * kv_dim):
        raise ValueError(
            f"{_NAME}: {name} has shape {show_shape(packed.shape)}, expected {embed_dim + 2 * kv_dim} rows"
        )
    bounds = (0, embed_dim, embed_dim + kv_dim, embed_dim + 2 * kv_dim)
    return tuple(
        packed[start:stop].part_of(packed, f"[{part}]")
        for part, start, stop in zip("qkv", bounds, bounds[1:], strict=False)
    )


def _append(x: Tensor, row: Tensor) -> Tensor:
    """(N, S, E) and (1, 1, E) to (N, S+1, E)."""
    return ops.concat([x, ops.expand(row, (x.shape[0], 1, x.shape[2])).astype(x.dtype)], 1)


def _packed(name: str, x: Tensor, batch: Size, heads: int, width: int) -> Tensor:
    """(N*H, S, d) to (N, S, H*d)."""
    if x.ndim != 3 or not same(x.shape[0], batch * heads) or not same(x.shape[2], width):
        raise ValueError(
            f"{_NAME}: {name} has shape {show_shape(x.shape)}, expected (N*H, S, E/H) with N*H = {batch * heads} "
            f"and E/H = {width}"
        )
    split = ops.permute(ops.reshape(x, (batch, heads, x.shape[1], width)), (0, 2, 1, 3))
    return ops.reshape(split, (batch, x.shape[1], heads * width))


def _attend_mask(mask: Tensor | None, batch: Size, heads: int, queries: Size, keys: Size) -> Tensor | None:
    """The attn_mask argument as a mask that broadcasts to (N, H, L, S), where true means attend."""
    if mask is None:
        return None
    _check_kind("attn_mask", mask)
    if mask.ndim not in (2, 3, 4):
        raise ValueError(
            f"{_NAME}: attn_mask has shape {show_shape(mask.shape)}, expected (L, S), (N*H, L, S) or (N, H, L, S)"
        )
    if mask.ndim == 3 and same(mask.shape[0], batch * heads):
        mask = ops.reshape(mask, (batch, heads, *mask.shape[1:]))
    for axis, wanted in zip((-1, -2, -3, -4), (keys, queries, heads, batch), strict=True):
        if -axis <= mask.ndim and not same(mask.shape[axis], wanted) and not same(mask.shape[axis], 1):
            raise ValueError(
                f"{_NAME}: attn_mask has shape {show_shape(mask.shape)}, expected ({queries}, {keys}), "
                f"({batch * heads}, {queries}, {keys}) or one that broadcasts to ({batch}, {heads}, {queries}, {keys})"
            )
    return ops.logical_not(mask) if mask.dtype.kind == "bool" else mask


def _key_mask(mask: Tensor | None, batch: Size, keys: Size) -> Tensor | None:
    """The key_padding_mask argument as a key mask, where true means attend."""
    if mask is None:
        return None
    _check_kind("key_padding_mask", mask)
    if not same_shape(mask.shape, (batch, keys)):
        raise ValueError(
            f"{_NAME}: key_padding_mask has shape {show_shape(mask.shape)}, expected (N, S) = ({batch}, {keys})"
        )
    return ops.logical_not(mask) if mask.dtype.kind == "bool" else mask


def _check_kind(name: str, mask: Tensor) -> None:
    if mask.dtype.kind == "int":
        raise TypeError(
            f"{_NAME}: {name} is {mask.type}, expected booleans (true = not allowed) or floats (added); "
            f"a 0/1 mask of what to keep becomes one with {name} == 0"
        )
