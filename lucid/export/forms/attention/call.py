"""An attention node as plan and writers read it, and refusals of what no operator of a runtime computes."""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import cached_property
from typing import Self

import numpy as np

from lucid.core.graph.types import float32
from lucid.core.graph.values import Node
from lucid.core.sizes.dims import same
from lucid.core.targets.runtimes import (
    ATTENTION_CROSS,
    ATTENTION_JOINED_WIDTHS,
    ATTENTION_OF_GROUPS,
    ATTENTION_OPEN_WEIGHTS,
    ATTENTION_SINGLE,
    ATTENTION_SOFTCAP,
    ATTENTION_UNSEEN,
    ATTENTION_WEIGHTS,
)
from lucid.export.form import refuse, refuse_wrong
from lucid.export.target import Target
from lucid.ops import attention
from lucid.ops.attention.call import AttentionCall, AttentionOptions
from lucid.ops.attention.mask_bounds import may_exclude
from lucid.ops.tensor.tensor import Tensor


class Call(AttentionCall):
    """An attention node, with the properties that a plan asks for."""

    @classmethod
    def of(cls, node: Node) -> Self:
        """Read a node."""
        return cls.from_operands([None if v is None else Tensor.from_value(v) for v in node.inputs], node.attributes)

    @cached_property
    def asks_for(self) -> frozenset[str]:
        """The optional operands that it has, and the options that are not at their default."""
        operands = {name for name in attention.optional if getattr(self, name) is not None}
        usual = AttentionOptions()
        options = {f.name for f in fields(usual) if getattr(self.options, f.name) != getattr(usual, f.name)}
        return frozenset(operands | options)

    @property
    def masked(self) -> bool:
        """Whether more than causality hides keys."""
        return self.mask is not None or self.key_mask is not None or self.options.window is not None

    @property
    def may_see_nothing(self) -> bool:
        """Whether a query may see no key at all."""
        masks = [mask for mask in (self.mask, self.key_mask) if mask is not None]
        hides = self.options.window is not None or self.options.is_causal or len(masks) > 1
        return self.masked and (hides or masks[0].dtype.kind != "float" or may_exclude(masks[0]))

    @property
    def grouped(self) -> bool:
        """Whether several query heads may read one key head."""
        if self.options.heads is not None:
            return self.options.heads != self.options.key_heads
        return not same(self.query.shape[1], self.key.shape[1])

    @property
    def split(self) -> bool:
        """Whether products read the heads as they are."""
        return self.options.heads in (None, 1)

    @property
    def may_be_short(self) -> bool:
        """Whether there may be a single query for more keys than one."""
        return not same(self.queries, self.new_keys) and not (isinstance(self.queries, int) and self.queries > 1)

    @property
    def factor(self) -> float:
        """The factor of the scores in products: the scale, divided by the softcap, if there is one."""
        return self.options.scale_of(self.width) / (self.options.softcap or 1.0)

    @property
    def fits_products(self) -> bool:
        """Whether `products.in_products` computes it: in float32, with a factor that float32 can hold; groups of heads
        only over a known number of keys, or as many as queries, since a buffer without rows has none to reshape to."""
        held = float(np.finfo(np.float32).tiny) <= abs(self.factor) <= float32.largest
        known = isinstance(self.new_keys, int) or (self.sinks is not None and same(self.queries, self.new_keys))
        return self.dtype == float32 and held and (known or not self.grouped)

    def by_body(self) -> tuple[Tensor, ...]:
        """The results by the op's body."""
        return tuple(attention.expand(self._operands(), asdict(self.options)))

    def by_best_form(self) -> Tensor:
        """The only result of the call, written by the best form of the op for it."""
        output: Tensor = attention(*self._operands(), **asdict(self.options))  # type: ignore[arg-type]  # some are optional
        return output

    def _operands(self) -> list[Tensor | None]:
        return [getattr(self, name) for name in attention.arguments]


def refuse_common(call: Call) -> None:
    """Refuse what no attention operator of onnxruntime accepts."""
    for kind in (call.query.spec, call.key.spec, call.value.spec):
        if any(same(size, 0) for size in kind.shape):
            refuse(f"onnxruntime's kernel refuses empty inputs, here {kind}")


def refuse_scale(scale: float | None) -> None:
    """Refuse a scale that onnxruntime's kernels reject or read as their default: one that is 0 in float32."""
    if scale is not None and not float(np.finfo(np.float32).tiny) <= scale <= float32.largest:
        refuse(f"the scale is {scale:g}, onnxruntime's kernel wants a positive one that float32 can hold")


def refuse_inexact(target: Target, call: Call) -> None:
    """Refuse a call for which the target's runtime computes the ONNX op wrongly.

    The page "The attention contract" lists what onnxruntime's kernels get wrong; each fault names itself.
    """
    refuse_common(call)
    refuse_scale(call.options.scale)
    if call.options.need_weights:
        refuse_wrong(target, ATTENTION_WEIGHTS)
    if call.options.need_weights and not isinstance(call.keys, int):
        refuse_wrong(target, ATTENTION_OPEN_WEIGHTS)
    if call.may_see_nothing:
        refuse_wrong(target, ATTENTION_UNSEEN)
    if call.options.softcap:
        refuse_wrong(target, ATTENTION_SOFTCAP)
    if call.options.is_causal and call.past_key is None and call.may_be_short:
        refuse_wrong(target, ATTENTION_SINGLE)
    if call.options.is_causal and not same(call.queries, call.new_keys):
        refuse_wrong(target, ATTENTION_CROSS)
    if call.grouped:
        refuse_wrong(target, ATTENTION_OF_GROUPS)
    widths = (call.width, call.value_width)
    if call.past_key is not None and not all(same(width * call.dtype.itemsize % 8, 0) for width in widths):
        refuse_wrong(target, ATTENTION_JOINED_WIDTHS)


def refuse_unfit_for_multi_head(call: Call) -> None:
    """Refuse what com.microsoft `MultiHeadAttention` does not compute, except for the layout."""
    refuse_common(call)
    refuse_scale(call.options.scale)
    if call.grouped:
        refuse("it has no grouped heads")
    if call.options.is_causal and not same(call.queries, call.new_keys):
        refuse("its causal mask is wrong where queries and keys may differ in number")
