"""A decode step of grouped heads over a growing cache for onnxruntime's CPU provider: the heads of a group as queries.

The `Attention` node reads a key head once for each query head that attends to it, and in a decode step that reading is
most of its time. Here the query heads that read one key head are queries of a single head (Shazeer 2019, "Fast
Transformer Decoding", section 3), so keys and values are read once. With more queries, the products cost more than
reading the keys, and the mask of all heads' queries takes as long as is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Size, same
from lucid.export.builder import Builder, Operand, Operands, computed
from lucid.export.forms.attention.call import Call
from lucid.export.forms.attention.nodes import emit_node, joint_mask
from lucid.export.forms.attention.open_lengths import branch
from lucid.export.forms.attention.plan import Plan
from lucid.ops import expand, reshape, unsqueeze
from lucid.ops.creation import size_op
from lucid.ops.tensor.tensor import Tensor


def groups_as_queries(build: Builder, call: Call, plan: Plan, outputs: Sequence[TensorType]) -> Operands:
    """A single query by `_step`; where there may be more, chosen when the model runs, these by the plain node."""
    if plan.limit is None:
        return _step(build, call)
    single = build.name_of(size_op(size=call.queries) == 1)
    return branch(
        build, single, lambda: _step(build, _of_one_query(build, call)), lambda: emit_node(build, call), outputs
    )


def _step(build: Builder, call: Call) -> tuple[Operand, ...]:
    """The results for a single query; the node sees a group's heads as its queries, and hides no key by causality."""
    assert call.past_key is not None
    n, options = call.batch, call.options
    kv_heads, width, value_width = call.past_key.shape[1], call.width, call.value_width
    heads = options.heads or call.query.shape[1]
    groups = heads // kv_heads
    mask = joint_mask(call, with_causal=False)
    if mask is not None:
        mask = _of_groups(mask, int(kv_heads), int(groups))
    grouped = Call(
        reshape(call.query, (n, kv_heads, groups, width)),
        reshape(call.key, (n, kv_heads, 1, width)),
        reshape(call.value, (n, kv_heads, 1, value_width)),
        mask,
        None,
        call.past_key,
        call.past_value,
        options=replace(options, heads=None, kv_heads=None, is_causal=False, window=None, window_after=None),
    )
    output, *present = emit_node(build, grouped)
    attended = computed(build, output, call.query.spec.with_shape((n, kv_heads, groups, value_width)))
    shape = (n, heads, 1, value_width) if options.heads is None else (n, 1, heads * value_width)
    return reshape(attended, shape), *present


def _of_groups(mask: Tensor, kv_heads: int, groups: int) -> Tensor:
    """The mask (1, S) or (N, 1 or H, 1, S) of a query for the heads of each group: (N, 1 or H_kv, groups, S)."""
    while mask.ndim < 4:
        mask = unsqueeze(mask, 0)
    n, heads, _, keys = mask.shape
    if same(heads, 1):
        return expand(mask, (n, 1, groups, keys))
    return reshape(mask, (n, kv_heads, groups, keys))


def _of_one_query(build: Builder, call: Call) -> Call:
    """A call whose symbolic number of new positions is known to be 1, as in a branch that is taken only then."""
    keys = call.past + 1

    def known(x: Tensor, axis: int, size: Size) -> Tensor:
        if x.ndim < -axis or same(x.shape[axis], 1):
            return x
        shape = (*x.shape[: x.ndim + axis], size, *x.shape[x.ndim + axis + 1 :])
        return computed(build, build.name_of(x), x.spec.with_shape(shape))

    return replace(
        call,
        query=known(call.query, -2, 1),
        key=known(call.key, -2, 1),
        value=known(call.value, -2, 1),
        mask=None if call.mask is None else known(known(call.mask, -2, 1), -1, keys),
        key_mask=None if call.key_mask is None else known(call.key_mask, -1, keys),
    )
