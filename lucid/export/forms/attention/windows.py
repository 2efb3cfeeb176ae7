"""Attention within a window for onnxruntime's CPU provider: its time grows with L times the window, not with L times L.

An `Attention` node computes all L x L scores and hides those outside of the window. Here queries are cut into blocks of
equal size, each block gets copies of the keys and values from `window - 1` before its first query to `window_after`
after its last one, and all blocks are one batch of plain attention (the sliding chunks of Beltagy et al. 2020,
"Longformer", section 3). The page "Benchmarks" says when that is faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from lucid.core.graph.types import Array, TensorType
from lucid.core.sizes.dims import Size, product
from lucid.export.builder import Builder, Operand
from lucid.export.forms.attention.call import Call
from lucid.export.forms.attention.nodes import node_output
from lucid.export.forms.attention.open_lengths import by_length
from lucid.export.forms.attention.plan import Plan
from lucid.export.forms.attention.products import at_once
from lucid.ops import expand, logical_and, maximum, permute, reshape, take, unsqueeze
from lucid.ops.attention.masks import causal_mask, combined_mask
from lucid.ops.creation import arange_op, size_op
from lucid.ops.tensor.tensor import Tensor


def in_window_blocks(build: Builder, call: Call, plan: Plan, output: TensorType) -> Operand:
    """Attention in the window blocks of a plan, of a known length or of any; or as a causal call."""
    if not plan.rows:
        # A window that hides nothing changes causal attention only where a query has more keys before it.
        options = replace(call.options, is_causal=True, window=None, window_after=None)
        return build.name_of(replace(call, options=options).by_best_form())
    (rows,), before, after = plan.rows, (call.options.window or 1) - 1, call.options.ahead or 0
    blocks = _blocks(call, rows, before, after)
    if plan.limit is None:
        return _in_blocks(build, call, blocks)
    build.names_of([blocks.own, blocks.near, blocks.mask])  # outside of the branches, where all layers share them
    return by_length(
        build,
        call.queries,
        plan,
        lambda: at_once(build, call, plan.short),
        lambda: _in_blocks(build, call, blocks),
        output,
    )


@dataclass(frozen=True)
class _Blocks:
    """The blocks of a text, and the positions of their queries and keys in it."""

    count: Size
    own: Tensor  # (blocks, rows), of queries
    near: Tensor  # (blocks, keys), of keys
    mask: Tensor  # (N * blocks, 1, rows, keys), which keys a query sees, or what a floating mask adds for them


def _blocks(call: Call, rows: int, before: int, after: int) -> _Blocks:
    """Blocks of so many queries, which see so many keys before and after themselves."""
    band = _band(rows, before, after)
    count, keys = -(-call.queries // rows), band.shape[1]
    starts = unsqueeze(arange_op(start=0, stop=count), 1) * rows
    own, near = starts + np.arange(rows), starts + np.arange(-before, rows + after)
    # What lies outside of the text is hidden. It is read from the other end of the text, so nothing has to be padded.
    size = size_op(size=call.queries)
    places = maximum(size, 1)  # onnxruntime refuses to divide by 0, even where there is nothing to divide
    seen = unsqueeze(logical_and(near >= 0, near < size), 0)
    near %= places
    shown = None if call.key_mask is None else take(call.key_mask, near, 1)
    if shown is not None and shown.dtype.kind == "bool":
        seen = logical_and(seen, shown)
    visible = logical_and(unsqueeze(seen, 2), band)
    mask = reshape(expand(visible, (call.batch, count, rows, keys)), (call.batch * count, 1, rows, keys))
    if shown is not None and shown.dtype.kind == "float":
        joined = combined_mask(replace(call, key_mask=reshape(shown, (call.batch * count, keys))), mask)
        assert joined is not None
        mask = joined
    return _Blocks(count, own % places, near, mask)


@cache
def _band(rows: int, before: int, after: int) -> Array:
    """Which of a block's keys each of its queries may see; one array for all layers, which the exporter then shares."""
    return causal_mask(rows, before + rows + after, before, ahead=after, window=before + 1).numpy()


def _in_blocks(build: Builder, call: Call, blocks: _Blocks) -> Operand:
    """Attention of as many queries as keys, block by block."""
    query, key, value = (
        _batched(x, positions)
        for x, positions in ((call.query, blocks.own), (call.key, blocks.near), (call.value, blocks.near))
    )
    options = replace(call.options, is_causal=False, window=None, window_after=None)
    batched = Call(query, key, value, blocks.mask, options=options)
    # The best form for long texts fills hidden scores, which costs more than it saves in small blocks.
    output = batched.by_best_form() if options.softcap else node_output(build, batched)
    return build.name_of(_joined(output, call.batch, blocks.count, call.queries))


def _batched(x: Tensor, positions: Tensor) -> Tensor:
    """The elements of x at these positions (blocks, rows), with blocks as part of the batch.

    (N, H, L, d) becomes (N * blocks, H, rows, d), and packed (N, L, H*d) becomes (N * blocks, rows, H*d).
    """
    cut = take(x, positions, -2)
    if x.ndim == 4:
        cut = permute(cut, (0, 2, 1, 3, 4))
    return reshape(cut, (product(cut.shape[:2]), *cut.shape[2:]))


def _joined(x: Tensor, batch: Size, count: Size, length: Size) -> Tensor:
    """The inverse of `_batched`, without the rows beyond the length."""
    x = reshape(x, (batch, count, *x.shape[1:]))
    if x.ndim == 5:
        x = permute(x, (0, 2, 1, 3, 4))
    x = reshape(x, (*x.shape[:-3], product(x.shape[-3:-1]), x.shape[-1]))
    return x[..., :length, :]
