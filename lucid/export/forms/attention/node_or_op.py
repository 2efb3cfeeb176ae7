"""Forms of attention for every target: the ONNX op and the com.microsoft op. The last resort is the body.

A form is taken only if its runtime computes what the contract says: docs/attention.md lists what onnxruntime's kernels
get wrong, and each guard below names the fault it checks for.
"""

from __future__ import annotations

from lucid.core.graph.values import Node
from lucid.core.sizes.dims import same
from lucid.core.targets.runtimes import (
    ATTENTION_CROSS,
    ATTENTION_OF_GROUPS,
    ATTENTION_OPEN_WEIGHTS,
    ATTENTION_SINGLE,
    ATTENTION_SOFTCAP,
    ATTENTION_UNSEEN,
    ATTENTION_WEIGHTS,
)
from lucid.export.builder import Builder
from lucid.export.form import form, refuse, refuse_wrong
from lucid.export.forms.attention.call import Call, emit_node, refuse_common, refuse_scale
from lucid.ops import attention


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
    call = Call.of(node)
    if call.options.heads is None:
        refuse("it takes the packed layout (N, L, H*d), not (N, H, L, d)")
    refuse_unfit_for_multi_head(call)
    return multi_head(build, call)


def refuse_unfit_for_multi_head(call: Call) -> None:
    """Refuse what com.microsoft `MultiHeadAttention` does not compute, but for the layout."""
    refuse_common(call)
    refuse_scale(call.options.scale)
    if call.grouped:
        refuse("it has no grouped heads")
    if call.options.is_causal and not same(call.queries, call.new_keys):
        refuse("its causal mask is wrong where queries and keys may differ in number")


def multi_head(build: Builder, call: Call) -> str:
    """The com.microsoft op, for the packed layout. The caller checks whether it is exact."""
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
