"""Forms of attention for every target: the ONNX op and the com.microsoft op. The last resort is the body.

A form is taken only if its runtime computes what the contract says: docs/attention.md lists what onnxruntime's kernels
get wrong, and each guard below names the fault it checks for.
"""

from __future__ import annotations

from dataclasses import replace

from lucid.dims import same
from lucid.export.attention_node import Call, emit_node, refuse_common, refuse_scale
from lucid.export.builder import Builder, computed
from lucid.export.form import Taken, form, refuse, refuse_slower, refuse_wrong
from lucid.known_runtimes import (
    ATTENTION_CROSS,
    ATTENTION_OF_GROUPS,
    ATTENTION_OPEN_WEIGHTS,
    ATTENTION_SINGLE,
    ATTENTION_SOFTCAP,
    ATTENTION_UNSEEN,
    ATTENTION_WEIGHTS,
)
from lucid.ops import attention
from lucid.ops.attention import joined_heads, split_heads
from lucid.ops.tensor import Tensor
from lucid.values import Node


@form(
    attention,
    takes="mask key_mask past_key past_value heads kv_heads scale is_causal window window_after softcap need_weights",
    name="ai.onnx Attention",
    opset=23,
    kernel="Attention",
)
def standard(build: Builder, node: Node) -> tuple[str, ...]:
    return write_node(build, node)


@form(
    attention,
    takes="heads kv_heads scale is_causal",
    name="com.microsoft MultiHeadAttention",
    kind="contrib",
    domain="com.microsoft",
    kernel="MultiHeadAttention",
)
def contrib(build: Builder, node: Node) -> str:
    return _multi_head(build, Call.of(node))


TILED = 512  # from so many queries and keys it takes less time than the Attention node
TILED_IF_SPLIT = 1024  # and than three products, where heads that are split have to be joined and split again


@form(
    attention,
    takes="heads kv_heads scale",
    name="MultiHeadAttention, in tiles",
    kind="contrib",
    domain="com.microsoft",
    kernel="MultiHeadAttention",
    targets=("cpu",),
)
def tiled(build: Builder, node: Node) -> Taken:
    """The op that onnxruntime's CPU provider computes tile by tile where nothing is masked, without all scores in
    memory (Dao et al. 2022, "FlashAttention")."""
    call = Call.of(node)
    least = TILED_IF_SPLIT if call.options.heads is None else TILED
    for size, what in ((call.queries, "queries"), (call.keys, "keys")):
        if not isinstance(size, int) and build.target.expects(0, least - 1):
            refuse_slower(build, "texts may be short; for these it is slower")
        elif isinstance(size, int) and size < least:
            refuse_slower(build, f"{size} {what} are too few for tiles to be faster")
    why = "nothing is masked, so tiles of scores stay in the caches"
    return Taken(_multi_head(build, call), why) if call.options.heads is not None else Taken(_joined(build, call), why)


def _joined(build: Builder, call: Call) -> Tensor:
    """The packed layout of a call with split heads, and its output as heads."""
    heads = call.query.shape[1]
    if not isinstance(heads, int) or call.grouped:
        refuse("it takes one known number of heads")
    query, key, value = map(joined_heads, (call.query, call.key, call.value))
    packed = replace(call, query=query, key=key, value=value, options=replace(call.options, heads=heads))
    output = computed(build, _multi_head(build, packed), query.type.with_shape((*query.shape[:2], value.shape[2])))
    return split_heads("output", output, heads)


def _multi_head(build: Builder, call: Call) -> str:
    refuse_common(call)
    refuse_scale(call.options.scale)
    if call.options.heads is None:
        refuse("it takes the packed layout (N, L, H*d), not (N, H, L, d)")
    if call.grouped:
        refuse("it has no grouped heads")
    if call.options.is_causal and not same(call.queries, call.new_keys):
        refuse("its causal mask is wrong where queries and keys may differ in number")
    return build.op(
        "MultiHeadAttention",
        call.query,
        call.key,
        call.value,
        domain="com.microsoft",
        num_heads=call.options.heads,
        scale=call.options.scale,
        unidirectional=int(call.options.is_causal) or None,
    )


def write_node(build: Builder, node: Node) -> tuple[str, ...]:
    """The ONNX op, if the target's runtime computes it correctly."""
    call = Call.of(node)
    refuse_inexact(build, call)
    return emit_node(build, call)


def refuse_inexact(build: Builder, call: Call) -> None:
    """Refuse a call for which the target's runtime computes the ONNX op wrongly."""
    refuse_common(call)
    refuse_scale(call.options.scale)
    if call.options.need_weights:
        refuse_wrong(build, ATTENTION_WEIGHTS)
    if call.options.need_weights and not isinstance(call.keys, int):
        refuse_wrong(build, ATTENTION_OPEN_WEIGHTS)
    if call.masked:
        refuse_wrong(build, ATTENTION_UNSEEN)
    if call.options.softcap:
        refuse_wrong(build, ATTENTION_SOFTCAP)
    if call.options.is_causal and call.past_key is None and call.may_be_short:
        refuse_wrong(build, ATTENTION_SINGLE)
    if call.options.is_causal and not same(call.queries, call.new_keys):
        refuse_wrong(build, ATTENTION_CROSS)
    if call.grouped:
        refuse_wrong(build, ATTENTION_OF_GROUPS)
