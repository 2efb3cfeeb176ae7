"""Forms of attention tuned for onnxruntime's CPU provider (docs/benchmarks.md describes how they were measured).

Two costs dominate there. A causal `Attention` node computes all L x L scores and discards half of them; and it masks
with the lowest number, for which the exponential is slow (`attention_fill.py`).

So queries are computed in blocks, each with the keys it can see; and hidden keys get a score that is low enough to
vanish in the sums but high enough for the exponential's fast path. Both are written in Lucid's own ops, as another body
of attention.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np

from lucid.dims import Size, same
from lucid.export.attention_node import Call, refuse_scale
from lucid.export.builder import Builder, computed
from lucid.export.form import Taken, form, refuse, refuse_slower, refuse_wrong
from lucid.export.forms.attention_fill import fill_value, filled_mask, sees_a_key
from lucid.export.forms.attention_products import biased, said_at_once
from lucid.export.forms.attention_scan import FIRST_BLOCKS, WHOLE, WHOLE_IF_CAPPED, of_any_length
from lucid.export.forms.by_length import refuse_unexpected, said_up_to
from lucid.export.run_time_sizes import sizes_vector
from lucid.known_runtimes import FILLED_MASKS
from lucid.ops import attention, concat, minimum, unsqueeze
from lucid.ops.attention_masks import causal_mask
from lucid.ops.creation import arange_op
from lucid.ops.shaping import pad
from lucid.ops.tensor import Tensor
from lucid.types import float32
from lucid.values import Node

SHORT, SHORT_IF_NOT_CAUSAL = 64, 128  # up to so many queries the plain node is as fast
# The rows of a block, up to so many queries: fewer rows compute fewer scores, and more copies of keys. Beyond, memory
# matters more than the few percent that larger blocks gain.
ROWS = ((512, 64), (1024, 128), (4096, 256))
ROWS_BEYOND = 128


@form(
    attention,
    takes="mask key_mask heads kv_heads scale is_causal softcap",
    name="query blocks",
    opset=23,
    kind="blocks",
    targets=("cpu",),
)
def query_blocks(build: Builder, node: Node) -> Taken:
    call = Call.of(node)
    _refuse_unfit_for_blocks(call)
    refuse_wrong(build, FILLED_MASKS)
    if not call.options.is_causal:
        if call.mask is None and call.key_mask is None:
            refuse("nothing is masked, so no scores can be left out")
        if not isinstance(call.queries, int):
            refuse("texts of any length are padded little, and filling pays where a third of the keys is hidden")
        _refuse_short(build, call.queries, SHORT_IF_NOT_CAUSAL, "filled masks")
        return Taken(filled(build, call, call.queries, 1), _share(1, 1))
    length = call.queries
    if isinstance(length, int):
        _refuse_short(build, length, SHORT, "blocks")
        blocks = -(-length // _rows(length))
        return Taken(filled(build, call, length, blocks), _share(length, blocks))

    whole = WHOLE_IF_CAPPED if call.options.softcap else WHOLE
    refuse_unexpected(build, whole)
    return Taken(
        of_any_length(build, node, call, length, whole),
        f"{said_up_to(build, whole, said_at_once(call))}{_share(2048, FIRST_BLOCKS)}",
    )


def _refuse_short(build: Builder, length: int, limit: int, what: str) -> None:
    if length < 2:
        refuse("at most one query has nothing to be cut into blocks")
    if length <= limit:
        refuse_slower(build, f"{length} queries are too few for {what} to be faster")


def _sees_a_key(build: Builder, call: Call) -> Tensor | None:
    """As `sees_a_key`, in the call's layout."""
    seeing = sees_a_key(build, call)
    return seeing if seeing is None or call.options.heads is None else seeing[:, 0]


def _rows(length: int) -> int:
    """How many queries of a text of known length are a block."""
    return next((rows for limit, rows in ROWS if length <= limit), ROWS_BEYOND)


def _share(length: int, blocks: int) -> str:
    """The share of the scores that blocks compute, as text."""
    if blocks == 1:
        return "hidden keys get scores for which exp is fast"
    ends = accumulate(_sizes(length, blocks))
    computed = sum(count * end for count, end in zip(_sizes(length, blocks), ends, strict=True))
    return (
        f"{blocks} blocks of queries compute {computed / length**2:.0%} of the scores at {length}, the node all of them"
    )


def _refuse_unfit_for_blocks(call: Call) -> None:
    if call.dtype != float32:
        refuse(f"the bound on hidden weights is proven for float32, not {call.dtype}")
    refuse_scale(call.options.scale)
    if call.options.is_causal and not same(call.queries, call.new_keys):
        refuse("queries and keys may differ in number")
    for mask in (call.mask, call.key_mask):
        if mask is not None and mask.dtype.kind == "float":
            refuse("a floating mask may hold any number; only keys that are certainly hidden can be filled")
    if call.mask is not None and call.mask.ndim >= 3 and not same(call.mask.shape[-3], 1):
        refuse("a mask for each head costs as much as the scores")


def filled(build: Builder, call: Call, length: int, blocks: int) -> Tensor:
    """Attention of so many queries in blocks, with hidden keys filled. (N, H, L, d) or packed (N, L, H*d)."""
    query, key, value, options = call.query, call.key, call.value, call.options
    keys = call.new_keys
    fill = fill_value(build, call)
    rows = _sizes(length, blocks)
    hidden_keys = None if call.key_mask is None else unsqueeze(filled_mask(call.key_mask, fill), (1, 2))
    if call.mask is not None:
        call = replace(call, mask=_with_axes(call.mask))
    hidden = None if call.mask is None else filled_mask(call.mask, fill)
    triangle: Tensor | None = None
    if options.is_causal:
        # The triangle of hidden keys of the largest block; other blocks use its lower right part.
        corner = filled_mask(causal_mask(rows[-1], rows[-1]), fill)
        triangle = pad(corner, before=(0, keys - rows[-1]), after=(0, 0))
    parts: list[Tensor] = []
    start: Size = 0
    for count, part in zip(rows, query.split(rows, -2) if blocks > 1 else [query], strict=True):
        stop = start + count
        end = stop if options.is_causal else keys
        masks: list[Tensor] = []
        if triangle is not None:
            masks.append(triangle[triangle.shape[0] - count :, keys - end :])
        if hidden_keys is not None:
            masks.append(hidden_keys[..., :end])
        if hidden is not None:
            masks.append(hidden[..., (slice(start, stop) if not same(hidden.shape[-2], 1) else slice(None)), :end])
        joint = masks[0]
        for other in masks[1:]:
            joint = minimum(joint, other)
        all_keys = same(end, keys)
        parts.append(
            biased(
                build,
                Call(
                    part,
                    key if all_keys else _first(build, key, end),
                    value if all_keys else _first(build, value, end),
                    options=replace(options, is_causal=False),
                ),
                joint,
            )
        )
        start = stop
    output = parts[0] if blocks == 1 else concat(parts, -2)
    seeing = _sees_a_key(build, call)
    return output if seeing is None else output * seeing


def _first(build: Builder, x: Tensor, count: Size) -> Tensor:
    """The first positions of keys or values. Gather copies with all threads; Slice uses one and takes three times as
    long.
    """
    positions = build.name_of(arange_op(start=0, stop=x.shape[-2]))
    wanted = build.op("Slice", positions, np.array([0]), sizes_vector(build, [count]), np.array([0]))
    found = build.op("Gather", x, wanted, axis=x.ndim - 2)
    return computed(build, found, x.type.with_shape((*x.shape[:-2], count, x.shape[-1])))


def _with_axes(mask: Tensor) -> Tensor:
    while mask.ndim < 2:
        mask = unsqueeze(mask, 0)
    return mask


def _sizes(length: int, blocks: int) -> list[int]:
    """Equal blocks, but for the first one, which has the rest."""
    size = -(-length // blocks)
    rest = length - (blocks - 1) * size
    return [*([rest] if rest > 0 else []), *[size] * (blocks - 1)]
