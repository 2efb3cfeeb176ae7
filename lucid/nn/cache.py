"""The cache of attention layers: the keys and values of earlier positions, for the next decode step.

A cache is an ordinary input and output: a model that is given one returns the cache for the next step. Modules do not
store it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from lucid import ops
from lucid.core.graph.types import DType, TensorType, bool_, int64, spec
from lucid.core.sizes.dims import Size
from lucid.core.words.other_libraries import type_name
from lucid.ops.attention.op import joined_heads, split_heads
from lucid.ops.creation import zeros
from lucid.ops.tensor.tensor import Tensor


class KeyValueCache(NamedTuple):
    """The keys and values that one attention layer has computed so far, (N, H_kv, P, d) and (N, H_kv, P, d_v).

    It grows: a step with L new tokens returns one of P + L positions.
    """

    key: Tensor
    value: Tensor

    @classmethod
    def empty(cls, shape: CacheShape, batch: Size) -> Self:
        """A cache without positions."""
        return cls(*(zeros(batch, shape.kv_heads, 0, width, dtype=shape.dtype) for width in shape.widths))

    @classmethod
    def types(cls, kv_heads: int, head_dim: int, dtype: DType) -> Any:
        """The types of a cache without the batch, for `RecurrentDecoder.state_types`."""
        return cls._make([spec(kv_heads, "past_sequence_length", head_dim, dtype=dtype)] * 2)

    @classmethod
    def of(cls, key: Tensor, value: Tensor, heads: int) -> Self:
        """A cache of packed keys and values, (N, P, H_kv*d) and (N, P, H_kv*d_v)."""
        return cls(split_heads("key", key, heads), split_heads("value", value, heads))


class KeyValueBuffer(NamedTuple):
    """The keys and values of one attention layer in buffers of a fixed capacity, (N, H_kv, C, d) and (N, H_kv, C, d_v).

    Position j is in slot j; `filled` (N,) int64 counts the filled slots of each row. If it is None, as in an exported
    step, the positions of the new tokens give the count.
    """

    key: Tensor
    value: Tensor
    filled: Tensor | None = None

    @classmethod
    def empty(cls, shape: CacheShape, batch: Size, capacity: int) -> Self:
        """An empty cache with room for `capacity` positions."""
        key, value = (zeros(batch, shape.kv_heads, capacity, width, dtype=shape.dtype) for width in shape.widths)
        return cls(key, value, zeros(batch, dtype=int64))


Cache: TypeAlias = KeyValueCache | KeyValueBuffer


def empty_caches(shape: CacheShape, batch: Size, capacity: int | None = None) -> list[Cache]:
    """The cache of each layer before the first step: growing from no positions, or buffers of a capacity."""
    if capacity is None:
        return [KeyValueCache.empty(shape, batch) for _ in range(shape.layers)]
    return [KeyValueBuffer.empty(shape, batch, capacity) for _ in range(shape.layers)]


class CacheShape(NamedTuple):
    """The sizes of a decoder's cache, which has one pair of keys and values per layer.

    Values are as wide as keys unless `value_dim` says otherwise.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: DType
    value_dim: int | None = None

    @property
    def widths(self) -> tuple[int, int]:
        """The widths of a head's keys and values."""
        return self.head_dim, self.head_dim if self.value_dim is None else self.value_dim


def cached_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: Cache | None,
    mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Cache | None]:
    """Attention to the positions in a cache and to the new ones after them.

    Args:
        query, key, value: of the L new positions, as for `ops.attention`.
        cache: the earlier positions; None where there is no cache.
        mask: as for `ops.attention`, over P + L keys, or over the capacity of a buffer.
        key_mask: as for `ops.attention`; not with a buffer, whose filled slots are the keys.
        options: `sinks`, `heads`, `kv_heads`, `scale`, `is_causal`, `window` and `softcap` of `ops.attention`.

    Returns:
        The output, and the cache of all positions, or None.

    Raises:
        ValueError, TypeError: as `ops.attention` and `ops.buffered_attention`.
    """
    if cache is None:
        return ops.attention(query, key, value, mask, key_mask, **options), None
    if isinstance(cache, KeyValueCache):
        output, *present = ops.attention(query, key, value, mask, key_mask, cache.key, cache.value, **options)
        return output, KeyValueCache(*present)
    if key_mask is not None or cache.filled is None:
        raise ValueError(
            "cached_attention: a buffer takes no key_mask, and needs `filled`; in a decoder F.layer_caches and "
            "F.cache_key_mask provide both"
        )
    options = {"is_causal": False, **options}
    output, keys, values = ops.buffered_attention(
        query, key, value, cache.key, cache.value, cache.filled, mask, **options
    )
    return output, KeyValueBuffer(keys, values, cache.filled + query.shape[-2])


def cross_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None = None,
    *,
    heads: int,
    kv_heads: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention to keys and values of an encoder's output, the same at every step; they may come from a cache.

    Args:
        query: (N, L, H*d).
        key, value: (N, S, H_kv*d) and (N, S, H_kv*d_v); or as a cache has them, (N, H_kv, S, d) and (N, H_kv, S, d_v).
        key_mask, heads, kv_heads, scale: as for `ops.attention`.

    Returns:
        (N, L, H*d_v).

    Raises:
        ValueError, TypeError: as `ops.attention`.
    """
    if key.ndim == 3:
        packed: Tensor = ops.attention(query, key, value, None, key_mask, heads=heads, kv_heads=kv_heads, scale=scale)
        return packed
    query = split_heads("query", query, heads)
    return joined_heads(ops.attention(query, key, value, None, key_mask, scale=scale))


def cache_span(cache: Cache | None, new: Size) -> tuple[Size | Tensor, Size]:
    """The first of `new` positions, and the number of keys they attend to, for biases by distance.

    The first position is P for a growing cache, and (N,) for a buffer, whose rows are filled to different positions;
    the number of keys is P + L, or the capacity.
    """
    if isinstance(cache, KeyValueBuffer) and cache.filled is not None:
        return cache.filled, cache.key.shape[2]
    past = 0 if cache is None else cache.key.shape[2]
    return past, past + new


def layer_caches(
    past_key_values: Sequence[Cache] | None, position_ids: Tensor | None, layers: int
) -> list[Cache | None]:
    """The cache of each layer, or None for each.

    For buffers without `filled`, the first position of each row gives it; later positions of the row may be padding and
    do not matter.

    Raises:
        ValueError: for buffers without `filled` and no `position_ids`; eagerly, for positions that do not continue the
            filled slots: padding must come last.
    """
    if past_key_values is None:
        return [None] * layers
    caches: list[Cache | None] = []
    for cache in past_key_values:
        if isinstance(cache, KeyValueBuffer) and cache.filled is None:
            if position_ids is None:
                raise ValueError("a buffer without `filled` needs position_ids, got None")
            cache = cache._replace(filled=position_ids[:, 0])
        elif isinstance(cache, KeyValueBuffer) and position_ids is not None:
            _check_positions(position_ids, cache)
        caches.append(cache)
    return caches


def _check_positions(position_ids: Tensor, cache: KeyValueBuffer) -> None:
    if position_ids.is_traced or cache.filled is None or cache.filled.is_traced:
        return
    numbers = position_ids.numpy()
    counted = cache.filled.numpy()[:, None] + np.arange(numbers.shape[1])
    if not np.array_equal(np.broadcast_to(numbers, counted.shape), counted):
        raise ValueError(
            f"position_ids {numbers.tolist()} do not continue the buffer, expected {counted.tolist()}: pad texts on "
            "the right with a buffer"
        )


def cache_key_mask(attention_mask: Tensor | None, caches: Sequence[Cache | None]) -> Tensor | None:
    """The attention mask as a mask of keys; None for buffers, whose padding comes after the text and is never seen."""
    if attention_mask is None or (caches and isinstance(caches[0], KeyValueBuffer)):
        return None
    return attention_mask.astype(bool_)


def cache_positions(input_ids: Tensor, position_ids: Tensor | None, caches: Sequence[Cache | None]) -> Tensor:
    """The positions of new tokens: (N, L), given or counted from a buffer's rows, or (L,), the same for all rows."""
    if position_ids is not None:
        return position_ids
    first = next((cache for cache in caches if isinstance(cache, (KeyValueCache, KeyValueBuffer))), None)
    length = input_ids.shape[1]
    if isinstance(first, KeyValueBuffer) and first.filled is not None:
        return ops.unsqueeze(first.filled, 1) + ops.arange(0, length)
    past = 0 if first is None else first.key.shape[2]
    return ops.arange(past, past + length)


def present_caches(past_key_values: Sequence[Cache] | None, present: Sequence[Cache | None]) -> list[Cache]:
    """The new caches of all layers, in the form of the given ones."""
    kept = [cache for cache in present if cache is not None]
    if past_key_values and isinstance(past_key_values[0], KeyValueBuffer) and past_key_values[0].filled is None:
        return [KeyValueBuffer(cache.key, cache.value) for cache in kept]
    return kept


def check_cache(where: str, shape: CacheShape, caches: Sequence[Cache] | None, of: str = "") -> None:
    """Refuse a cache of another model or element type, or whose layers differ. Messages put `of` into the name.

    Raises:
        TypeError: for a layer whose cache is something else, such as a plain tuple.
        ValueError: for another number of layers, shape or element type; the message names the layer.
    """
    if caches is not None:
        for layer, cache in enumerate(caches):
            if not isinstance(cache, (KeyValueCache, KeyValueBuffer)):
                name = f"past_key_values.{layer}.{of}".rstrip(".")
                raise TypeError(
                    f"{where}: {name} is a {type_name(cache)}, expected nn.KeyValueCache(key, value) or an "
                    "nn.KeyValueBuffer; empty_cache(...) makes those of all layers"
                )
        past = caches[0].key.shape[2] if caches else 0
        key, value = (TensorType(shape.dtype, (shape.kv_heads, past, width)) for width in shape.widths)
        check_states(where, [{"key": key, "value": value}] * shape.layers, caches, of)


def check_states(where: str, types: Sequence[Mapping[str, TensorType]], states: Sequence[Any], of: str = "") -> None:
    """Refuse states of another number of layers, or with other tensors; `types` of each layer are without the batch.

    Raises:
        ValueError: the message names the layer.
    """
    if len(states) != len(types):
        raise ValueError(f"{where}: past_key_values has {len(states)} layers, expected {len(types)}: one a layer")
    batch = states[0][0].shape[:1] if states else ()
    for layer, (types_by_name, state) in enumerate(zip(types, states, strict=True)):
        tensors = state._asdict()
        for name, type_ in types_by_name.items():
            tensor: Tensor | None = tensors.get(name)
            expected = type_.with_shape((*batch, *type_.shape))
            if tensor is None or tensor.spec != expected:
                raise ValueError(
                    f"{where}: past_key_values.{layer}.{of}{name} is {'missing' if tensor is None else tensor.spec}, "
                    f"expected {expected}: a cache of this model"
                )
