"""The softmax over keys, as models write it: the op, or exp(x) / exp(x).sum(-1), also of x - x.max(-1); with sinks."""

from __future__ import annotations

from typing import NamedTuple

from lucid.core.graph.types import same_shape
from lucid.core.graph.values import Node, Value, operand
from lucid.core.sizes.dims import same
from lucid.ops.elementwise import exp, sub, true_div
from lucid.ops.neural import softmax
from lucid.ops.op import Op
from lucid.ops.reduction import max_, sum_
from lucid.ops.shaping import concat_op, expand_op, reshape, reshape_op, unsqueeze_op
from lucid.ops.tensor.tensor import Tensor
from lucid.tracing.rewriting import Uses, is_one, made_by


class Softmax(NamedTuple):
    """A softmax over the last axis: its scores, and how often it reads them: twice if it subtracts the largest one."""

    scores: Value
    reads: int = 1


def written_softmax(value: Value, uses: Uses) -> Softmax | None:
    """The softmax whose result a value is.

    If exp(x) of a large x is infinite, the written code gives NaN; the op does not.
    """
    if (node := made_by(value, softmax)) is not None:
        return _unshifted(operand(node), uses) if _is_last(node.attributes.get("axis", -1), value) else None
    quotient = made_by(value, true_div)
    powers = quotient and made_by(operand(quotient), exp)
    if quotient is None or powers is None or uses[id(powers.results[0])] != 2:
        return None
    return _unshifted(operand(powers), uses) if _reduces(sum_, operand(quotient, 1), operand(quotient), uses) else None


def _unshifted(value: Value, uses: Uses) -> Softmax:
    """Scores from before their largest one is subtracted, which changes no weight."""
    node = made_by(value, sub)
    if node is not None and uses[id(value)] == 1 and _reduces(max_, operand(node, 1), operand(node), uses):
        return Softmax(operand(node), 2)
    return Softmax(value)


def _reduces(reduction: Op[..., Tensor], value: Value, inner: Value, uses: Uses) -> bool:
    """Whether a value is the reduction of another one over its last axis, which is kept, and is used once."""
    node = made_by(value, reduction)
    if node is None or operand(node) is not inner or uses[id(value)] != 1 or not node.attributes["keepdims"]:
        return False
    axes = node.attributes["axis"]
    return axes is not None and len(axes) == 1 and _is_last(axes[0], inner)


def _is_last(axis: int, value: Value) -> bool:
    return axis in (-1, value.type.rank - 1)


def with_sinks(softmax_: Softmax, cut: Node, uses: Uses) -> tuple[Value, Tensor] | None:
    """Of a softmax over scores and one more score in each head, which a slice cuts off: the scores and sinks (H,)."""
    joined = made_by(softmax_.scores, concat_op)
    if joined is None or len(joined.inputs) != 2 or uses[id(softmax_.scores)] != softmax_.reads:
        return None
    scores, last = operand(joined), joined.types[0].rank - 1
    from_front = all(same(each.start, 0) and each.step == 1 for each in cut.attributes["cuts"])
    if joined.attributes["axis"] != last or not from_front or not same_shape(scores.type.shape, cut.types[0].shape):
        return None
    sinks = _by_head(operand(joined, 1))
    return None if sinks is None else (scores, sinks)


def _by_head(value: Value) -> Tensor | None:
    """The numbers (H,) that were expanded to (..., H, L, 1)."""
    while (node := made_by(value, expand_op)) is not None:
        value = operand(node)
    shape = value.type.shape
    if len(shape) < 3 or not is_one((*shape[:-3], *shape[-2:])):
        return None
    node = made_by(value, reshape_op, unsqueeze_op)
    if node is not None and operand(node).type.rank == 1:
        return Tensor.from_value(operand(node))
    return reshape(Tensor.from_value(value), (shape[-3],))
