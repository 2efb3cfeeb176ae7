"""An attention node in the terms that guards speak, its masks put together, and its form as one ONNX node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lucid.dims import Size, same
from lucid.export.builder import Builder
from lucid.export.form import refuse
from lucid.graph import Node, Value
from lucid.ops import expand, unsqueeze
from lucid.ops.attention import causal_mask
from lucid.ops.attention_masks import in_type, joined, scores_type
from lucid.ops.tensor import Tensor
from lucid.types import DType, float32


class Call(NamedTuple):
    """An attention node in the terms that the guards speak."""

    query: Value
    key: Value
    value: Value
    mask: Tensor | None
    key_mask: Tensor | None
    past_key: Value | None
    past_value: Value | None
    heads: int | None
    kv_heads: int | None
    scale: float | None
    is_causal: bool
    window: int | None
    softcap: float
    dropout_p: float
    need_weights: bool

    @classmethod
    def of(cls, node: Node) -> Call:
        """Read a node."""
        query, key, value, mask, key_mask, past_key, past_value = node.inputs
        assert query is not None and key is not None and value is not None
        a = node.attributes
        return cls(
            query,
            key,
            value,
            None if mask is None else Tensor.from_value(mask),
            None if key_mask is None else Tensor.from_value(key_mask),
            past_key,
            past_value,
            a["heads"],
            a["kv_heads"] or a["heads"],
            a["scale"],
            a["is_causal"],
            a["window"],
            a["softcap"],
            a["dropout_p"],
            a["need_weights"],
        )

    @property
    def dtype(self) -> DType:
        """The element type of queries, keys and values."""
        return self.query.type.dtype

    @property
    def batch(self) -> Size:
        """N."""
        return self.query.type.shape[0]

    @property
    def queries(self) -> Size:
        """L."""
        return self.query.type.shape[-2]

    @property
    def new_keys(self) -> Size:
        """S, without the past."""
        return self.key.type.shape[-2]

    @property
    def past(self) -> Size:
        """P."""
        return 0 if self.past_key is None else self.past_key.type.shape[2]

    @property
    def masked(self) -> bool:
        """Whether a query may see no key at all."""
        return self.mask is not None or self.key_mask is not None or self.window is not None

    @property
    def grouped(self) -> bool:
        """Whether several query heads may read one key head."""
        if self.heads is not None:
            return self.heads != self.kv_heads
        return not same(self.query.type.shape[1], self.key.type.shape[1])

    @property
    def may_be_short(self) -> bool:
        """Whether there may be a single query for more keys than one."""
        return not same(self.queries, self.new_keys) and not (isinstance(self.queries, int) and self.queries > 1)

    @property
    def width(self) -> Size:
        """d, the width of a query's head."""
        width = self.query.type.shape[-1]
        return width if self.heads is None else width // self.heads

    @property
    def value_width(self) -> Size:
        """d_v, the width of a value's head."""
        width = self.value.type.shape[-1]
        return width if self.kv_heads is None else width // self.kv_heads


def refuse_common(call: Call) -> None:
    """Refuse what no attention op of onnxruntime takes."""
    for kind in (call.query.type, call.key.type, call.value.type):
        if any(same(size, 0) for size in kind.shape):
            refuse(f"onnxruntime's kernel refuses empty inputs, here {kind}")


def refuse_scale(call: Call) -> None:
    """Refuse a scale that onnxruntime's kernels do not take or take for their default: 0, also once in float32."""
    if call.scale is not None and not float(np.finfo(np.float32).tiny) <= call.scale <= float32.largest:
        refuse(f"the scale is {call.scale:g}, onnxruntime's kernel wants a positive one that float32 can hold")


def joint_mask(call: Call, *, triangle: bool) -> Tensor | None:
    """All masks of a call as one that has every query (an axis of size 1 there fails in onnxruntime) and every key.

    Boolean where no floating mask is given. `triangle`: put the causal condition into it.
    """
    keys = call.past + call.new_keys
    position: Tensor | None = None
    if triangle or call.window is not None:
        position = causal_mask(call.queries, keys, call.past, call.is_causal, call.window)
    joint = joined(call.mask, call.key_mask, position, scores_type(call.dtype))
    if joint is None:
        return None
    if joint.dtype.kind == "float":
        joint = in_type(joint, call.dtype)  # as the node wants it
    while joint.ndim < 4 and (joint.ndim != 2):
        joint = unsqueeze(joint, 0)
    return expand(joint, (*joint.shape[:-2], call.queries, keys))


def emit_node(build: Builder, call: Call) -> tuple[str, ...]:
    """Emit ONNX Attention (opset 23). Whether it is exact on the target is the caller's question."""
    # With a cache and more than one new key, onnxruntime (to 1.31.1) lets a single causal query see every key.
    in_mask = call.is_causal and (call.window is not None or (call.past_key is not None and call.may_be_short))
    mask = joint_mask(call, triangle=in_mask)
    with_past = call.past_key is not None
    outputs = build.ops(
        "Attention",
        call.query,
        call.key,
        call.value,
        mask,
        call.past_key,
        call.past_value,
        outputs=[True, with_past, with_past, call.need_weights] if with_past or call.need_weights else 1,
        q_num_heads=call.heads,
        kv_num_heads=call.kv_heads,
        is_causal=int(call.is_causal and not in_mask) or None,
        scale=call.scale,
        softcap=float(call.softcap) or None,
        qk_matmul_output_mode=3 if call.need_weights else None,
    )
    return tuple(name for name in outputs if name)
