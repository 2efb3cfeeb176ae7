"""Attention that is written out, softmax(scale * query @ key.T + masks) @ value, as the op `attention`.

It is replaced only where the op computes the same. In a query that sees no key they differ: the op gives 0, a softmax
of lowest numbers the mean of all values. So conditions become masks of the op where each query certainly sees a key,
and otherwise numbers that hide keys but do not exclude them. A softmax of -inf gives NaN there, which nobody wants to
keep. Code that is nearly attention stays as it is, with a remark that says what to write.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np

from lucid.core.graph.graph import Graph, Remark
from lucid.core.graph.types import DType, float32, same_shape
from lucid.core.graph.values import Constant, Node, Result, Value, operand
from lucid.core.process.context import holding
from lucid.core.sizes.bounds import Bound
from lucid.core.sizes.dims import Dim, Shape, Size, product, same
from lucid.ops.attention.call import AttentionOptions
from lucid.ops.attention.mask_bounds import may_exclude, next_to_lowest, raised
from lucid.ops.attention.op import attention
from lucid.ops.creation import full_op
from lucid.ops.elementwise import add, cast, logical_and, logical_not, mul, neg, sub, tanh, true_div, where
from lucid.ops.indexing import slice_op
from lucid.ops.linalg import matmul
from lucid.ops.neural import softmax
from lucid.ops.shaping import expand, expand_op, permute_op, reshape, reshape_op
from lucid.ops.tensor.tensor import Tensor
from lucid.tracing.attention_operands import simpler_operands
from lucid.tracing.position_masks import EVERYWHERE, Interval, as_band, position_options, visible
from lucid.tracing.rewriting import (
    Uses,
    again,
    constant_everywhere,
    is_one,
    keeps_matrices,
    made_by,
    number,
    opposite,
    regrouped,
    rewritten,
    swapped,
)
from lucid.tracing.written_softmax import Softmax, with_sinks, written_softmax

_LOW = -1e9
"""Scores that a mask sets to this number or a lower one count as hidden; others are scores."""


class _NotSameError(Exception):
    """Why something is nearly attention: what differs, and what to write."""

    def __init__(self, because: str, instead: str) -> None:
        super().__init__(because)
        self.remark = because, instead


_OP = "F.scaled_dot_product_attention(query, key, value, attn_mask)"


def _rounded() -> _NotSameError:
    return _NotSameError(
        "its scores or weights are rounded to another element type on the way",
        f"{_OP}, which computes scores of half precision in float32",
    )


class _Mask(NamedTuple):
    """One step that masks scores: numbers that are added to them, or, with `low`, a condition outside of which they are
    that number. `leading` are the leading axes of the scores.
    """

    term: Tensor
    leading: Shape
    low: float | None


@dataclass(frozen=True)
class _Scores:
    """Scores taken apart, from the product outwards."""

    query: Value
    transposed_key: Value
    leading: Shape
    scale: float = 1.0
    softcap: float = 0.0
    masks: tuple[_Mask, ...] = ()

    def masked(self, term: Tensor, leading: Shape, low: float | None) -> Self:
        """The scores after one more step of masking."""
        return replace(self, masks=(*self.masks, _Mask(term, leading, low)))

    def turned(self) -> Self:
        """The scores with queries and keys exchanged."""
        masks = [
            mask._replace(term=mask.term.mT if mask.term.ndim > 1 else mask.term.unsqueeze(-1)) for mask in self.masks
        ]
        query, transposed_key = (swapped(value).to_value() for value in (self.transposed_key, self.query))
        return replace(self, query=query, transposed_key=transposed_key, masks=tuple(masks))


_as_written: ContextVar[bool] = ContextVar("lucid_as_written", default=False)


def attention_as_written() -> AbstractContextManager[None]:
    """Inside, models are traced and exported with the attention that they write out step by step, and no op in its
    place: ``with lucid.attention_as_written(): lucid.export.to_onnx(...)``. It holds for this thread.
    """
    return holding(_as_written, True)


def with_written_attention(graph: Graph) -> Graph:
    """A graph in which attention that is written out is the op, with its remarks."""
    if _as_written.get():
        return graph
    rule = _WrittenAttention()
    new = rewritten(rewritten(graph, rule), simpler_operands)
    bounds = sorted(_table_bounds(graph) - _table_bounds(new), key=str) if new is not graph else []
    outputs = dict(zip(new.output_names, new.outputs, strict=True))
    return new.with_outputs(outputs, bounds=bounds, remarks=rule.remarks)


def _table_bounds(graph: Graph) -> set[Bound]:
    """The largest sizes for which the tables of masks are large enough, of which a mask by position needs none."""
    slices = [node for node in graph.nodes() if node.op is slice_op and isinstance(node.inputs[0], Constant)]
    return {
        Bound(cut.stop, 0, int(operand(node).type.shape[cut.axis]))
        for node in slices
        for cut in node.attributes["cuts"]
        if isinstance(cut.stop, Dim)
    }


class _WrittenAttention:
    """The rule for the product of weights and values, and its remarks."""

    def __init__(self) -> None:
        self.remarks: list[Remark] = []

    def __call__(self, node: Node, uses: Uses) -> Tensor | None:
        """The op in the place of a product."""
        if node.op is not matmul or not _of_matrices(node):
            return None
        weights = _weights(operand(node), uses)
        if weights is None:
            return None
        try:
            scores = _scores(weights.scores, uses, weights.reads)
            if scores is None or not same(product(scores.leading), product(node.types[0].shape[:-2])):
                return None  # weights that several values share would be computed for each of them
            output = _attention(scores, weights, operand(node, 1), node)
        except _NotSameError as reason:
            self.remarks.append(Remark(node.scope, softmax.name, "stays as it is written", *reason.remark))
            return None
        self.remarks.append(Remark(node.scope, softmax.name, "becomes attention, as it is between its two products"))
        return output


@dataclass(frozen=True)
class _Weights:
    """The softmax behind weights: its scores, the condition outside of which weights are set to 0, whether other nodes
    use the weights, and whether they are rounded more than to the type of the output; how often it reads its scores,
    and the scores (H,) of one more key in each head, with a value of zero.
    """

    scores: Value
    reads: int = 1
    sinks: Tensor | None = None
    kept: Tensor | None = None
    shared: bool = False
    rounded: bool = False


def _weights(value: Value, uses: Uses) -> _Weights | None:
    node = made_by(value, softmax, true_div, slice_op, cast, reshape_op, where)
    if node is None:
        return None
    if node.op in (softmax, true_div):
        whole = written_softmax(value, uses)
        weights = whole and _Weights(*whole)
    elif node.op is slice_op:
        weights = _weights(operand(node), uses)
        one_cut = weights is not None and weights.sinks is None
        apart = with_sinks(Softmax(weights.scores, weights.reads), node, uses) if weights and one_cut else None
        weights = replace(weights, scores=apart[0], reads=1, sinks=apart[1]) if weights and apart else None
    elif node.op is where:
        condition, inner, other = _chosen(node)
        weights = _weights(inner, uses) if other == 0 else None
        weights = weights and replace(weights, kept=condition)
    elif node.op is cast:
        weights = _weights(operand(node), uses)
        weights = weights and replace(weights, rounded=weights.rounded or not _holds(operand(node), value.type.dtype))
    else:
        weights = _weights(operand(node), uses) if keeps_matrices(node) else None
    return weights and replace(weights, shared=weights.shared or uses[id(value)] != 1)


def _holds(value: Value, dtype: DType) -> bool:
    """Whether a value has a floating type that is at least as wide as another one."""
    return value.type.dtype.kind == "float" and value.type.dtype.itemsize >= dtype.itemsize


def _chosen(node: Node) -> tuple[Tensor, Value, float | None]:
    """Of a `where`: the condition, the value where it holds, and the number elsewhere; or turned round."""
    condition, inner, other = (operand(node, place) for place in range(3))
    seen = Tensor.from_value(condition)
    if (elsewhere := _everywhere(inner)) is not None and _everywhere(other) is None:
        return opposite(seen), other, elsewhere
    return seen, inner, _everywhere(other)


def _everywhere(value: Value) -> float | None:
    """The number that all places of a value hold."""
    if (node := made_by(value, full_op, expand_op)) is not None:
        return float(node.attributes["value"]) if node.op is full_op else _everywhere(operand(node))
    element = constant_everywhere(value)
    return None if element is None else float(element)


def _scores(value: Value, uses: Uses, reads: int = 1) -> _Scores | None:
    """The parts of scores that are read so often; None if there is no product in them, or others use them."""
    if not isinstance(value, Result) or uses[id(value)] != reads:
        return None
    node = value.node
    if node.op is matmul:
        return _Scores(operand(node), operand(node, 1), value.type.shape[:-2]) if _of_matrices(node) else None
    if node.op is cast:
        scores = _scores(operand(node), uses)
        if scores and not (_holds(value, scores.query.type.dtype) and _holds(value, float32)):
            raise _rounded()
        return scores
    if node.op is reshape_op and keeps_matrices(node):
        return _scores(operand(node), uses)
    if node.op is permute_op:
        rank = value.type.rank
        scores = (
            _scores(operand(node), uses) if node.attributes["axes"] == (*range(rank - 2), rank - 1, rank - 2) else None
        )
        return scores and scores.turned()
    if node.op in (mul, true_div):
        return _multiplied(node, uses)
    if node.op is where:
        condition, inner, low = _chosen(node)
        scores = _scores(inner, uses) if low is not None and _alike(inner, value) else None
        return scores and scores.masked(condition, value.type.shape[:-2], low)
    for inner, term in _terms(node):
        scores = _scores(inner, uses) if _alike(inner, value) else None
        if scores is not None:
            return scores.masked(term, value.type.shape[:-2], None)
    return None


def _of_matrices(product_: Node) -> bool:
    """Whether both operands of a product are matrices."""
    return operand(product_).type.rank >= 2 and operand(product_, 1).type.rank >= 2


def _alike(inner: Value, value: Value) -> bool:
    return same_shape(inner.type.shape, value.type.shape)


def _terms(node: Node) -> Iterator[tuple[Value, Tensor]]:
    """Both ways to read a sum as scores and a mask that is added."""
    if node.op is add:
        yield operand(node), Tensor.from_value(operand(node, 1))
        yield operand(node, 1), Tensor.from_value(operand(node))
    elif node.op is sub:
        yield operand(node), neg(Tensor.from_value(operand(node, 1)))


def _multiplied(node: Node, uses: Uses) -> _Scores | None:
    """Scores times a number, or capped: c * tanh(scores)."""
    inner, factor = _factor(node)
    capped = made_by(inner, tanh) if factor and uses[id(inner)] == 1 else None
    scores = _scores(operand(capped) if capped else inner, uses) if factor else None
    if scores is None or factor is None:
        return None
    if scores.masks or scores.softcap:
        raise _NotSameError("scores are multiplied after a mask", f"multiply before the mask is applied, or {_OP}")
    if capped is None:
        return replace(scores, scale=scores.scale * factor)
    return replace(scores, scale=scores.scale * factor, softcap=factor) if factor > 0 else None


def _factor(node: Node) -> tuple[Value, float | None]:
    """The tensor that a product or quotient multiplies by a number, and the number."""
    left, right = operand(node), operand(node, 1)
    divisor = number(right)
    if node.op is true_div:
        return left, 1 / divisor if divisor else None
    return (left, divisor) if divisor is not None else (right, number(left))


def _unscaled(x: Tensor) -> tuple[Tensor, float]:
    """Queries or keys without a number that they are multiplied by, and the number."""
    value = x.to_value()
    if (node := made_by(value, mul, true_div)) is not None:
        inner, factor = _factor(node)
        if factor and math.isfinite(factor) and _alike(inner, value):
            before, more = _unscaled(Tensor.from_value(inner))
            return before, more * factor
    if (node := made_by(value, permute_op, reshape_op)) is not None:
        before, factor = _unscaled(Tensor.from_value(operand(node)))
        if factor != 1:
            return again(node, [before]), factor
    return x, 1.0


def _attention(scores: _Scores, weights: _Weights, value: Value, node: Node) -> Tensor:
    """The op, in the shape of the product that it replaces."""
    if weights.rounded:
        raise _rounded()
    if weights.shared:
        raise _NotSameError("its weights are used elsewhere", "lucid.ops.attention(..., need_weights=True)")
    leading, dtype = node.types[0].shape[:-2], node.types[0].dtype
    operands = [Tensor.from_value(scores.query), swapped(scores.transposed_key), Tensor.from_value(value)]
    if weights.scores.type.dtype != scores.query.type.dtype or dtype.itemsize == 2:
        operands = _widened(operands)
    levels = [scores.leading, *(level for _, level, _ in scores.masks), leading]
    batch = _windows(scores, operands[1:]) or _batch(scores.query, levels)
    single = same_shape(batch, (*leading, 1)) and all(x.ndim == 3 for x in operands)  # (N, L, d): heads side by side
    heads = leading if single else batch
    query = _placed(operands[0], scores.leading, heads)
    key, values = _keys(operands[1:], (scores.leading, leading), heads)
    query, factor = _unscaled(query)
    key, more = _unscaled(key)
    scale = scores.scale * factor * more
    options: dict[str, Any] = {}
    if not math.isfinite(scale):
        raise _NotSameError(f"its scale is {scale}", _OP)
    if np.float32(scale) != np.float32(AttentionOptions().scale_of(query.shape[-1])):
        options["scale"] = scale
    if scores.softcap:
        options["softcap"] = scores.softcap
    lengths = query.shape[-2], key.shape[-2]
    mask, by_position = _mask(scores.masks, weights, batch, lengths, scores.query.type.dtype)
    if weights.sinks is not None:
        if not same(weights.sinks.shape[0], batch[1]):
            raise _NotSameError("its sinks are not one number for each head", "lucid.ops.attention(..., sinks=sinks)")
        options["sinks"] = weights.sinks
    if single:
        options["heads"] = 1
    output = attention(query, key, values, mask, **options, **by_position)
    return regrouped(output, leading)


def _widened(operands: Sequence[Tensor]) -> list[Tensor]:
    """Half precision: the operands before queries and keys were widened for the product."""
    dtype = operands[-1].dtype
    nodes = [made_by(x.to_value(), cast) for x in operands[:2]]
    before = [Tensor.from_value(operand(node)) for node in nodes if node is not None]
    if dtype.itemsize != 2 or len(before) != 2 or any(x.dtype != dtype for x in before):
        raise _rounded()
    return [*before, operands[-1]]


def _batch(query: Value, levels: Sequence[Shape]) -> Shape:
    """N and H. Of leading axes that were joined, those from which queries were."""
    for leading in levels:
        if len(leading) == 2:
            return leading
    if (node := made_by(query, reshape_op)) is not None and keeps_matrices(node) and operand(node).type.rank == 4:
        return operand(node).type.shape[:2]
    first = levels[0]
    return (first[0] if first else 1, product(first[1:]))


def _windows(scores: _Scores, pair: Sequence[Tensor]) -> Shape | None:
    """The axes before heads as N, such as those of windows, where no mask tells them apart and no keys are shared."""
    leading = scores.leading
    if len(leading) < 3:
        return None
    alike = all(same_shape(level, leading) and is_one(term.shape[:-3]) for term, level, _ in scores.masks)
    apart = all(x.ndim == len(leading) + 2 and same(x.shape[-3], leading[-1]) for x in pair)
    return (product(leading[:-1]), leading[-1]) if alike and apart else None


def _placed(x: Tensor, leading: Shape, batch: Shape) -> Tensor:
    """Matrices as (N, H, ...), repeated where their product would have repeated them."""
    own = x.shape[:-2]
    if same_shape(own, leading) or same_shape(own, batch):
        return regrouped(x, batch)
    return regrouped(expand(x, (*leading, *x.shape[-2:])), batch)


def _keys(pair: Sequence[Tensor], levels: Sequence[Shape], batch: Shape) -> list[Tensor]:
    """Keys and values (N, H_kv, S, ...); those that are the same for the last leading axis are not repeated."""
    shared = all(
        len(level) >= 2 and not same(level[-1], 1) and same_shape(x.shape[:-2], (*level[:-1], 1))
        for x, level in zip(pair, levels, strict=True)
    )
    if shared:
        return [regrouped(x, (x.shape[0], product(x.shape[1:-2]))) for x in pair]
    return [_placed(x, level, batch) for x, level in zip(pair, levels, strict=True)]


def _fitted(mask: Tensor, leading: Shape, batch: Shape) -> Tensor:
    """A mask of scores with some leading axes as a mask of scores (N, H, L, S)."""
    own, last = mask.shape[:-2], mask.shape[-2:]
    if is_one(own) or mask.ndim < 2:
        return reshape(mask, last) if own else mask
    if same_shape(leading, batch):
        return mask
    if len(leading) > 2 and is_one(own[:-1]) and same_shape((product(leading[:-1]), leading[-1]), batch):
        return reshape(mask, (1, own[-1], *last))
    joined = len(leading) > 2 and same_shape((leading[0], product(leading[1:])), batch)
    if joined and (len(own) < len(leading) or same(own[0], 1)):
        return reshape(expand(mask, (1, *leading[1:], *last)), (1, product(leading[1:]), *last))
    return reshape(expand(mask, (*leading, *last)), (*batch, *last))


# Masks ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Condition:
    """Which keys a step of masking leaves as they are, where that is known by position, and the number at others."""

    mask: _Mask
    seen: Tensor
    interval: Interval | None
    low: float


def _mask(
    masks: Sequence[_Mask], weights: _Weights, batch: Shape, lengths: tuple[Size, Size], dtype: DType
) -> tuple[Tensor | None, dict[str, Any]]:
    """The mask of attention and its options by position, for scores of this type."""
    steps = [(mask, _condition(mask, lengths, dtype)) for mask in masks]
    steps = [(mask, each) for mask, each in steps if each is None or each.interval != EVERYWHERE]
    terms = [raised(_fitted(mask.term, mask.leading, batch)) for mask, each in steps if each is None]
    conditions = [each for _, each in steps if each is not None]
    seen = [_fitted(each.seen, each.mask.leading, batch) for each in conditions]
    for term in terms:
        if term.dtype != dtype:
            raise _NotSameError(f"{term.dtype} numbers are added to {dtype} scores", _OP)
    total = reduce(add, terms) if terms else None
    least = max([dtype.lowest, *(each.low for each in conditions)])  # where numbers hide more, hidden keys are seen
    bounded = total is None or not may_exclude(total, least)
    if weights.kept is not None:
        if len(conditions) != 1 or not _is_same(conditions[0].seen, weights.kept) or not bounded:
            raise _NotSameError("weights are set to 0 by another condition than scores", _OP)
        return _joined(seen, total, dtype.lowest), {}
    # A sink, or NaN: where a query sees no key, its weights are 0, or nobody wants to keep them.
    vanish = weights.sinks is not None or all(each.low == -math.inf for each in conditions)
    if bounded and (vanish or _every_query_sees(conditions, lengths)):
        options = _by_position(conditions, lengths) if conditions else {}
        return _joined([] if options else seen, total, dtype.lowest), options
    if len(steps) > 1 and any(each.low not in (-math.inf, dtype.lowest) for each in conditions):
        raise _NotSameError("several masks hide keys apart from each other", f"one condition, a & b, in {_OP}")
    return _in_order(steps, batch, dtype), {}


def _in_order(steps: Sequence[tuple[_Mask, _Condition | None]], batch: Shape, dtype: DType) -> Tensor:
    """The result of the steps of masking on scores of 0, if a single step that hides a key does not exclude it."""
    joint, zero, hidden = None, Tensor(np.zeros((), dtype.numpy)), next_to_lowest(dtype)
    for mask, condition in steps:
        if condition is None:
            term = raised(_fitted(mask.term, mask.leading, batch))
            term = where(term == dtype.lowest, hidden, term) if may_exclude(term) else term
        else:
            chosen = zero if mask.low is None or joint is None else joint
            seen = _fitted(condition.seen, mask.leading, batch)
            term = where(seen, chosen, hidden if condition.low > -math.inf else condition.low)
        joint = term if joint is None or mask.low is not None else joint + term
    assert joint is not None
    return joint


def _condition(mask: _Mask, lengths: Shape, dtype: DType) -> _Condition | None:
    """A step of masking as a condition; None for numbers that are added."""
    if mask.low is not None:
        if mask.low > max(_LOW, dtype.lowest):
            raise _NotSameError(f"scores of hidden keys are set to {mask.low:g}, which is a score like others", _OP)
        return _Condition(mask, mask.term, visible(mask.term.to_value(), lengths), mask.low)
    value, lowest = mask.term.to_value(), dtype.lowest / 2
    if (node := made_by(value, where)) is not None:
        seen = Tensor.from_value(operand(node))
        first, second = (_everywhere(operand(node, place)) for place in (1, 2))
        if first is not None and second is not None and max(first, second) == 0 and min(first, second) <= lowest:
            seen = seen if first == 0 else opposite(seen)
            return _Condition(mask, seen, visible(seen.to_value(), lengths), min(first, second))
    band = as_band(value, lengths)
    if band is not None and max(band[2:]) == 0 and min(band[2:]) <= lowest:
        seen = mask.term == 0
        return _Condition(mask, seen, visible(seen.to_value(), lengths), float(min(band[2:])))
    return None


def _every_query_sees(conditions: Sequence[_Condition], lengths: tuple[Size, Size]) -> bool:
    """Whether conditions together certainly leave each query a key: the first one, or its own."""
    if len(conditions) == 1 and isinstance(table := conditions[0].seen.to_value(), Constant):
        return bool(table.array.any(-1).all())
    if any(each.interval is None for each in conditions):
        return False
    low, high = _meet(conditions)
    return (low == -math.inf and high >= 0) or (same(*lengths) and low <= 0 <= high)


def _meet(conditions: Sequence[_Condition]) -> Interval:
    return reduce(Interval.meet, (each.interval for each in conditions if each.interval is not None), EVERYWHERE)


def _by_position(conditions: Sequence[_Condition], lengths: tuple[Size, Size]) -> dict[str, Any]:
    """Conditions by position as options of attention, if all are and there are as many queries as keys."""
    interval = _meet(conditions)
    known = same(*lengths) and all(each.interval is not None for each in conditions)
    return position_options(interval) if known and interval.low <= 0 <= interval.high else {}


def _joined(seen: Sequence[Tensor], total: Tensor | None, hidden: float) -> Tensor | None:
    """Conditions and numbers as one mask: booleans if there are no numbers."""
    if not seen or total is None:
        return reduce(logical_and, seen) if seen else total
    return where(reduce(logical_and, seen), total, hidden)


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two conditions are one value, or the opposite of one."""
    first, second = (made_by(x.to_value(), logical_not) for x in (one, other))
    if first is not None and second is not None:
        return operand(first) is operand(second)
    return one.to_value() is other.to_value()
