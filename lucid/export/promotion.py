"""Where a model computes in float64 because one of its values happens to be float64.

NumPy's arrays are float64 by default, so one table of constants makes everything after it twice as wide. Python's and
NumPy's scalars do not: they take the type of the tensor that they are combined with.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import DType, float64
from lucid.core.graph.values import Constant, Input, Node, Result, Value


@dataclass(frozen=True)
class Promotion:
    """A node that computes in float64 because of one of its operands, and where that operand comes from."""

    op: str
    path: str
    narrow: DType
    because: str
    instead: str


def promotions(graph: Graph) -> list[Promotion]:
    """The first nodes at which a narrower floating-point value meets a float64 one; later nodes follow from them."""
    found: list[Promotion] = []
    follows: set[int] = set()
    for node in graph.nodes():
        given = [value for value in node.inputs if value is not None]
        known = [value for value in given if id(value) in follows]
        narrow = next((dtype for dtype in map(_narrow, given) if dtype is not None), None)
        wide = next((v for v in given if v.type.dtype == float64 and _narrow(v) is None), None)
        if narrow is not None and wide is not None and not known:
            found.append(Promotion(node.op.name, node.scope, narrow, *_reason(graph, wide)))
            known = [wide]
        if known:
            follows.update(map(id, node.results))
    return found


def _narrow(value: Value) -> DType | None:
    """The type of a floating-point value before it was cast to float64."""
    if not isinstance(value, Result) or value.node.op.name != "cast" or value.type.dtype != float64:
        return None
    (before,) = value.node.inputs
    dtype = None if before is None else before.type.dtype
    return dtype if dtype is not None and dtype.kind == "float" else None


def _reason(graph: Graph, wide: Value) -> tuple[str, str]:
    """Why a node computes in float64, and what to do instead."""
    if isinstance(wide, Input):
        return f"the input {wide.name} is {wide.type}", f"give {wide.name} a float32 spec, or cast it first"
    if isinstance(wide, Constant):
        name = graph.name_of(wide)
        if name is not None:
            return f"{name} is {wide.type}", f"{name}.astype(lucid.float32)"
        return f"a constant is {wide.type}", "make it float32: .astype(np.float32), or dtype=lucid.float32"
    return f"the result of {_place(wide.node)} is {wide.type}", "cast it: .astype(lucid.float32)"


def _place(node: Node) -> str:
    return f"{node.scope}/{node.op.name}" if node.scope else node.op.name
