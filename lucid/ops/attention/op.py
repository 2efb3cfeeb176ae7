"""Scaled dot-product attention: one op that carries the whole contract (the page "The attention contract").

The body below is the definition. The NumPy kernel, and every ONNX form an exporter chooses, computes the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid.core.graph.types import Array, same_shape, show_shape
from lucid.core.sizes.dims import Size, product, same
from lucid.ops.attention import kernel as attention_kernel
from lucid.ops.attention.call import AttentionCall, AttentionOptions, remembered_options
from lucid.ops.attention.masks import SeenKeys, check_masks, combined_mask
from lucid.ops.elementwise import tanh
from lucid.ops.indexing import take
from lucid.ops.linalg import matmul
from lucid.ops.neural import dropout
from lucid.ops.op import composite_with
from lucid.ops.shaping import concat, permute, reshape, unsqueeze
from lucid.ops.tensor.tensor import Tensor


def _kernel(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    key_mask: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    sinks: Array | None,
    *,
    heads: int | None,
    kv_heads: int | None,
    scale: float | None,
    is_causal: bool,
    window: int | None,
    window_after: int | None,
    softcap: float,
    dropout_p: float,
    need_weights: bool,
) -> Array | tuple[Array, ...]:
    """Compute tile by tile, or by the body where all weights are held anyway."""
    options = remembered_options(
        heads, kv_heads, scale, is_causal, window, window_after, softcap, dropout_p, need_weights
    )
    joint = None
    if mask is not None or key_mask is not None or options.holds_weights:
        operands = (query, key, value, mask, key_mask, past_key, past_value, sinks)
        call = AttentionCall(*(None if x is None else Tensor.from_array(x) for x in operands), options=options)  # type: ignore[arg-type]
        if options.holds_weights:
            return tuple(t.numpy() for t in _body(call))
        joint = combined_mask(call, None)
    dtype = query.dtype
    counts = options.head_counts
    if counts is not None:
        query, key, value = map(_split_array, (query, key, value), counts)
    present: tuple[Array, ...] = ()
    past = 0
    if past_key is not None and past_value is not None:
        key, value = present = np.concatenate([past_key, key], 2), np.concatenate([past_value, value], 2)
        past = past_key.shape[2]
    if dtype.itemsize == 2:
        query, key, value = (x.astype(np.float32) for x in (query, key, value))
    hidden = None if joint is None else joint.numpy()
    output = attention_kernel.attention(query, key, value, hidden, options, past, sinks)
    if output.dtype != dtype:
        output = output.astype(dtype)
    if counts is not None:
        output = output.transpose(0, 2, 1, 3)
        output = output.reshape(*output.shape[:2], math.prod(output.shape[2:]))
    return (output, *present) if present else output


def _split_array(x: Array, heads: int) -> Array:
    """`split_heads` of an array, as a view and without the overhead of ops."""
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


@composite_with(kernel=_kernel)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    window: int | None = None,
    window_after: int | None = None,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> Any:
    """softmax(scale * query @ key.T + mask) @ value, head by head (Vaswani et al. 2017; ONNX Attention-23).

    Args:
        query: (N, H, L, d); with `heads`, the packed layout (N, L, H*d). Floating point, the same type for all three.
        key: (N, H_kv, S, d) or (N, S, H_kv*d). Query head h reads key head h // (H / H_kv).
        value: (N, H_kv, S, d_v) or (N, S, H_kv*d_v).
        mask: broadcasts to (N, H, L, S). Boolean: true = attend. Floating: added to the scores; an entry that is not
            above the lowest finite number of its type (``-inf`` or ``finfo.min``) excludes its key.
        key_mask: (N, S), the same for keys alone.
        past_key, past_value: (N, H_kv, P, d), (N, H_kv, P, d_v), keys and values of earlier positions, which come
            before the new ones; masks then cover P + S keys.
        sinks: (H,), floating point: the score of one more key in each head, with a value of zero, that every query sees
            (gpt-oss; Xiao et al. 2023, "Efficient streaming language models with attention sinks"). Weights of the
            keys then add up to less than 1.
        heads, kv_heads: the numbers of heads of the packed layout; kv_heads defaults to heads.
        scale: multiplies the scores; 1 / sqrt(d) by default.
        is_causal: query i sees the keys up to i + P.
        window: query i sees no key before i + P - window + 1: itself and the window - 1 keys before it.
        window_after: query i sees no key after i + P + window_after. With `window`, that is a window on both sides.
        softcap: where positive, scores become softcap * tanh(scores / softcap), before any mask.
        dropout_p: probability of dropping a weight; for training only.
        need_weights: also return the weights.

    Returns:
        The output, (N, H, L, d_v) or packed (N, L, H*d_v); then, with a past, the present keys and values
        (N, H_kv, P + S, d); then, with `need_weights`, the weights (N, H, L, P + S). A query that sees no key gets
        output 0 and weights 0.

    Raises:
        ValueError, TypeError: for sizes, masks or types that do not fit; the message says which.
    """
    options = AttentionOptions(
        heads=heads,
        kv_heads=kv_heads,
        scale=scale,
        is_causal=is_causal,
        window=window,
        window_after=window_after,
        softcap=softcap,
        dropout_p=dropout_p,
        need_weights=need_weights,
    )
    results = _body(AttentionCall(query, key, value, mask, key_mask, past_key, past_value, sinks, options=options))
    return results if len(results) > 1 else results[0]


def _body(call: AttentionCall) -> tuple[Tensor, ...]:
    """The results of a call, in terms of other ops."""
    query, key, value, options = call.query, call.key, call.value, call.options
    if options.head_counts is not None:
        query, key, value = map(split_heads, ("query", "key", "value"), (query, key, value), options.head_counts)
    _check(query, key, value, call.past_key, call.past_value)
    present: tuple[Tensor, ...] = ()
    if call.past_key is not None and call.past_value is not None:
        key, value = present = concat([call.past_key, key], 2), concat([call.past_value, value], 2)
    output, weights = _attend(query, key, value, call)
    if options.head_counts is not None:
        output = joined_heads(output)
    return output, *present, *([weights] if options.need_weights else [])


def _attend(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> tuple[Tensor, Tensor]:
    """Output and weights, for heads already split and keys and values that include the past."""
    dtype, options = call.dtype, call.options
    # Half precision: scores and sums in float32, rounded once at the end.
    query, key, value = (x.astype(call.scores_type) for x in (query, key, value))
    key, value = _repeat_heads(key, query.shape[1]), _repeat_heads(value, query.shape[1])
    scores = matmul(query * options.scale_of(query.shape[-1]), key.mT)
    if options.softcap:
        scores = tanh(scores * (1 / options.softcap)) * options.softcap
    check_masks(call, scores.shape)
    weights = SeenKeys.of(call).weights(scores, sinks_of(call, query.shape[1]))
    if options.dropout_p:
        weights = dropout(weights, p=options.dropout_p)
    return matmul(weights, value).astype(dtype), weights.astype(dtype)


def sinks_of(call: AttentionCall, heads: Size) -> Tensor | None:
    """The sinks of a call in the type of its scores, (H, 1, 1)."""
    sinks = call.sinks
    if sinks is None:
        return None
    if sinks.dtype.kind != "float" or not same_shape(sinks.shape, (heads,)):
        raise ValueError(
            f"attention: sinks are {sinks.spec}, expected one floating-point number for each of {heads} heads"
        )
    return unsqueeze(sinks.astype(call.scores_type), (1, 2)).named_after(sinks, ".unsqueeze")


def split_heads(name: str, x: Tensor, heads: int) -> Tensor:
    """(N, L, H*d) to (N, H, L, d)."""
    if x.ndim != 3 or not same(x.shape[-1] % heads, 0):
        raise ValueError(
            f"attention: {name} has shape {show_shape(x.shape)}, expected (N, length, {heads} heads * width); "
            "the last size must be a multiple of the heads"
        )
    n, length, width = x.shape
    return permute(reshape(x, (n, length, heads, width // heads)), (0, 2, 1, 3))


def joined_heads(x: Tensor) -> Tensor:
    """(N, H, L, d) to (N, L, H*d)."""
    x = permute(x, (0, 2, 1, 3))
    return reshape(x, (*x.shape[:2], product(x.shape[2:])))


def _repeat_heads(x: Tensor, heads: Size) -> Tensor:
    """Repeat each key or value head once per query head that reads it."""
    groups = heads // x.shape[1]
    if same(groups, 1):
        return x
    return take(x, np.repeat(np.arange(int(x.shape[1])), int(groups)), 1)


def _check(query: Tensor, key: Tensor, value: Tensor, past_key: Tensor | None, past_value: Tensor | None) -> None:
    shapes = f"query {show_shape(query.shape)}, key {show_shape(key.shape)}, value {show_shape(value.shape)}"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ValueError(f"attention: {shapes}: expected (N, H, length, width) each")
    if query.dtype.kind != "float" or not query.dtype == key.dtype == value.dtype:
        raise TypeError(
            f"attention: query {query.dtype}, key {key.dtype}, value {value.dtype}: expected one floating-point type; "
            "use .astype(...)"
        )
    if not same_shape(key.shape[:3], value.shape[:3]):
        raise ValueError(f"attention: {shapes}: key and value must agree in batch, heads and length")
    if not same(query.shape[0], key.shape[0]):
        raise ValueError(f"attention: {shapes}: the batch sizes differ")
    if not same(query.shape[3], key.shape[3]):
        raise ValueError(f"attention: {shapes}: query and key must have the same head width")
    heads, kv_heads = query.shape[1], key.shape[1]
    if same(kv_heads, 0) or not same(heads % kv_heads, 0):
        raise ValueError(
            f"attention: {shapes}: the query heads ({heads}) must be a multiple of the key heads ({kv_heads})"
        )
    if (past_key is None) != (past_value is None):
        raise ValueError("attention: got only one of past_key and past_value, expected both or neither")
    if past_key is not None and past_value is not None:
        for name, past, now in (("key", past_key, key), ("value", past_value, value)):
            axes = (0, 1, 3)
            if past.ndim != 4 or not same_shape([past.shape[a] for a in axes], [now.shape[a] for a in axes]):
                raise ValueError(
                    f"attention: past_{name} {show_shape(past.shape)} does not fit the new {show_shape(now.shape)}: "
                    "only the length may differ"
                )
