"""Attention in tiles, for onnxruntime's CPU provider: com.microsoft `MultiHeadAttention` where nothing is masked.

It computes the scores tile by tile, without all of them in memory (Dao et al. 2022, "FlashAttention"). It reads the
packed layout, so heads that are split have to be joined for it and split again.
"""

from __future__ import annotations

from dataclasses import replace

from lucid.core.graph.values import Node
from lucid.core.sizes.dims import Dim, sym_min
from lucid.export.builder import Builder, Operand, computed
from lucid.export.form import Taken, form, refuse
from lucid.export.forms.attention.by_length import by_length, refuse_short, refuse_unexpected, said_up_to
from lucid.export.forms.attention.call import Call, emit_node
from lucid.export.forms.attention.node_or_op import multi_head, refuse_inexact, refuse_unfit_for_multi_head
from lucid.export.forms.attention.products import are_split, in_three_products
from lucid.ops import attention
from lucid.ops.attention.op import joined_heads, split_heads

TILED = 512  # from so many queries and keys it takes less time than the Attention node
TILED_IF_SPLIT = 1024  # and than three products, where heads are split or one
WHY = "nothing is masked, so tiles of scores stay in the caches"


@form(
    attention,
    takes="heads kv_heads scale",
    name="MultiHeadAttention, in tiles",
    kind="contrib",
    domain="com.microsoft",
    kernel="MultiHeadAttention",
    strategy="tiles",
)
def tiled(build: Builder, node: Node) -> Taken:
    """The op alone, where texts are long."""
    call = Call.of(node)
    least = _least(call)
    for size, what in ((call.queries, "queries"), (call.keys, "keys")):
        refuse_short(build, size, least, f"{size} {what} are too few for tiles to be faster")
    _refuse_unfit(call)
    return Taken(_in_tiles(build, call), WHY)


@form(
    attention,
    takes="heads kv_heads scale",
    name="MultiHeadAttention, in tiles if long",
    opset=23,
    kind="blocks",
    domain="com.microsoft",
    kernel="MultiHeadAttention Attention",
    strategy="tiles",
)
def tiled_if_long(build: Builder, node: Node) -> Taken:
    """The op where a text turns out to be long, chosen when the model runs."""
    call = Call.of(node)
    size, limit = sym_min(call.queries, call.keys), _least(call) - 1
    if not isinstance(size, Dim):
        refuse("the length is known")
    refuse_unexpected(build, limit)
    refuse_inexact(build, call)
    _refuse_unfit(call)
    split = are_split(call)
    short = "three products" if split else "the plain node"
    chosen = by_length(
        build,
        size,
        limit,
        lambda: in_three_products(build, call)[0] if split else emit_node(build, call)[0],
        lambda: _in_tiles(build, call),
        node.types[0],
    )
    return Taken(chosen, f"{said_up_to(build, limit, short)}{WHY}")


def _least(call: Call) -> int:
    return TILED_IF_SPLIT if are_split(call) else TILED


def _refuse_unfit(call: Call) -> None:
    if call.options.heads is None and not isinstance(call.query.shape[1], int):
        refuse("it takes one known number of heads")
    refuse_unfit_for_multi_head(call)


def _in_tiles(build: Builder, call: Call) -> Operand:
    """The output in the layout of the call."""
    if call.options.heads is not None:
        return multi_head(build, call)
    heads = call.query.shape[1]
    assert isinstance(heads, int)
    query, key, value = map(joined_heads, (call.query, call.key, call.value))
    packed = replace(call, query=query, key=key, value=value, options=replace(call.options, heads=heads))
    output = computed(build, multi_head(build, packed), query.type.with_shape((*query.shape[:2], value.shape[2])))
    return build.name_of(split_heads("output", output, heads))
