"""Scaled dot-product attention: one op that carries the whole contract (docs/attention.md).

The body below is the definition. The NumPy kernel, and every ONNX form an exporter chooses, computes the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid.dims import Size, product, same
from lucid.ops.attention_eager import tiled
from lucid.ops.attention_masks import excluded, joined, scores_type
from lucid.ops.creation import arange_between
from lucid.ops.elementwise import logical_and, tanh, where
from lucid.ops.indexing import take
from lucid.ops.linalg import matmul
from lucid.ops.neural import dropout, softmax
from lucid.ops.op import composite_with
from lucid.ops.shaping import concat, permute, reshape, unsqueeze
from lucid.ops.tensor import Tensor
from lucid.types import Array, bool_, broadcast, same_shape, show_shape


def _kernel(*arrays: Array | None, **attributes: Any) -> tuple[Array, ...]:
    query, key, value = arrays[:3]
    assert query is not None and key is not None and value is not None
    found = tiled(query, key, value, *arrays[3:], **attributes)
    if found is not None:
        return found
    return tuple(
        t.numpy() for t in attention.expand([x if x is None else Tensor.from_array(x) for x in arrays], attributes)
    )


@composite_with(kernel=_kernel)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> Any:
    """softmax(scale * query @ key.T + mask) @ value, head by head (Vaswani et al. 2017; ONNX Attention-23).

    Args:
        query: (N, H, L, d); with `heads`, the packed form (N, L, H*d). Floating point, one element type for all three.
        key: (N, H_kv, S, d) or (N, S, H_kv*d). Query head h reads key head h // (H / H_kv).
        value: (N, H_kv, S, d_v) or (N, S, H_kv*d_v).
        mask: broadcasts to (N, H, L, S). Boolean: true = attend. Floating: added to the scores; an entry that is not
            above the lowest finite number of its type (``-inf`` or ``finfo.min``) excludes its key.
        key_mask: (N, S), the same for keys alone.
        past_key, past_value: (N, H_kv, P, d), (N, H_kv, P, d_v), keys and values of earlier positions, put in front;
            masks then cover P + S keys.
        heads, kv_heads: the numbers of heads of the packed form; kv_heads defaults to heads.
        scale: multiplies the scores; 1 / sqrt(d) by default.
        is_causal: query i sees the keys up to i + P.
        window: query i sees no key before i + P - window + 1: itself and the window - 1 keys before it.
        softcap: where positive, scores become softcap * tanh(scores / softcap), before any mask.
        dropout_p: probability of dropping a weight; for training only.
        need_weights: also return the weights.

    Returns:
        The output, (N, H, L, d_v) or packed (N, L, H*d_v); then, with a past, the present keys and values
        (N, H_kv, P + S, d); then, if asked for, the weights (N, H, L, P + S). A query that no key is visible to gets
        output 0 and weights 0.

    Raises:
        ValueError, TypeError: for sizes, masks or types that do not fit; the message says which.
    """
    _check_options(heads, kv_heads, scale, window, softcap)
    if heads is not None:
        query = _split_heads("query", query, heads)
        key = _split_heads("key", key, kv_heads or heads)
        value = _split_heads("value", value, kv_heads or heads)
    _check(query, key, value, past_key, past_value)
    results: list[Tensor] = []
    past: Size = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        key, value = concat([past_key, key], 2), concat([past_value, value], 2)
        results += [key, value]
    output, weights = _attend(query, key, value, mask, key_mask, past, scale, is_causal, window, softcap, dropout_p)
    if heads is not None:
        output = permute(output, (0, 2, 1, 3))
        output = reshape(output, (*output.shape[:2], product(output.shape[2:])))
    results = [output, *results, *([weights] if need_weights else [])]
    return tuple(results) if len(results) > 1 else output


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    key_mask: Tensor | None,
    past: Size,
    scale: float | None,
    is_causal: bool,
    window: int | None,
    softcap: float,
    dropout_p: float,
) -> tuple[Tensor, Tensor]:
    """Output and weights of heads that are split already."""
    dtype = query.dtype
    # Half precision: scores and sums in float32, rounded once at the end.
    query, key, value = (x.astype(scores_type(dtype)) for x in (query, key, value))
    key, value = _repeat_heads(key, query.shape[1]), _repeat_heads(value, query.shape[1])
    scores = matmul(query * default_scale(query, scale), key.mT)
    if softcap:
        scores = tanh(scores * (1 / softcap)) * softcap
    for given in (mask, None if key_mask is None else unsqueeze(key_mask, (1, 2))):
        if given is not None:
            _check_mask(given, scores)
    position: Tensor | None = None
    if is_causal or window is not None:
        position = causal_mask(scores.shape[-2], scores.shape[-1], past, is_causal, window)
    # Where a row may see no key, hidden scores get the lowest number, not -inf: it then has weights, not NaN, and they
    # are zeroed.
    joint = joined(mask, key_mask, position, scores.dtype)
    if joint is None:
        weights = softmax(scores)
    elif joint is position:  # without a window it leaves every row a key
        weights = softmax(where(joint, scores, -math.inf if window is None else scores.dtype.lowest))
        if window is not None:
            weights = where(joint, weights, 0.0)
    elif joint.dtype == bool_:
        # Added, not chosen: NaN in a hidden key stays NaN, as in onnxruntime's kernel and in torch's. The zero has
        # axes: OpenVINO does not compile where it is one constant with that of hidden weights.
        bias = where(joint, np.zeros((1, 1), scores.dtype.numpy), scores.dtype.lowest)
        weights = where(joint, softmax(scores + bias), 0.0)
    else:
        hidden = excluded(joint)
        bias = where(hidden, scores.dtype.lowest, joint.astype(scores.dtype))
        weights = where(hidden, 0.0, softmax(scores + bias))
    if dropout_p:
        weights = dropout(weights, p=dropout_p)
    return matmul(weights, value).astype(dtype), weights.astype(dtype)


def causal_mask(queries: Size, keys: Size, past: Size, is_causal: bool, window: int | None) -> Tensor:
    """(L, S) booleans: which keys a query sees by position alone."""
    row = unsqueeze(arange_between(start=past, stop=past + queries), 1)
    column = arange_between(start=0, stop=keys)
    seen = []
    if is_causal:
        seen.append(column <= row)
    if window is not None:
        seen.append(column > row - window)
    return seen[0] if len(seen) == 1 else logical_and(seen[0], seen[1])


def default_scale(query: Tensor, scale: float | None) -> float:
    """The factor of the scores: as given, or 1 / sqrt(d)."""
    if scale is not None:
        return scale
    width = query.shape[-1]
    return 1 / math.sqrt(width) if not same(width, 0) else 1.0


def _split_heads(name: str, x: Tensor, heads: int) -> Tensor:
    """(N, L, H*d) to (N, H, L, d): each position is cut into heads, then the heads go in front of the positions."""
    if x.ndim != 3 or not same(x.shape[-1] % heads, 0):
        raise ValueError(
            f"attention: {name} has shape {show_shape(x.shape)}, expected (N, length, {heads} heads * width); "
            "the last size must be a multiple of the heads"
        )
    n, length, width = x.shape
    return permute(reshape(x, (n, length, heads, width // heads)), (0, 2, 1, 3))


def _repeat_heads(x: Tensor, heads: Size) -> Tensor:
    """Each key or value head once per query head that reads it."""
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
        raise ValueError("attention: past_key and past_value come together, got one of them")
    if past_key is not None and past_value is not None:
        for name, past, now in (("key", past_key, key), ("value", past_value, value)):
            axes = (0, 1, 3)
            if past.ndim != 4 or not same_shape([past.shape[a] for a in axes], [now.shape[a] for a in axes]):
                raise ValueError(
                    f"attention: past_{name} {show_shape(past.shape)} does not fit the new {show_shape(now.shape)}: "
                    "only the length may differ"
                )


def _check_options(
    heads: int | None, kv_heads: int | None, scale: float | None, window: int | None, softcap: float
) -> None:
    for name, number in (("heads", heads), ("kv_heads", kv_heads), ("window", window)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            why = ": a query sees at least itself" if name == "window" else ""
            raise ValueError(f"attention: {name} is {number!r}, expected a whole number of 1 or more{why}")
    if scale is not None and not math.isfinite(scale):
        raise ValueError(f"attention: scale is {scale}, expected a finite number")
    if not 0 <= softcap < math.inf:
        raise ValueError(f"attention: softcap is {softcap}, expected a number of 0 or more (0: none)")


def _check_mask(mask: Tensor, scores: Tensor) -> None:
    if mask.dtype.kind == "int":
        raise TypeError(
            f"attention: the mask is {mask.type}, expected booleans or floats; a mask of 0 and 1 becomes "
            "boolean with mask.astype(lucid.bool_) or mask != 0"
        )
    try:
        fits = same_shape(broadcast("attention", mask.shape, scores.shape), scores.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"attention: the mask has shape {show_shape(mask.shape)}, which does not broadcast to the scores "
            f"(N, H, L, S) = {show_shape(scores.shape)}"
        )
