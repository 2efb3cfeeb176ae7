"""Forms of attention: the ONNX op, the com.microsoft op, and (the last resort, registered nowhere) the body.

A form serves only where it gives what the contract says, on the runtime it is meant for: docs/attention.md lists what
onnxruntime's kernels get wrong, and each guard below names the fact it stands on.
"""

from __future__ import annotations

from lucid.dims import same
from lucid.export import facts
from lucid.export.attention_call import Call, emit_node, refuse_common, refuse_scale
from lucid.export.builder import Builder
from lucid.export.form import form, needs, refuse
from lucid.graph import Node
from lucid.ops import attention
from lucid.types import float16, float32, float64


@form(
    attention,
    takes="mask key_mask past_key past_value heads kv_heads scale is_causal window softcap need_weights",
    name="ai.onnx Attention",
    opset=23,
    targets=("any", "cpu", "portable"),
)
def standard(build: Builder, node: Node) -> tuple[str, ...]:
    call = Call.of(node)
    if build.target.provider == "portable":
        refuse('target "portable" is for runtimes without this op')
    refuse_common(call)
    if call.dtype == float64:
        refuse("onnxruntime has no float64 kernel and falls back to a form that gives NaN on fully masked rows")
    if call.dtype != float32:
        refuse(f"onnxruntime's CPU kernel for {call.dtype} is missing or rounds scores to it")
    refuse_scale(call)
    if call.need_weights and not isinstance(call.past + call.new_keys, int):
        refuse(
            "the number of keys is open: onnxruntime takes the returned weights for empty then, "
            "and may put them where something smaller was"
        )
    if call.masked:
        needs(build, facts.UNSEEN_KEYS)
    if call.is_causal and call.past_key is None and call.may_be_short:
        needs(build, facts.SINGLE_CAUSAL_QUERY)
    if call.grouped:
        needs(build, facts.GROUPED_HEADS)
    return emit_node(build, call)


@form(attention, takes="heads kv_heads scale is_causal", name="com.microsoft MultiHeadAttention", kind="contrib")
def contrib(build: Builder, node: Node) -> str:
    call = Call.of(node)
    if build.target.provider == "portable" or (build.target.provider == "any" and build.target.attention != "contrib"):
        refuse(f'target "{build.target.provider}" takes standard ops only')
    refuse_common(call)
    if call.dtype not in (float32, float16):
        refuse(f"there is no {call.dtype} kernel")
    refuse_scale(call)
    if call.heads is None:
        refuse("it takes the packed layout (N, L, H*d), not (N, H, L, d)")
    if call.grouped:
        refuse("it has no grouped heads")
    if call.is_causal and not same(call.queries, call.new_keys):
        refuse("its causal mask is wrong where queries and keys may differ in number")
    return build.op(
        "MultiHeadAttention",
        call.query,
        call.key,
        call.value,
        domain="com.microsoft",
        num_heads=call.heads,
        scale=call.scale,
        unidirectional=int(call.is_causal) or None,
    )
