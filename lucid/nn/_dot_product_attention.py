"""`F.scaled_dot_product_attention`: torch's arguments and any leading axes that broadcast, around `ops.attention`."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from lucid import ops
from lucid.core.graph.types import broadcast, same_shape, show_shape
from lucid.core.number_ranges import FINITE, check
from lucid.core.sizes.dims import Size, product, same
from lucid.nn._checks import check_probability
from lucid.nn.parameters import Parameter
from lucid.ops.attention.masks import causal_mask
from lucid.ops.creation import arange_op
from lucid.ops.operand_conversion import check_tensors
from lucid.ops.tensor.tensor import Tensor

NAME = "scaled_dot_product_attention"
Causality: TypeAlias = bool | Literal["lower_right"]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: Causality = False,
    scale: complex | None = None,
    enable_gqa: bool = False,
    *,
    key_lengths: Tensor | None = None,
) -> Tensor:
    """softmax(scale * query @ key.T + mask) @ value.

    Args:
        query: (..., H, L, d), with any number of leading axes, or (L, d).
        key: (..., H, S, d). Its leading axes and those of query and value broadcast.
        value: (..., H, S, d_v).
        attn_mask: broadcasts to (..., H, L, S). Boolean: true = attend. Floating: added to the scores.
        dropout_p: probability of dropping a weight; it applies in training and in evaluation mode.
        is_causal: query i sees keys up to i (from the top left where L and S differ); "lower_right": up to i + S - L,
            so the last query sees every key. With `attn_mask` both apply.
        scale: multiplies the scores; by default 1 / sqrt(d).
        enable_gqa: allow fewer key than query heads: query head h reads key head h // (H / H_kv).
        key_lengths: integers with the axes before the heads, (N,) of four axes, or that broadcast to them: of each
            row, how many keys its queries see. The keys after them are padding.

    Returns:
        (..., H, L, d_v); zeros for a query that sees no key.

    Raises:
        ValueError, TypeError: for sizes, masks or options that do not fit.
    """
    check_probability(NAME, "dropout_p", dropout_p)
    check_tensors(NAME, query=query, key=key, value=value)
    rank = max(query.ndim, key.ndim, value.ndim)
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ValueError(f"{NAME}: {_shapes(query, key, value)}: expected (..., length, width) each")
    attn_mask, is_causal = _with_causality(attn_mask, is_causal, query.shape[-2], key.shape[-2])
    batch: Sequence[Size] = query.shape[:1]
    leading = query.shape[:2]
    if query.ndim != 4 or not (same_shape(key.shape[:-2], leading) and same_shape(value.shape[:-2], leading)):
        query, key, value = (_with_axes(x, max(rank, 4)) for x in (query, key, value))
        query, key, value = _fitting_heads(query, key, value, enable_gqa)
        batch = _batch(query, key, value)
        query, key, value = (_joined(x, batch) for x in (query, key, value))
    if attn_mask is not None and len(batch) > 1 and attn_mask.ndim > 3:
        attn_mask = _joined_mask(attn_mask, batch)
    result: Tensor = ops.attention(
        query,
        key,
        value,
        attn_mask,
        None if key_lengths is None else _key_mask(key_lengths, batch, key.shape[-2]),
        is_causal=is_causal,
        scale=real_scale(NAME, scale),
        dropout_p=dropout_p,
    )
    if rank < 4:
        return ops.squeeze(result, tuple(range(4 - rank)))
    return result if rank == 4 else ops.reshape(result, (*batch, *result.shape[1:]))


def _with_causality(mask: Tensor | None, causality: Causality, queries: Size, keys: Size) -> tuple[Tensor | None, bool]:
    """The mask, with causality from the lower right as a part of it, and whether it is causal from the top left."""
    if isinstance(causality, str) and causality != "lower_right":
        raise ValueError(f'{NAME}: is_causal is {causality!r}, expected True, False or "lower_right"')
    if causality != "lower_right" or same(queries, keys):
        return mask, bool(causality)
    seen = causal_mask(queries, keys, keys - queries)
    if mask is None or mask.dtype.kind == "int":  # which attention refuses
        return seen if mask is None else mask, False
    return (ops.logical_and(mask, seen) if mask.dtype.kind == "bool" else ops.where(seen, mask, -math.inf)), False


def _key_mask(lengths: Tensor, batch: Sequence[Size], keys: Size) -> Tensor:
    """(N, S) booleans from lengths that broadcast to the axes joined to N: true for the first ones of each row."""
    check_tensors(NAME, key_lengths=lengths)
    if lengths.dtype.kind != "int":
        raise TypeError(f"{NAME}: key_lengths are {lengths.spec}, expected integers: how many keys each row has")
    where = f"{NAME}: key_lengths for rows {show_shape(batch)}"
    if not same_shape(broadcast(where, lengths.shape, batch), batch):
        raise ValueError(f"{where}: got {lengths.spec}, expected one for each row, as the axes before the heads")
    rows = ops.reshape(ops.expand(lengths, batch), (product(batch), 1))
    return arange_op(start=0, stop=keys) < rows


def _shapes(query: Tensor, key: Tensor, value: Tensor) -> str:
    return f"query {show_shape(query.shape)}, key {show_shape(key.shape)}, value {show_shape(value.shape)}"


def _with_axes(x: Tensor, rank: int) -> Tensor:
    """Leading axes of size 1, up to this many axes."""
    return x if x.ndim == rank else ops.unsqueeze(x, tuple(range(rank - x.ndim)))


def _fitting_heads(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Heads as `ops.attention` takes them: equally many of keys and values, and a multiple of queries."""
    heads, *others = (x.shape[-3] for x in (query, key, value))
    if all(same(heads, other) for other in others):
        return query, key, value
    alike = same(*others)
    if grouped:
        if not alike:
            key, value = (ops.repeat_interleave(x, _times(x, heads, query, key, value), -3) for x in (key, value))
        return query, key, value
    if not all(same(size, 1) or same(size, heads) or same(heads, 1) for size in others):
        raise ValueError(f"{NAME}: {heads} query heads and {others[0]} key heads; grouped heads need enable_gqa=True")
    heads_shape = broadcast(NAME, *((x.shape[-3],) for x in (query, key, value)))[0]
    if not alike:
        key, value = _expanded(key, heads_shape), _expanded(value, heads_shape)
    return _expanded(query, heads_shape), key, value


def _times(x: Tensor, heads: Size, query: Tensor, key: Tensor, value: Tensor) -> int:
    """The number of query heads that read each head of keys or values."""
    own = x.shape[-3]
    if not isinstance(heads, int) or not isinstance(own, int) or not own or heads % own:
        raise ValueError(
            f"{NAME}: {_shapes(query, key, value)}: with enable_gqa the query heads must be a multiple of the heads of "
            "keys and of values"
        )
    return heads // own


def _expanded(x: Tensor, heads: Size) -> Tensor:
    return ops.expand(x, (*x.shape[:-3], heads, *x.shape[-2:]))


def _batch(query: Tensor, key: Tensor, value: Tensor) -> Sequence[Size]:
    """The sizes of the axes before the heads."""
    return broadcast(f"{NAME}: {_shapes(query, key, value)}", *(x.shape[:-3] for x in (query, key, value)))


def _joined(x: Tensor, batch: Sequence[Size]) -> Tensor:
    """(..., H, L, d) as (N, H, L, d), with the broadcast axes before the heads joined to N."""
    if not same_shape(x.shape[:-3], batch):
        x = ops.expand(x, (*batch, *x.shape[-3:]))
    return x if len(batch) == 1 else ops.reshape(x, (product(batch), *x.shape[-3:]))


def _joined_mask(mask: Tensor, batch: Sequence[Size]) -> Tensor:
    """A mask (..., H, L, S) as (N, H, L, S) or, where it is the same for all, (1, H, L, S)."""
    if mask.ndim > len(batch) + 3:
        raise ValueError(
            f"{NAME}: attn_mask has shape {show_shape(mask.shape)}, expected at most {len(batch) + 3} axes: those of "
            "the result"
        )
    if all(same(size, 1) for size in mask.shape[:-3]):
        return ops.reshape(mask, (1, *mask.shape[-3:]))
    return _joined(_with_axes(mask, len(batch) + 3), batch)


def real_scale(where: str, scale: complex | Tensor | None) -> float | None:
    """A scale as a real number.

    Raises:
        TypeError: for anything but a number, and for a parameter or a traced tensor, as a scale is a constant.
        ValueError: for NaN or infinity, or a complex number whose imaginary part is not zero.
    """
    if scale is None:
        return None
    if isinstance(scale, Tensor):
        if scale.is_traced or isinstance(scale, Parameter):
            kind = "traced tensor" if scale.is_traced else "parameter"
            raise TypeError(
                f"{where}: scale is a {kind}, expected a number, which is a constant of the graph; one that is learned "
                "or computed multiplies the query: query * scale, scale=1.0"
            )
        scale = scale.item()
    if not isinstance(scale, (complex, np.complexfloating)):
        check(f"{where}: scale", scale, FINITE)
        return float(scale)
    if not cmath.isfinite(scale):
        raise ValueError(f"{where}: scale is {scale}, expected a finite number")
    if scale.imag != 0:
        raise ValueError(f"{where}: scale is {scale}, expected a real number (a zero imaginary part is accepted)")
    return scale.real
