"""Where a model computes in float64 because something in it happens to be float64.

NumPy makes arrays of float64 unless it is told otherwise, so one table of constants makes everything after it twice as
wide. Python's and NumPy's numbers do not: beside a tensor they take its type.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucid.graph import Graph
from lucid.types import DType, float64
from lucid.values import Constant, Input, Node, Result, Value


@dataclass(frozen=True)
class Promotion:
    """A node that computes in float64 for the sake of one of its operands, and where that begins."""

    op: str
    path: str
    narrow: DType
    because: str
    instead: str


def promotions(graph: Graph) -> list[Promotion]:
    """The nodes where a narrower floating-point value meets a float64 one, but those that only follow from another."""
    found: list[Promotion] = []
    follows: set[int] = set()
    for node in graph.nodes():
        given = [value for value in node.inputs if value is not None]
        known = [value for value in given if id(value) in follows]
        narrow = next((dtype for dtype in map(_narrow, given) if dtype is not None), None)
        wide = next((v for v in given if v.type.dtype == float64 and _narrow(v) is None), None)
        if narrow is not None and wide is not None and not known:
            found.append(Promotion(node.op.name, node.scope, narrow, *_told(graph, wide)))
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


def _told(graph: Graph, wide: Value) -> tuple[str, str]:
    if isinstance(wide, Input):
        return f"the input {wide.name} is {wide.type}", f"give {wide.name} a float32 spec, or cast it first"
    if isinstance(wide, Constant):
        name = graph.name_of(wide)
        if name is not None:
            return f"{name} is {wide.type}", f"{name}.astype(lucid.float32)"
        return f"a constant is {wide.type}", "make it float32: .astype(np.float32), or dtype=lucid.float32"
    return f"the result of {_place(wide.node)} is {wide.type}", "cast that: .astype(lucid.float32)"


def _place(node: Node) -> str:
    return f"{node.scope}/{node.op.name}" if node.scope else node.op.name
