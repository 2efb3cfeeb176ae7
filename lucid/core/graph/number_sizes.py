"""Whole numbers of a graph that were computed from sizes alone, as sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable

from lucid.core.graph.types import int64
from lucid.core.graph.values import Constant, Node, Result, Value
from lucid.core.sizes.dims import Size, sym_max, sym_min

_ARITHMETIC: dict[str, Callable[..., Size]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "int_floor_div": operator.floordiv,
    "int_mod": operator.mod,
    "minimum": sym_min,
    "maximum": sym_max,
}
"""Arithmetic on sizes, by the op that computes it on tensors."""


def size_of_number(value: Value | None) -> Size | None:
    """The size that a number of int64 is; None for any other value."""
    return _size(value, {})


def _size(value: Value | None, known: dict[int, Size | None]) -> Size | None:
    """The same, each value once: a size that is computed from another one twice, as ``n + -n % 2``, may be so again."""
    if value is None or value.type.shape != () or value.type.dtype != int64:
        return None
    if isinstance(value, Constant):
        return int(value.array)
    if not isinstance(value, Result):
        return None
    if id(value) not in known:
        known[id(value)] = _size_of_result(value.node, known)
    return known[id(value)]


def _size_of_result(node: Node, known: dict[int, Size | None]) -> Size | None:
    if node.op.name == "size":
        size: Size = node.attributes["size"]
        return size
    compute = _ARITHMETIC.get(node.op.name)
    operands = [_size(operand, known) for operand in node.inputs] if compute else []
    return None if compute is None or None in operands else compute(*operands)
