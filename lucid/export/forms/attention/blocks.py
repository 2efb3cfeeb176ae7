"""Attention of a known length in blocks of queries, with hidden keys filled (`fill.py`), in Lucid's own ops.

A causal block reads the keys up to its last query. Either it gets a copy of them, for a node or for products, or each
block hands the keys that it has read on to the next one, as a cache of earlier positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from typing import TypeAlias

import numpy as np

from lucid.core.graph.types import Array, TensorType, float32
from lucid.core.sizes.dims import Size, same
from lucid.export.builder import Builder, computed
from lucid.export.forms.attention.call import Call
from lucid.export.forms.attention.fill import fill_value, filled_mask, sees_a_key
from lucid.export.forms.attention.plan import BLOCKS, IN_PRODUCTS, Plan
from lucid.export.forms.attention.products import as_given, biased, in_products, split
from lucid.export.run_time_sizes import sizes_vector
from lucid.ops import attention, concat, expand, logical_not, minimum, unsqueeze
from lucid.ops.attention.masks import causal_mask
from lucid.ops.attention.op import split_heads
from lucid.ops.shaping import pad
from lucid.ops.tensor.tensor import Tensor

Attended: TypeAlias = Callable[[Builder, Call, Sequence[Tensor], Iterator[Tensor]], Iterator[Tensor]]
"""The outputs of blocks of queries, given what is added to the scores of each."""


def in_blocks(build: Builder, call: Call, plan: Plan) -> Tensor:
    """Attention in the blocks of a plan. (N, H, L, d) or packed (N, L, H*d)."""
    if plan.form == IN_PRODUCTS:
        return as_given(call, _filled(build, split(call), plan, partial(_copied, in_products)))
    return _filled(build, call, plan, partial(_copied, biased) if plan.form == BLOCKS else _handed_on)


def _filled(build: Builder, call: Call, plan: Plan, attended: Attended) -> Tensor:
    """Attention in blocks, with hidden keys filled."""
    if call.mask is not None:
        call = replace(call, mask=_of_keys(call, call.mask))
    fill = fill_value(build, call) if plan.fill else float32.lowest
    parts = list(attended(build, call, call.query.split(plan.rows, -2), _biases(build, call, plan.rows, fill)))
    output = concat(parts, -2) if len(parts) > 1 else parts[0]
    seeing = sees_a_key(build, call)
    if seeing is None:
        return output
    return output * (seeing if call.options.heads is None else seeing[:, 0])


def _copied(
    attend: Callable[[Builder, Call, Tensor], Tensor],
    build: Builder,
    call: Call,
    queries: Sequence[Tensor],
    biases: Iterator[Tensor],
) -> Iterator[Tensor]:
    """Each block reads a copy of the keys and values up to its last query, and is written by `attend`."""
    for query, bias in zip(queries, biases, strict=True):
        key, value = (_first(build, x, bias.shape[-1]) for x in (call.key, call.value))
        yield attend(build, Call(query, key, value, options=replace(call.options, is_causal=False)), bias)


def _handed_on(build: Builder, call: Call, queries: Sequence[Tensor], biases: Iterator[Tensor]) -> Iterator[Tensor]:
    """Each block hands the keys and values that it has read on to the next; the last one reads all where they are.

    A node joins a head's earlier and new keys right before its product reads them: they are in the processor's cache
    then, while a `Gather` copies those of all heads before the first product.
    """
    heads, kv_heads, scale = call.options.heads, call.options.key_heads, call.options.scale
    rows = [query.shape[-2] for query in queries]
    past: Sequence[Tensor] = ()
    for query, key, value in zip(queries[:-1], call.key.split(rows, -2), call.value.split(rows, -2), strict=False):
        results = attention(query, key, value, next(biases), None, *past, heads=heads, kv_heads=kv_heads, scale=scale)
        if past:
            output, *past = results
        else:
            output = results
            past = [x if kv_heads is None else split_heads("key", x, kv_heads) for x in (key, value)]
        yield output
    yield attention(queries[-1], call.key, call.value, next(biases), heads=heads, kv_heads=kv_heads, scale=scale)


def _biases(build: Builder, call: Call, rows: Sequence[int], fill: Tensor | float) -> Iterator[Tensor]:
    """The bias of the scores of each block, in a column for each key that it reads."""
    keys, is_causal = call.new_keys, call.options.is_causal
    hidden_keys = None if call.key_mask is None else unsqueeze(filled_mask(call.key_mask, fill), (1, 2))
    hidden = None if call.mask is None else filled_mask(call.mask, fill)
    triangle: Tensor | None = None
    if is_causal:
        # The triangle of hidden keys of the largest block; other blocks use its lower right part. Where the number is
        # known, all layers share these nodes, and onnxruntime computes them when it loads the model.
        corner = _stored(build, _triangle(rows[-1])) * fill
        triangle = pad(corner, before=(0, keys - rows[-1]), after=(0, 0))
    start: Size = 0
    for count in rows:
        stop = start + count
        end = stop if is_causal else keys
        masks: list[Tensor] = []
        if triangle is not None:
            masks.append(triangle[triangle.shape[0] - count :, keys - end :])
        if hidden_keys is not None:
            masks.append(hidden_keys[..., :end])
        if hidden is not None:
            masks.append(hidden[..., (slice(start, stop) if not same(hidden.shape[-2], 1) else slice(None)), :end])
        yield reduce(minimum, masks)
        start = stop


def _first(build: Builder, x: Tensor, count: Size) -> Tensor:
    """The first positions of keys or values. Gather copies with all threads; Slice with one, three times as long."""
    whole = x.shape[-2]
    if same(count, whole):
        return x
    assert isinstance(whole, int)  # blocks that read a part are causal, with as many keys as queries
    places = build.op("Slice", _positions(whole), np.array([0]), sizes_vector(build, [count]), np.array([0]))
    copy = build.op("Gather", x, places, axis=x.ndim - 2)
    return computed(build, copy, x.spec.with_shape((*x.shape[:-2], count, x.shape[-1])))


def _of_keys(call: Call, mask: Tensor) -> Tensor:
    """A mask with axes of queries and of keys, and a column for each key where blocks read all of them."""
    while mask.ndim < 2:
        mask = unsqueeze(mask, 0)
    if call.options.is_causal or not same(mask.shape[-1], 1):
        return mask
    return expand(mask, (*mask.shape[:-1], call.new_keys))


def _stored(build: Builder, array: Array) -> Tensor:
    """An array whose uses stay nodes: onnxruntime computes them as it loads the model, and the file has none."""
    return computed(build, build.name_of(array), TensorType(float32, array.shape))


@cache
def _triangle(rows: int) -> Array:
    """1 where causality hides a key of a block from one of its queries; one array for all layers, as the next."""
    return logical_not(causal_mask(rows, rows)).astype(float32).numpy()


@cache
def _positions(count: int) -> Array:
    return np.arange(count)
