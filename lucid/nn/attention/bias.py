"""Causality by name, as torch has it: masks for the `attn_mask` of `F.scaled_dot_product_attention`."""

from __future__ import annotations

from lucid.core.sizes.dims import Size
from lucid.ops.attention.masks import causal_mask
from lucid.ops.tensor.tensor import Tensor


def causal_upper_left(queries: Size, keys: Size) -> Tensor:
    """(L, S) booleans, true where query i sees key j: j <= i. The same as ``is_causal=True``."""
    return causal_mask(queries, keys)


def causal_lower_right(queries: Size, keys: Size) -> Tensor:
    """(L, S) booleans, true where query i sees key j: j <= i + S - L, so the last query sees every key.

    The same as ``is_causal="lower_right"``. With fewer keys than queries, the first queries see none.
    """
    return causal_mask(queries, keys, keys - queries)
