"""Forms of attention for onnxruntime's CUDA provider.

The page "GPUs with CUDA" says which facts were measured and which were read.

With one Attention node, onnxruntime chooses the kernel: flash (half precision, no mask at all, heads up to 256 wide and
as wide as the values'), memory-efficient (heads a multiple of 8 wide; with a mask, a multiple of 4 keys), or products
that hold all scores. So causality stays an attribute, and a mask is made only if the call has one.
"""

from __future__ import annotations

from lucid.core.graph.types import bfloat16, float16, int32
from lucid.core.graph.values import Node
from lucid.core.sizes.dims import same
from lucid.core.targets.runtimes import OWN
from lucid.export.builder import Builder
from lucid.export.form import Taken, contrib_form, form, refuse
from lucid.export.forms.attention.call import Call, refuse_common, refuse_scale
from lucid.export.forms.attention.node_or_op import write_node
from lucid.ops import attention, expand
from lucid.ops.creation import size_op

HALF = (float16, bfloat16)


@form(
    attention,
    takes="mask key_mask past_key past_value heads kv_heads scale is_causal window window_after softcap need_weights",
    name="ai.onnx Attention",
    opset=23,
    kernel="Attention",
    strategy="flash",
)
def standard(build: Builder, node: Node) -> Taken:
    return Taken(write_node(build, node), _kernel(Call.of(node)))


@contrib_form(attention, "GroupQueryAttention", "heads kv_heads scale is_causal", strategy="flash")
def group_query(build: Builder, node: Node) -> Taken:
    """Causal attention with grouped heads, for releases that have no CUDA kernel of Attention."""
    call = Call.of(node)
    refuse_common(call)
    if not call.options.is_causal or not same(call.queries, call.new_keys):
        refuse("it takes only causal attention with as many keys as queries")
    refuse_scale(call.options.scale)
    if call.options.heads is None:
        refuse("it takes the packed layout (N, L, H*d), not (N, H, L, d)")
    if not same(call.width, call.value_width) or not same(call.width % 8, 0):
        refuse("the width of heads must be a multiple of 8, and the same for values")
    length = size_op(size=call.queries).astype(int32)
    last = expand(length - 1, (call.batch,))
    outputs = build.ops(
        "GroupQueryAttention",
        call.query,
        call.key,
        call.value,
        None,
        None,
        last,
        length,
        domain=OWN,
        outputs=3,  # older releases require the caches as outputs, used or not
        num_heads=call.options.heads,
        kv_num_heads=call.options.key_heads,
        scale=call.options.scale,
    )
    return Taken(outputs[0], "flash kernel, on devices of compute capability 8.0 and newer")


def _kernel(call: Call) -> str:
    """The kernel that onnxruntime will choose for the node, as far as sizes are known."""
    windows = call.options.window, call.options.window_after
    unmasked = call.mask is None and call.key_mask is None and windows == (None, None)
    keys, is_known = call.keys, isinstance(call.width, int)
    if call.options.softcap:
        return "one node; softcap leaves the choice of kernel to the release"
    if unmasked and call.dtype in HALF and same(call.width, call.value_width) and is_known and call.width <= 256:
        return "flash kernel, on devices of compute capability 8.0 and newer: no mask, causality is an attribute"
    if not (is_known and call.width % 8 == 0):
        return f"one node; the head width {call.width} is not a multiple of 8, so all scores are held"
    if unmasked or (isinstance(keys, int) and keys % 4 == 0):
        return "memory-efficient kernel: the scores are not held"
    if isinstance(keys, int):
        why = f"{keys} keys are not a multiple of 4, so with a mask all scores are held"
        return f"one node; {why}: pad the keys to {-(-keys // 4) * 4}"
    return f"memory-efficient kernel where {keys} is a multiple of 4; otherwise, with a mask, all scores are held"
