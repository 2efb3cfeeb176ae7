"""Operands as attention takes them best: masks by their meaning, repeated heads as groups, heads side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np

from lucid.core.graph.types import same_shape
from lucid.core.graph.values import Attributes, Constant, Node, Value, operand
from lucid.core.sizes.dims import product, same
from lucid.ops.attention.op import attention
from lucid.ops.elementwise import logical_and
from lucid.ops.indexing import take_op
from lucid.ops.rotary import rotary_embedding
from lucid.ops.shaping import expand_op, permute_op, reshape, reshape_op, unsqueeze_op
from lucid.ops.tensor.tensor import Tensor
from lucid.tracing.position_masks import EVERYWHERE, position_options, visible
from lucid.tracing.rewriting import Uses, made_by

_PLAIN = {"query", "key", "value", "mask", "key_mask", "sinks"}


def simpler_operands(node: Node, uses: Uses) -> Tensor | None:
    """The rule for attention of repeated heads, or with a mask that is causality or one of keys; then for the reshape
    that joins its heads.
    """
    if node.op is reshape_op:
        return _packed(node, uses)
    if node.op is not attention or not _is_plain(node):
        return None
    named = _operands(node)
    changed = _groups(named) | _masks(named, node.attributes)
    return _attention(named, node.attributes, **changed) if changed else None


def _attention(named: Mapping[str, Tensor], attributes: Attributes, **changed: Any) -> Tensor:
    output: Tensor = attention(**{**named, **attributes, **changed})
    return output


def _operands(node: Node) -> dict[str, Tensor]:
    pairs = zip(attention.arguments, node.inputs, strict=False)
    return {name: Tensor.from_value(value) for name, value in pairs if value is not None}


def _is_plain(node: Node) -> bool:
    """Whether heads are apart, and nothing but the output is asked for."""
    return node.attributes.get("heads") is None and len(node.results) == 1 and _operands(node).keys() <= _PLAIN


# Heads ----------------------------------------------------------------------------------------------------------------


def _groups(named: dict[str, Tensor]) -> dict[str, Any]:
    """Keys and values before each of their heads was repeated, if both were."""
    key, value = (_before_repeats(named[name].to_value()) for name in ("key", "value"))
    if key is None or value is None or not same(key.type.shape[1], value.type.shape[1]):
        return {}
    return {"key": Tensor.from_value(key), "value": Tensor.from_value(value)}


def _before_repeats(value: Value) -> Value | None:
    """Heads (N, H_kv, S, d) that are each repeated: reshape(expand(unsqueeze(x, 2))), or taken by their numbers."""
    if (node := made_by(value, take_op)) is not None and node.attributes["axis"] == 1:
        indices, heads = operand(node, 1), operand(node).type.shape[1]
        if isinstance(indices, Constant) and isinstance(heads, int) and indices.array.ndim == 1:
            times = len(indices.array) // max(heads, 1)
            if np.array_equal(indices.array, np.repeat(np.arange(heads), times)):
                return operand(node)
        return None
    joined = made_by(value, reshape_op)
    wide = joined and made_by(operand(joined), expand_op)
    lifted = wide and made_by(operand(wide), unsqueeze_op, reshape_op)
    if joined is None or wide is None or lifted is None:
        return None
    source, (n, heads, *_) = operand(lifted), (*value.type.shape[:1], *operand(lifted).type.shape[1:2])
    s, d = value.type.shape[2:]
    alike = same_shape(source.type.shape, (n, heads, s, d)) and same_shape(lifted.types[0].shape, (n, heads, 1, s, d))
    repeated = wide.types[0].shape
    return source if alike and same_shape(repeated, (n, heads, *repeated[2:3], s, d)) else None


def _packed(node: Node, uses: Uses) -> Tensor | None:
    """Attention of heads that are only split for it, and joined after it: of heads side by side."""
    before = made_by(operand(node), reshape_op)
    if before is not None and (source := operand(before)).type == node.types[0] and made_by(source, attention):
        return Tensor.from_value(source)
    back = made_by(operand(node), permute_op)
    if back is None or not _exchanges_heads(back):
        return None
    joined = _joined(operand(back))
    apart = made_by(joined, attention)
    if apart is None or not _is_plain(apart):
        return None
    if any(uses[id(value)] != 1 for value in (*back.results, operand(back), joined)):
        return None
    *batch, length, heads, width = back.types[0].shape
    named = _operands(apart)
    counts = named["query"].shape[1], named["key"].shape[1]
    side = {name: x for name in ("query", "key", "value") if (x := _side_by_side(named[name].to_value())) is not None}
    known = len(side) == 3 and all(isinstance(size, int) for size in (*counts, heads, width))
    if not known or not same_shape(node.types[0].shape, (*batch, length, product((heads, width)))):
        return None
    together = _attention(named, apart.attributes, **side, heads=counts[0], kv_heads=counts[1])
    return reshape(together, node.types[0].shape)


def _exchanges_heads(node: Node) -> bool:
    """Whether a permutation is that of positions and heads, (..., H, L, d)."""
    axes, last = node.attributes["axes"], len(node.attributes["axes"]) - 1
    return last >= 3 and axes == (*range(last - 2), last - 1, last - 2, last)


def _joined(value: Value) -> Value:
    """A value before a reshape that joined or split the axes before (H, L, d), as those of windows."""
    node = made_by(value, reshape_op)
    alike = node is not None and same_shape(operand(node).type.shape[-3:], value.type.shape[-3:])
    return operand(node) if node is not None and alike else value


def _side_by_side(value: Value) -> Tensor | None:
    """The tensor (N, L, H * d) from which (N, H, L, d) was split."""
    if (turned := made_by(value, rotary_embedding)) is not None and turned.attributes.get("heads") is None:
        inner = _side_by_side(operand(turned))
        rest: list[Any] = [None if each is None else Tensor.from_value(each) for each in turned.inputs[1:]]
        attributes: dict[str, Any] = {**turned.attributes, "heads": value.type.shape[1]}
        return None if inner is None else rotary_embedding(inner, *rest, **attributes)
    swapped = made_by(_joined(value), permute_op)
    split = swapped and made_by(operand(swapped), reshape_op)
    if swapped is None or split is None or not _exchanges_heads(swapped):
        return None
    *batch, length, heads, width = split.types[0].shape
    side = product((heads, width))
    fits = same_shape(operand(split).type.shape, (*batch, length, side))
    return reshape(Tensor.from_value(operand(split)), (value.type.shape[0], length, side)) if fits else None


# Masks ----------------------------------------------------------------------------------------------------------------


def _masks(named: Mapping[str, Tensor], attributes: Attributes) -> dict[str, Any]:
    """A boolean mask as options by position, a mask of keys (N, S), and the rest of it."""
    mask, query, key = named.get("mask"), named["query"], named["key"]
    if mask is None or mask.dtype.kind != "bool":
        return {}
    interval, keys, rest = EVERYWHERE, list[Tensor](), list[Tensor]()
    hides = any(attributes.get(name) not in (None, False) for name in ("is_causal", "window", "window_after"))
    by_position = same(query.shape[2], key.shape[2]) and not hides
    conditions = list(_conditions(mask.to_value()))
    for condition in conditions:
        own = visible(condition.to_value(), (query.shape[2], key.shape[2]))
        together = interval.meet(own) if by_position and own is not None else None
        if together is not None and together.low <= 0 <= together.high:
            interval = together
        elif "key_mask" not in named and (of_keys := _key_mask(condition, query, key)) is not None:
            keys.append(of_keys)
        else:
            rest.append(condition)
    if len(rest) == len(conditions):
        return {}
    joined = [reduce(logical_and, each) if each else None for each in (rest, keys)]
    return {**position_options(interval), "mask": joined[0], **({"key_mask": joined[1]} if keys else {})}


def _key_mask(condition: Tensor, query: Tensor, key: Tensor) -> Tensor | None:
    """The mask of keys (N, S) that a condition (N, 1, 1, S) was made from."""
    node = made_by(condition.to_value(), unsqueeze_op, reshape_op)
    n, s = query.shape[0], key.shape[2]
    fits = (
        node is not None and same_shape(condition.shape, (n, 1, 1, s)) and same_shape(operand(node).type.shape, (n, s))
    )
    return Tensor.from_value(operand(node)) if node is not None and fits else None


def _conditions(value: Value) -> Iterator[Tensor]:
    """The conditions that hold together, without expansions, which attention does by itself."""
    if (node := made_by(value, logical_and)) is not None:
        yield from _conditions(operand(node))
        yield from _conditions(operand(node, 1))
    elif (node := made_by(value, expand_op)) is not None and operand(node).type.rank >= 2:
        yield from _conditions(operand(node))
    else:
        yield Tensor.from_value(value)
