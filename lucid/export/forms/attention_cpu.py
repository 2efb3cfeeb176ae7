"""Forms of attention tuned for onnxruntime's CPU provider (docs/benchmarks.md describes how they were measured).

Two costs dominate there. A causal `Attention` node computes all L x L scores and discards half of them; and it masks
with the lowest number, for which the exponential is slow: scores more than 87 below the largest give denormal numbers
or zeros, which take ten times as long as ordinary ones.

So queries are computed in blocks, each with the keys it can see; and hidden keys get a score that is low enough to
vanish in the sums but high enough for the exponential's fast path. Both are written in Lucid's own ops, as another body
of attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import numpy as np

from lucid.dims import Size, same
from lucid.export.attention_node import Call, emit_node, refuse_scale
from lucid.export.builder import Builder, Operand, computed
from lucid.export.form import Taken, form, refuse, refuse_wrong
from lucid.export.forms.attention_products import capped_in_products, capped_products
from lucid.export.run_time_sizes import sizes_vector
from lucid.known_runtimes import FILLED_MASKS
from lucid.ops import attention, concat, cumsum, exp, logical_not, minimum, reshape, sqrt, unsqueeze, where
from lucid.ops.attention_call import AttentionOptions
from lucid.ops.attention_masks import causal_mask, combined_mask, position_mask
from lucid.ops.creation import arange_op, size_op
from lucid.ops.shaping import pad
from lucid.ops.tensor import Tensor
from lucid.types import TensorType, float32, int64
from lucid.values import Node

# The score of hidden keys is lowered by FILL, or by the lowest number, which is exact and slow. No score, capped or
# not, exceeds b = |q| |k| scale in size (Cauchy-Schwarz), so with FILL a hidden key weighs at most exp(2 b + FILL) of
# the largest visible one, and all of them together change a result by at most that times the sum of all |v|. FILL is
# used if this is below LEAK times the smallest of all rows' largest values: for values of similar size and heads 64
# wide, up to about b = 18.
FILL = -70.0
LEAK = 2.0**-26
LOST = 2.0**-50  # more than underflow can take from the norm of a row

SHORT = 32  # up to so many queries the plain node is as fast
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
        return Taken(filled(build, call, 1), _share(1, 1))
    length = call.queries
    if isinstance(length, int):
        if length <= SHORT:
            refuse(f"{length} queries are too few for blocks to be faster")
        blocks = -(-length // _rows(length))
        return Taken(filled(build, call, blocks), _share(length, blocks))

    # One model for all lengths: the number of blocks is chosen when it runs.
    by_length: list[tuple[int, Callable[[], Operand]]] = [
        (SHORT, lambda: emit_node(build, call)[0]),
        (256, lambda: filled(build, call, 1)),
        (1024, lambda: filled(build, call, 4)),
    ]
    chosen = first_that_fits(build, length, by_length, lambda: filled(build, call, 12), node.types[0])
    return Taken(chosen, f"up to {SHORT} queries it is the plain node; {_share(2048, 12)}")


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


def filled(build: Builder, call: Call, blocks: int) -> Tensor:
    """Attention in blocks of queries, with hidden keys filled. (N, H, L, d) or packed (N, L, H*d)."""
    query, key, value, options = call.query, call.key, call.value, call.options
    length, keys = call.queries, call.new_keys
    fill = fill_value(build, call)
    rows = _row_sizes(length, blocks)
    hidden_keys = None if call.key_mask is None else unsqueeze(_filled(call.key_mask, fill), (1, 2))
    if call.mask is not None:
        call = replace(call, mask=_with_axes(call.mask))
    hidden = None if call.mask is None else _filled(call.mask, fill)
    triangle: Tensor | None = None
    if options.is_causal:
        # The triangle of hidden keys of the largest block; other blocks use its lower right part.
        corner = _filled(causal_mask(rows[-1], rows[-1]), fill)
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
            _attended(
                build,
                part,
                key if all_keys else _first(build, key, end),
                value if all_keys else _first(build, value, end),
                joint,
                options,
            )
        )
        start = stop
    output = parts[0] if blocks == 1 else concat(parts, -2)
    seeing = _sees_a_key(build, call)
    return output if seeing is None else output * (seeing if options.heads is None else seeing[:, 0])


def _attended(
    build: Builder, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, options: AttentionOptions
) -> Tensor:
    """Attention of a block, by its best form; `bias` is added to the scores."""
    options = replace(options, is_causal=False)
    call = Call(query, key, value, options=options)
    if options.softcap and capped_in_products(call):
        return capped_products(build, call, bias)
    output: Tensor = attention(
        query,
        key,
        value,
        bias,
        heads=options.heads,
        kv_heads=options.key_heads,
        scale=options.scale,
        softcap=options.softcap,
    )
    return output


def _first(build: Builder, x: Tensor, count: Size) -> Tensor:
    """The first positions of keys or values. Gather copies with all threads; Slice uses one and takes three times as
    long.
    """
    positions = build.name_of(arange_op(start=0, stop=x.shape[-2]))
    wanted = build.op("Slice", positions, np.array([0]), sizes_vector(build, [count]), np.array([0]))
    found = build.op("Gather", x, wanted, axis=x.ndim - 2)
    return computed(build, found, x.type.with_shape((*x.shape[:-2], count, x.shape[-1])))


def fill_value(build: Builder, call: Call) -> Tensor:
    """The number added to the scores of hidden keys, chosen by the bound on how much they change a result.

    If something overflows or a value is NaN, the comparison is false and the lowest number is used, which is exact.
    """
    query, key, value, options = call.query, call.key, call.value, call.options
    if options.head_counts is not None:
        query, key, value = (
            reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))
            for x, heads in zip((query, key, value), options.head_counts, strict=True)
        )
    query_norm, key_norm = _norm(build, query), _norm(build, key)
    if options.scale is not None:  # the default scale is below 1, so there an underflow does not matter
        query_norm, key_norm = query_norm + LOST, key_norm + LOST
    twice = min(max(2 * options.scale_of(call.width), float(np.finfo(np.float32).tiny)), float32.largest)
    # The reductions that are fastest on a CPU: the sum of all |v|, and each row's largest value (not its |v|).
    total, smallest = _reduced(build, value, "ReduceL1"), _reduced(build, value, "ReduceMax", "ReduceMin")
    leaked, allowed = exp(query_norm * key_norm * twice) * total, smallest * (LEAK * math.exp(-FILL))
    return where(leaked < allowed, FILL, float32.lowest)


def _norm(build: Builder, x: Tensor) -> Tensor:
    """The largest norm of the rows: by a sum of squares, because ReduceL2 takes twice the time of both ops."""
    squares = computed(build, build.op("Mul", x, x), x.type)
    return sqrt(_reduced(build, squares, "ReduceSum", "ReduceMax"))


def _reduced(build: Builder, x: Tensor, *ops: str) -> Tensor:
    """A tensor reduced to one number, by one op or by two, the first of which reduces rows. Nothing is copied."""
    name = build.name_of(x)
    for op in ops[:-1]:
        name = build.op(op, name, np.array([-1]), keepdims=0)
    return computed(build, build.op(ops[-1], name, keepdims=0), TensorType(float32, ()))


def _filled(visible: Tensor, fill: Tensor) -> Tensor:
    return logical_not(visible).astype(float32) * fill


def _with_axes(mask: Tensor) -> Tensor:
    while mask.ndim < 2:
        mask = unsqueeze(mask, 0)
    return mask


def _row_sizes(length: Size, blocks: int) -> list[Size]:
    """Equal blocks, the last one the largest."""
    if isinstance(length, int):
        return list(_sizes(length, blocks))
    each = length // blocks
    return [each] * (blocks - 1) + [length - each * (blocks - 1)]


def _sizes(length: int, blocks: int) -> list[int]:
    size = -(-length // blocks)
    rest = length - (blocks - 1) * size
    return [*([rest] if rest > 0 else []), *[size] * (blocks - 1)]


def _sees_a_key(build: Builder, call: Call) -> Tensor | None:
    """1 for queries that see a key and 0 for others, (N, 1, L or 1, 1); None if all do.

    It is multiplied with the output, so NaN and infinity stay.
    """
    if call.mask is None and call.key_mask is None:
        return None
    if call.mask is None and call.key_mask is not None:
        kept = call.key_mask
        seen = cumsum(kept.astype(int64), axis=1) > 0 if call.options.is_causal else kept.any(1, keepdims=True)
        return unsqueeze(seen, (1, 3)).astype(float32)
    joint = combined_mask(call, position_mask(call, is_causal=call.options.is_causal))
    assert joint is not None
    while joint.ndim < 4:
        joint = unsqueeze(joint, 0)
    # A minimum of float32 takes a fifth of the time of `any`, and the numbers are there already.
    hidden = logical_not(joint).astype(float32)
    least = build.op("ReduceMin", hidden, np.array([-1]), keepdims=1)
    return 1 - computed(build, least, hidden.type.with_shape((*hidden.shape[:-1], 1)))


def first_that_fits(
    build: Builder,
    length: Size,
    by_length: list[tuple[int, Callable[[], Operand]]],
    otherwise: Callable[[], Operand],
    output: TensorType,
) -> Operand:
    """Nested If nodes: the first form whose limit the length does not exceed, chosen when the model runs."""
    if not by_length:
        return otherwise()
    (limit, first), *rest = by_length
    condition = build.name_of(size_op(size=length) <= limit)
    then = build.block(lambda: [(build.name_of(first()), output)])
    orelse = build.block(lambda: [(build.name_of(first_that_fits(build, length, rest, otherwise, output)), output)])
    return build.op("If", condition, then_branch=then, else_branch=orelse)
