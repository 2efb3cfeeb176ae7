"""Attention as one node: ONNX's, or com.microsoft's, which computes tiles of scores where nothing is masked.

In tiles not all scores are in memory at once (Dao et al. 2022, "FlashAttention"). The op reads the packed layout, so
heads that are split are joined for it and split again.
"""

from __future__ import annotations

from dataclasses import replace

from lucid.core.targets.runtimes import OWN
from lucid.export.builder import Builder, Operand, computed
from lucid.export.forms.attention.call import Call
from lucid.ops import expand, unsqueeze
from lucid.ops.attention.masks import cast_mask, combined_mask, position_mask
from lucid.ops.attention.op import joined_heads, split_heads
from lucid.ops.tensor.tensor import Tensor


def emit_node(build: Builder, call: Call) -> tuple[str, ...]:
    """Emit ONNX Attention (opset 23). The caller checks whether it is exact on the target."""
    options, with_past = call.options, call.past_key is not None
    # With a cache and more than one new key, onnxruntime (to 1.31.1) lets a single causal query see every key.
    in_mask = options.is_causal and (options.window is not None or (with_past and call.may_be_short))
    mask = joint_mask(call, with_causal=in_mask)
    outputs = build.ops(
        "Attention",
        call.query,
        call.key,
        call.value,
        mask,
        call.past_key,
        call.past_value,
        outputs=[True, with_past, with_past, options.need_weights] if with_past or options.need_weights else 1,
        q_num_heads=options.heads,
        kv_num_heads=options.key_heads,
        is_causal=int(options.is_causal and not in_mask) or None,
        scale=options.scale,
        softcap=float(options.softcap) or None,
        qk_matmul_output_mode=3 if options.need_weights else None,
    )
    return tuple(name for name in outputs if name)


def node_output(build: Builder, call: Call) -> Tensor:
    """The output of `emit_node` as a tensor, in the call's layout."""
    heads = call.options.heads
    width = call.value_width * (heads or 1)
    shape = (call.batch, call.queries, width) if heads else (*call.query.shape[:3], width)
    return computed(build, emit_node(build, call)[0], call.query.spec.with_shape(shape))


def joint_mask(call: Call, *, with_causal: bool) -> Tensor | None:
    """All masks of a call as one, expanded to all queries (onnxruntime fails on an axis of size 1 there) and all keys.

    Boolean where no floating mask is given. `with_causal`: include the causal condition.
    """
    joint = combined_mask(call, position_mask(call, is_causal=with_causal))
    if joint is None:
        return None
    if joint.dtype.kind == "float":
        joint = cast_mask(joint, call.dtype)  # as the node requires
    while joint.ndim < 4 and (joint.ndim != 2):
        joint = unsqueeze(joint, 0)
    return expand(joint, (*joint.shape[:-2], call.queries, call.keys))


def multi_head(build: Builder, call: Call) -> str:
    """The com.microsoft op, for the packed layout. The caller checks whether it is exact."""
    return build.op(
        "MultiHeadAttention",
        call.query,
        call.key,
        call.value,
        domain=OWN,
        num_heads=call.options.heads,
        scale=call.options.scale,
        unidirectional=int(call.options.is_causal) or None,
    )


def in_tiles(build: Builder, call: Call) -> Operand:
    """The output of `multi_head` in the layout of the call."""
    if call.options.heads is not None:
        return multi_head(build, call)
    heads = call.query.shape[1]
    assert isinstance(heads, int)
    query, key, value = map(joined_heads, (call.query, call.key, call.value))
    packed = replace(call, query=query, key=key, value=value, options=replace(call.options, heads=heads))
    output = computed(build, multi_head(build, packed), query.spec.with_shape((*query.shape[:2], value.shape[2])))
    return build.name_of(split_heads("output", output, heads))
