"""Causal attention in as many blocks of queries as the length asks for: one body, which a Scan repeats.

Written out, one model for all lengths would hold several numbers of blocks, all of them in each layer, and onnxruntime
reads and optimises them whenever it loads the model. For the same reason the lowest number hides keys at every length:
in blocks a bound on hidden keys costs what it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lucid.core.graph.types import Array, TensorType, float32, int64
from lucid.core.graph.values import Input
from lucid.core.sizes.dims import Dim, Size, same
from lucid.export.builder import Builder, Operand, computed
from lucid.export.forms.attention import thresholds as t
from lucid.export.forms.attention.call import Call
from lucid.export.forms.attention.fill import sees_a_key
from lucid.export.forms.attention.nodes import node_output
from lucid.export.forms.attention.open_lengths import by_length
from lucid.export.forms.attention.plan import NODE, Plan
from lucid.export.forms.attention.products import as_given, at_once, biased, in_products, short_call, split
from lucid.export.run_time_sizes import size_vector, sizes_vector
from lucid.ops import logical_and, reshape, take, unsqueeze, where
from lucid.ops.attention.masks import seen_by_position
from lucid.ops.tensor.tensor import Tensor


@dataclass(frozen=True)
class Blocks:
    """The blocks of a length, from the last one to the first. All have as many rows; the first one may begin before
    the first query.
    """

    count: Size
    rows: Size
    places: Tensor  # (L,), all positions
    column: Tensor  # (L, 1), the same
    own: Tensor  # (count, rows), of the queries of a block; 0 for those before the first
    own_column: Tensor  # (count, rows, 1), the same
    ends: Tensor  # (count, 1), how many keys a block sees
    begin: str  # where the first query is, counted from the last: there may be rows before it

    def padded(self, output: TensorType) -> tuple[Size, ...]:
        """The shape of an output with the rows before the first query."""
        return (*output.shape[:-2], self.count * self.rows, output.shape[-1])


def blocks_of(build: Builder, output: TensorType, length: Dim) -> Blocks:
    """The blocks of a length. Nodes that layers share are emitted here, outside of their branches.

    So it is computed for a length of 0 too, though nothing reads it, and onnxruntime refuses to divide by 0.
    """
    queries = size_vector(build, length)
    whole = build.op("Max", queries, _ONE)
    is_long = build.op("Greater", whole, np.array([t.LONG]))
    rows_at_most = build.op("Where", is_long, np.array([t.FEW, t.FEW_IF_LONG]), np.array([t.FEW, t.MANY]))
    counts = build.op("Div", build.op("Sub", build.op("Add", whole, rows_at_most), _ONE), rows_at_most)
    number = build.op("ReduceMax", build.op("Min", counts, np.array([t.FIRST_BLOCKS, _LARGEST])), keepdims=1)
    each = build.op("Div", build.op("Sub", build.op("Add", whole, number), _ONE), number)
    last, step = build.op("Squeeze", whole), build.op("Squeeze", each)
    ends = build.op("Unsqueeze", build.op("Range", last, _ZERO, build.op("Neg", step)), _ONE)
    own = build.op("Max", build.op("Sub", ends, build.op("Range", step, _ZERO, np.array(-1))), _ZERO)
    count = _size(build, f"blocks in {whole}", build.op("Shape", ends, end=1))
    rows = _size(build, f"rows of {own}", each)
    all_places = build.op("Range", _ZERO, build.op("Squeeze", queries), np.array(1))
    places = computed(build, all_places, TensorType(int64, (length,)))
    own_places = computed(build, own, TensorType(int64, (count, rows)))
    blocks = Blocks(
        count,
        rows,
        places,
        unsqueeze(places, 1),
        own_places,
        unsqueeze(own_places, 2),
        computed(build, ends, TensorType(int64, (count, 1))),
        build.op("Neg", queries),
    )
    build.names_of([blocks.column, blocks.own_column])
    sizes_vector(build, blocks.padded(output))
    return blocks


def _size(build: Builder, name: str, vector: str) -> Dim:
    """A size that is computed in the model. No size that a user names has spaces in its name."""
    build.sizes[name] = vector
    return Dim({(name,): 1})


def of_any_length(build: Builder, call: Call, plan: Plan, output: TensorType) -> Operand:
    """All scores at once up to the limit of a plan, blocks beyond, chosen when the model runs. Nodes that layers share
    are emitted outside of the branches.
    """
    length, multiplied = call.queries, plan.each != NODE
    assert isinstance(length, Dim)
    whole = split(call) if multiplied else call
    kind = output if whole is call else whole.query.spec.with_shape((*whole.query.shape[:-1], whole.value.shape[-1]))
    blocks, masks = blocks_of(build, kind, length), _masks(call)
    short = short_call(build, call, plan)
    seeing = sees_a_key(build, call) if multiplied else None
    build.names_of([*masks, *([] if seeing is None else [seeing])])

    def scanned() -> Tensor:
        build.names_of([whole.query, whole.key, whole.value])  # heads are split once for all blocks
        attended = _scanned(build, whole, masks, blocks, multiplied)
        if not multiplied:
            return attended
        return as_given(call, attended if seeing is None else attended * seeing)

    return by_length(build, length, plan, lambda: at_once(build, short, plan.short), scanned, output)


def _masks(call: Call) -> list[Tensor]:
    """The masks besides the causal one, each of at most 4 axes."""
    masks = [] if call.key_mask is None else [unsqueeze(call.key_mask, (1, 2))]
    return masks if call.mask is None else [*masks, call.mask]


def _scanned(build: Builder, call: Call, masks: Sequence[Tensor], blocks: Blocks, multiplied: bool) -> Tensor:
    """Causal attention, block by block. (N, H, L, d) or packed (N, L, H*d)."""
    own = Input("own", TensorType(int64, (blocks.rows,)))
    column = Input("column", TensorType(int64, (blocks.rows, 1)))
    end = Input("end", TensorType(int64, (1,)))

    def step() -> list[tuple[str, TensorType]]:
        keys = _size(build, f"keys up to {build.name_of(end)}", build.name_of(end))
        near = computed(build, build.op("Slice", blocks.places, _FIRST, end, _FIRST), TensorType(int64, (keys,)))
        queries = Tensor.from_value(own)
        visible = seen_by_position(Tensor.from_value(column), near, 0)
        for mask in masks:
            visible = logical_and(visible, _part(mask, queries, near))
        query, key, value = take(call.query, queries, -2), take(call.key, near, -2), take(call.value, near, -2)
        part = Call(query, key, value, visible, options=replace(call.options, is_causal=False))
        attended = _in_products(build, part) if multiplied else node_output(build, part)
        return [(build.name_of(attended), attended.spec)]

    body = build.block(step, [own, column, end])
    kind = body.outputs[0][1]
    steps = build.op(
        "Scan",
        blocks.own,
        blocks.own_column,
        blocks.ends,
        body=body,
        num_scan_inputs=3,
        scan_output_directions=[1],
        scan_output_axes=[len(kind.shape) - 2],
    )
    stacked = kind.with_shape((*kind.shape[:-2], blocks.count, *kind.shape[-2:]))
    output = reshape(computed(build, steps, stacked), blocks.padded(kind))
    cut = build.op("Slice", output, blocks.begin, np.array([_LARGEST]), np.array([output.ndim - 2]))
    return computed(build, cut, kind.with_shape((*kind.shape[:-2], call.queries, kind.shape[-1])))


def _in_products(build: Builder, call: Call) -> Tensor:
    """A block as products."""
    assert call.mask is not None
    bias = where(call.mask, 0.0, float32.lowest)
    return in_products(build, call, bias) if call.fits_products else biased(build, call, bias)


def _part(mask: Tensor, own: Tensor, near: Tensor) -> Tensor:
    """The part of a mask for these queries and keys."""
    for axis, places in ((-1, near), (-2, own)):
        if mask.ndim >= -axis and not same(mask.shape[axis], 1):
            mask = take(mask, places, axis)
    return mask


_LARGEST = np.iinfo(np.int64).max
_FIRST, _ONE = np.array([0]), np.array([1])
_ZERO: Array = np.array(0)
