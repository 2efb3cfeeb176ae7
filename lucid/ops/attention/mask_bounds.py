"""Bounds of the numbers in a floating mask, by which it is known to exclude no key."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from lucid.core.graph.types import Array, DType
from lucid.core.graph.values import Constant, Result, Value
from lucid.core.process.numpy_errstate import without_warnings
from lucid.ops.creation import full_op
from lucid.ops.elementwise import add, cast, maximum, mul, neg, sub, where
from lucid.ops.indexing import slice_op, take_op
from lucid.ops.shaping import expand_op, permute_op, reshape_op, squeeze_op, unsqueeze_op
from lucid.ops.tensor.tensor import Tensor

_MOVES = (expand_op, permute_op, reshape_op, squeeze_op, unsqueeze_op, slice_op, take_op)
_BY_ELEMENTS = (add, sub, mul, neg, maximum)
_UNKNOWN = -math.inf, math.inf
Bounds: TypeAlias = tuple[float, float]


def may_exclude(mask: Tensor, least: float | None = None) -> bool:
    """Whether a traced floating mask may exclude keys: whether it may hold a number not above `least`, the lowest one
    of its type if None.
    """
    least = mask.dtype.lowest if least is None else least
    return not (mask.is_traced and _bounds(mask.to_value(), {})[0] > least)


def next_to_lowest(dtype: DType) -> float:
    """The least number of a mask that hides a key, where others are seen, and does not exclude it."""
    return float(np.nextafter(dtype.numpy.type(dtype.lowest), dtype.numpy.type(0)))


def raised(mask: Tensor) -> Tensor:
    """A mask that adds the next number where it would add the lowest one, a constant of its graph: that hides a key as
    well, but does not exclude it.
    """
    return _raised(mask.to_value(), {})


def _bounds(value: Value, known: dict[int, Bounds]) -> Bounds:
    """The least and the largest number that a value may hold; `known` are those found before."""
    if id(value) not in known:
        known[id(value)] = _found(value, known)
    return known[id(value)]


def _found(value: Value, known: dict[int, Bounds]) -> Bounds:
    dtype = value.type.dtype
    if dtype.kind == "bool":
        return 0.0, 1.0
    if isinstance(value, Constant):
        return _ends(value.array)
    node = value.node if isinstance(value, Result) and dtype.kind == "float" else None
    if node is None or node.op not in (full_op, where, cast, *_MOVES, *_BY_ELEMENTS):
        return _UNKNOWN
    if node.op is full_op:
        return (float(node.attributes["value"]),) * 2
    operands = [(each.type.dtype, _bounds(each, known)) for each in node.inputs if each is not None]
    if node.op in _MOVES:
        return operands[0][1]
    if node.op is where:
        return _ends(np.array([bounds for _, bounds in operands[1:]]))
    if any(kind.kind == "int" for kind, _ in operands):
        return _UNKNOWN
    corners = np.meshgrid(*(np.array(bounds, kind.numpy) for kind, bounds in operands))
    return _ends(without_warnings(node.op.evaluate, corners, node.attributes)[0])


def _ends(array: Array) -> Bounds:
    return (float(array.min()), float(array.max())) if array.size and not np.isnan(array).any() else _UNKNOWN


def _raised(value: Value, known: dict[int, Bounds]) -> Tensor:
    x, lowest = Tensor.from_value(value), value.type.dtype.lowest if value.type.dtype.kind == "float" else None
    if lowest is None or _bounds(value, known)[0] > lowest:
        return x
    if isinstance(value, Constant):
        is_lowest = value.array == lowest
        return Tensor(np.where(is_lowest, next_to_lowest(x.dtype), value.array)) if is_lowest.any() else x
    if isinstance(value, Result) and value.node.op in (where, cast, *_MOVES, *_BY_ELEMENTS):
        node = value.node
        before = [each for each in node.inputs if each is not None]
        after = [_raised(each, known) for each in before]
        if any(new.to_value() is not old for new, old in zip(after, before, strict=True)):
            return node.op.apply(after, node.attributes)  # type: ignore[attr-defined,no-any-return]
    return x
