"""Forms of attention for every target: the ONNX op and the com.microsoft op. The last resort is the body.

A form is taken only if its runtime computes what the contract says: the page "The attention contract" lists
what onnxruntime's kernels get wrong.
"""

from __future__ import annotations

from lucid.core.graph.types import float32
from lucid.core.graph.values import Node
from lucid.core.targets.runtimes import ATTENTION_OF_HALVES
from lucid.export.builder import Builder
from lucid.export.form import Taken, contrib_form, form, refuse
from lucid.export.forms.attention.call import Call, refuse_inexact, refuse_unfit_for_multi_head
from lucid.export.forms.attention.nodes import emit_node, multi_head
from lucid.ops import attention
from lucid.ops.op import Op
from lucid.ops.tensor.tensor import Tensor

WIDENED = ("query", "key", "value", "past_key", "past_value")  # not masks: what they exclude depends on their type


@form(
    attention,
    takes="mask key_mask past_key past_value heads kv_heads scale is_causal window window_after softcap need_weights",
    name="ai.onnx Attention",
    opset=23,
    kernel="Attention",
)
def standard(build: Builder, node: Node) -> tuple[str, ...]:
    return write_node(build, node)


def write_node(build: Builder, node: Node) -> tuple[str, ...]:
    """The ONNX op, if the target's runtime computes it correctly."""
    call = Call.of(node)
    refuse_inexact(build.target, call)
    return emit_node(build, call)


@contrib_form(attention, "MultiHeadAttention", "heads kv_heads scale is_causal")
def contrib(build: Builder, node: Node) -> str:
    call = Call.of(node)
    if call.options.heads is None:
        refuse("it takes the packed layout (N, L, H*d), not (N, H, L, d)")
    refuse_unfit_for_multi_head(call)
    return multi_head(build, call)


@form(attention, takes="*", name="float32 between casts", mends=ATTENTION_OF_HALVES, dtypes=("float16", "bfloat16"))
def in_float32(build: Builder, node: Node) -> Taken:
    """Half precision on a CPU, by any form for float32.

    onnxruntime's CPU kernel for float16 rounds the raw products of queries and keys to float16, before they are scaled:
    beyond 65504 they are infinite and the output NaN, and below, inputs 20 times unit normal are off by 0.4. Nor is it
    faster. For bfloat16 there is no kernel at all.
    """
    dtype = node.types[0].dtype
    assert isinstance(node.op, Op)
    operands = [None if value is None else Tensor.from_value(value) for value in node.inputs]
    wide = [
        x.astype(float32) if x is not None and name in WIDENED else x
        for name, x in zip(node.op.arguments, operands, strict=True)
    ]
    results = node.op(*wide, **node.attributes)
    narrow = [x.astype(dtype) for x in (results if isinstance(results, tuple) else (results,))]
    return Taken(narrow, build.target.wrong(ATTENTION_OF_HALVES))
