"""Whole numbers of a graph that were computed from sizes alone, as sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable

from lucid.core.graph.types import int64
from lucid.core.graph.values import Constant, Result, Value
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
    if value is None or value.type.shape != () or value.type.dtype != int64:
        return None
    if isinstance(value, Constant):
        return int(value.array)
    if not isinstance(value, Result):
        return None
    node = value.node
    if node.op.name == "size":
        size: Size = node.attributes["size"]
        return size
    compute = _ARITHMETIC.get(node.op.name)
    operands = [size_of_number(operand) for operand in node.inputs] if compute else []
    return None if compute is None or None in operands else compute(*operands)
