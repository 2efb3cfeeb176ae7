"""An attention node as the guards read it, its masks combined into one, and its form as one ONNX node."""

from __future__ import annotations

from typing import Self

import numpy as np

from lucid.core.graph.types import float32
from lucid.core.graph.values import Node
from lucid.core.sizes.dims import same
from lucid.export.builder import Builder, computed
from lucid.export.form import refuse
from lucid.ops import expand, unsqueeze
from lucid.ops.attention.call import AttentionCall
from lucid.ops.attention.masks import cast_mask, combined_mask, position_mask
from lucid.ops.tensor.tensor import Tensor


class Call(AttentionCall):
    """An attention node, with the properties that the guards ask for."""

    @classmethod
    def of(cls, node: Node) -> Self:
        """Read a node."""
        return cls.from_operands([None if v is None else Tensor.from_value(v) for v in node.inputs], node.attributes)

    @property
    def masked(self) -> bool:
        """Whether a query may see no key at all."""
        return self.mask is not None or self.key_mask is not None or self.options.window is not None

    @property
    def grouped(self) -> bool:
        """Whether several query heads may read one key head."""
        if self.options.heads is not None:
            return self.options.heads != self.options.key_heads
        return not same(self.query.shape[1], self.key.shape[1])

    @property
    def may_be_short(self) -> bool:
        """Whether there may be a single query for more keys than one."""
        return not same(self.queries, self.new_keys) and not (isinstance(self.queries, int) and self.queries > 1)


def refuse_common(call: Call) -> None:
    """Refuse what no attention operator of onnxruntime accepts."""
    for kind in (call.query.type, call.key.type, call.value.type):
        if any(same(size, 0) for size in kind.shape):
            refuse(f"onnxruntime's kernel refuses empty inputs, here {kind}")


def refuse_scale(scale: float | None) -> None:
    """Refuse a scale that onnxruntime's kernels reject or read as their default: one that is 0 in float32."""
    if scale is not None and not float(np.finfo(np.float32).tiny) <= scale <= float32.largest:
        refuse(f"the scale is {scale:g}, onnxruntime's kernel wants a positive one that float32 can hold")


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
    return computed(build, emit_node(build, call)[0], call.query.type.with_shape(shape))
