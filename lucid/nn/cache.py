"""The cache of attention layers: the keys and values of earlier positions, for the next decode step.

A cache is an ordinary input and output: a model that is given one returns the cache for the next step. Modules do not
store it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from lucid import ops
from lucid.dims import same
from lucid.ops.creation import zeros
from lucid.ops.tensor import Tensor
from lucid.types import DType, show_shape


class KeyValueCache(NamedTuple):
    """The keys and values that one attention layer has computed so far, (N, H_kv, P, d) and (N, H_kv, P, d_v).

    It grows: a step with L new tokens returns one of P + L positions.
    """

    key: Tensor
    value: Tensor

    @classmethod
    def empty(cls, shape: CacheShape, batch: int) -> Self:
        """A cache without positions."""
        sizes = (batch, shape.kv_heads, 0, shape.head_dim)
        return cls(zeros(sizes, dtype=shape.dtype), zeros(sizes, dtype=shape.dtype))


class CacheShape(NamedTuple):
    """The sizes of a decoder's cache, which has one pair of keys and values per layer."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: DType


def cached_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: KeyValueCache | None,
    mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, KeyValueCache | None]:
    """Attention to the positions in a cache and to the new ones after them.

    Args:
        query, key, value: of the L new positions, as for `ops.attention`.
        cache: the P earlier positions; None without a cache.
        mask, key_mask: as for `ops.attention`, over P + L keys.
        options: `heads`, `kv_heads`, `scale`, `is_causal`, `window` and `softcap` of `ops.attention`.

    Returns:
        The output, and the cache of all P + L positions, or None.

    Raises:
        ValueError, TypeError: as `ops.attention`.
    """
    if cache is None:
        return ops.attention(query, key, value, mask, key_mask, **options), None
    output, *present = ops.attention(query, key, value, mask, key_mask, cache.key, cache.value, **options)
    return output, KeyValueCache(*present)


def positions_of(
    input_ids: Tensor, position_ids: Tensor | None, past_key_values: Sequence[KeyValueCache] | None
) -> Tensor:
    """The positions of new tokens: (N, L) as given, or (L,), which follow those in the cache."""
    if position_ids is not None:
        return position_ids
    past = 0 if not past_key_values else past_key_values[0].key.shape[2]
    return ops.arange(past, past + input_ids.shape[1])


def check_cache(where: str, shape: CacheShape, caches: Sequence[KeyValueCache] | None) -> None:
    """Check that a cache belongs to the model.

    Raises:
        ValueError: for another number of layers, shape or element type; the message names the layer.
    """
    if caches is None:
        return
    if len(caches) != shape.layers:
        raise ValueError(f"{where}: past_key_values has {len(caches)} layers, expected {shape.layers}: one a layer")
    batch, _, past, _ = caches[0].key.shape
    for layer, cache in enumerate(caches):
        for part, held in zip(KeyValueCache._fields, cache, strict=True):
            wanted = (batch, shape.kv_heads, past, shape.head_dim)
            fits = held.ndim == 4 and all(same(a, b) for a, b in zip(held.shape, wanted, strict=True))
            if not fits or held.dtype != shape.dtype:
                raise ValueError(
                    f"{where}: past_key_values.{layer}.{part} is {held.dtype}{show_shape(held.shape)}, expected "
                    f"{shape.dtype}{show_shape(wanted)}: a cache of this model"
                )
