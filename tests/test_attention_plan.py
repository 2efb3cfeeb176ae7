"""Which form computes which attention on target "cpu", and in which parts: a specification of `plan`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import lucid
from lucid.core.graph.values import Input
from lucid.export import Target
from lucid.export.form import Refused
from lucid.export.forms.attention import thresholds as t
from lucid.export.forms.attention.call import Call
from lucid.export.forms.attention.plan import (
    BLOCKS,
    CANDIDATES,
    CAPPED,
    GROUPS,
    HANDED_ON,
    IN_PRODUCTS,
    NODE,
    SHARED,
    SHARED_IF_LONG,
    THREE_PRODUCTS,
    TILES,
    TILES_IF_LONG,
    WINDOWS,
    Plan,
    plan,
)
from lucid.ops.attention.call import AttentionOptions
from lucid.ops.tensor.tensor import Tensor

D = 8


USUAL = Target("cpu")


def call(
    length: Any = "L",
    heads: Any = 12,
    *,
    kv_heads: int | None = None,
    keys: Any = None,
    batch: Any = 1,
    packed: bool = False,
    mask: tuple[Any, ...] | None = None,
    key_mask: bool = False,
    past: bool = False,
    dtype: str = "float32",
    **options: Any,
) -> Call:
    """A call of so many heads over as many keys as queries."""

    def operand(*shape: Any, dtype: str = dtype) -> Tensor:
        return Tensor.from_value(Input("x", lucid.spec(*shape, dtype=dtype)))

    keys, few = length if keys is None else keys, kv_heads or heads
    cached = [operand(batch, few, "P", D)] * 2 if past else [None, None]
    if packed:
        options |= {"heads": heads, "kv_heads": few}
    query = operand(batch, length, heads * D) if packed else operand(batch, heads, length, D)
    key = operand(batch, keys, few * D) if packed else operand(batch, few, keys, D)
    return Call(
        query,
        key,
        key,
        None if mask is None else operand(*mask, dtype="bool"),
        operand(batch, keys, dtype="bool") if key_mask else None,
        *cached,
        options=AttentionOptions(**options),
    )


def chosen(*of: Any, target: Target = USUAL, **options: Any) -> Plan:
    """The plan of a call."""
    return plan(call(*of, **options), target)


def form(*of: Any, **options: Any) -> str:
    """The name of its form; where there is none, the node computes it."""
    try:
        return chosen(*of, **options).form
    except Refused:
        return NODE


def test_a_causal_text_of_a_known_length_is_cut_into_blocks_of_queries() -> None:
    assert form(t.SHORT, is_causal=True) == NODE
    for length in (t.SHORT + 1, 512, t.HANDED_ON_ABOVE, 5000):
        plan = chosen(length, is_causal=True)
        assert plan.form == BLOCKS and sum(plan.rows) == length
        assert plan.limit is None and plan.fill == (length > t.UNBOUNDED)
    assert chosen(512, is_causal=True).rows == (64,) * 8
    assert chosen(130, is_causal=True).rows == (42, 44, 44)


def test_blocks_of_long_texts_hand_their_keys_on() -> None:
    for length, rows in ((t.HANDED_ON_ABOVE + 1, 128), (2048, 128), (4096, 256)):
        plan = chosen(length, is_causal=True)
        assert plan.form == HANDED_ON and max(plan.rows) <= rows
    assert form(4096, is_causal=True, kv_heads=4) == form(4097, is_causal=True) == BLOCKS
    assert form(2048, is_causal=True, softcap=2.0) == BLOCKS


def test_masks_alone_are_filled_in_one_block_of_many_queries_and_keys() -> None:
    for masked in ({"key_mask": True}, {"mask": (300, 300)}, {"mask": (1, 1, 1, 300)}):
        assert chosen(300, **masked).rows == (300,)
        assert chosen(300, **masked).fill
    assert form(t.SHORT_IF_NOT_CAUSAL, key_mask=True) == form(300, keys=77, key_mask=True) == NODE
    assert form(300, mask=(1, 12, 300, 300)) == NODE, "a mask for each head costs as much as the scores"
    assert form("L", key_mask=True) == NODE, "texts of any length have little padding"


def test_a_causal_text_of_any_length_is_one_loop_over_blocks_where_it_is_long() -> None:
    plan = chosen("L", is_causal=True)
    assert (plan.form, plan.limit, plan.short) == (BLOCKS, t.WHOLE, NODE)
    assert plan.rows == () and not plan.fill and plan.each == NODE
    capped = chosen("L", is_causal=True, softcap=2.0)
    assert (capped.limit, capped.short, capped.each) == (t.WHOLE_IF_CAPPED, CAPPED, CAPPED)
    assert chosen("L", 1, is_causal=True).each == SHARED
    assert form("L", keys="S", is_causal=True) == NODE


def test_nothing_masked_is_computed_in_tiles_where_a_text_is_long() -> None:
    assert form(t.TILED, packed=True) == form(t.TILED_IF_SPLIT) == TILES
    assert form(t.TILED - 1, packed=True) == NODE
    assert form(t.TILED_IF_SPLIT - 1) == THREE_PRODUCTS
    for packed, least, short in ((True, t.TILED, NODE), (False, t.TILED_IF_SPLIT, THREE_PRODUCTS)):
        plan = chosen("L", packed=packed)
        assert (plan.form, plan.limit, plan.short) == (TILES_IF_LONG, least - 1, short)


def test_the_weights_are_those_of_three_products() -> None:
    assert form("L", need_weights=True) == THREE_PRODUCTS
    assert form("L", packed=True, need_weights=True) == form("L", kv_heads=4, need_weights=True) == NODE


def test_few_heads_are_products_which_all_threads_share() -> None:
    assert form(t.SHARED, t.FEW_HEADS, key_mask=True) == form(t.SHARED, 2, kv_heads=1) == SHARED
    assert form(t.SHARED, t.FEW_HEADS + 1, key_mask=True) == form(t.SHARED - 1, 3, key_mask=True) == NODE
    assert form(t.SHORT_IF_MASKED, 3, key_mask=True, is_causal=True) == SHARED
    assert form(t.SHARED, 3, is_causal=True) == form(300, 1, key_mask=True) == IN_PRODUCTS
    plan = chosen("L", 3, key_mask=True)
    assert (plan.form, plan.limit, plan.short) == (SHARED_IF_LONG, t.SHARED - 1, NODE)
    assert form(t.SHARED, 1, key_mask=True, batch="N") == SHARED, "N may be 1"
    assert form(t.SHARED, 1, key_mask=True, batch="8*N") == NODE


def test_capped_scores_are_products_for_their_tanh() -> None:
    assert form(7, softcap=2.0) == form("L", softcap=2.0, window=3) == CAPPED
    assert chosen(t.LONG_IF_CAPPED + 2, softcap=2.0).rows == (*(t.ROWS_IF_CAPPED,) * 8, 2)
    assert chosen(t.LONG_IF_CAPPED - 1, softcap=2.0).rows == ()
    assert form(1, softcap=2.0, past=True) == NODE


def test_a_window_is_cut_into_blocks_that_read_the_keys_near_them() -> None:
    narrow = chosen(2048, window=41, window_after=9)
    assert (narrow.form, narrow.rows, narrow.limit) == (WINDOWS, (t.NARROW.rows,), None)
    assert chosen(2048, window=t.REACH + 1, is_causal=True).rows == (t.WIDE.rows,)
    plan = chosen("L", window=41, is_causal=True)
    assert (plan.limit, plan.short) == (int(t.NARROW.short * (t.NARROW.rows + 40)), NODE)
    assert chosen("L", window=41, is_causal=True, softcap=2.0).short == CAPPED
    assert chosen(140, window=140, is_causal=True).rows == ()  # it hides nothing
    assert form(200, window=140, is_causal=True) == form("L", window=9) == NODE


def test_a_step_over_a_cache_reads_each_key_head_once() -> None:
    assert chosen(1, kv_heads=4, past=True, is_causal=True).limit is None
    plan = chosen("L", kv_heads=4, past=True, is_causal=True)
    assert (plan.form, plan.limit) == (GROUPS, 1)
    assert form(5, kv_heads=4, past=True) == form(1, past=True) == NODE


def test_expected_lengths_leave_out_what_only_others_need() -> None:
    short, long = (Target("cpu", lengths=lengths) for lengths in ((1, t.WHOLE), (t.WHOLE + 1, 9000)))
    assert form("L", is_causal=True, target=short) == NODE
    plan = chosen("L", is_causal=True, target=long)
    assert plan.short == "" and "up to" not in plan.note


def test_who_insists_gets_what_is_slower() -> None:
    asked = Target("cpu", forms={"attention": "blocks"})
    assert form(7, is_causal=True, target=asked) == IN_PRODUCTS
    assert form(1, is_causal=True, target=asked) == SHARED, "one query has nothing to be cut"


def test_what_a_form_does_not_take_is_left_to_the_next() -> None:
    assert form(300, is_causal=True, dtype="float64") == form(300, is_causal=True, scale=-1.0) == NODE
    assert form(300, is_causal=True, dropout_p=0.5, need_weights=True) == NODE
    unknown = call(300, is_causal=True, need_weights=True)
    assert not any(each.covers(unknown) for each in CANDIDATES if each.name != CAPPED)


@pytest.mark.parametrize("is_causal", [True, False])
def test_more_queries_never_take_a_form_for_fewer(is_causal: bool) -> None:
    """In the order of lengths the forms change at most three times, and never back."""
    forms = [form(length, is_causal=is_causal) for length in range(1, 4097, 7)]
    assert sum(a != b for a, b in pairwise(forms)) == len(set(forms)) - 1 <= 3


def test_each_plan_says_why() -> None:
    assert replace(chosen("L", is_causal=True), why="fast").note == f"up to {t.WHOLE} queries it is {NODE}; fast"
