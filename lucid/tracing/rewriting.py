"""Rewriting of traced graphs: nodes replaced by rules, and the parts that rules look for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.scope import Scope, entered
from lucid.core.graph.types import same_shape
from lucid.core.graph.values import Attributes, Body, Constant, Node, Result, Value, operand
from lucid.core.sizes.dims import Shape, same
from lucid.ops.elementwise import logical_not
from lucid.ops.op import Op
from lucid.ops.shaping import permute, permute_op, reshape, reshape_op, squeeze_op, unsqueeze, unsqueeze_op
from lucid.ops.tensor.tensor import Tensor

Uses: TypeAlias = Mapping[int, int]
Rule: TypeAlias = Callable[[Node, Uses], Tensor | None]
"""What stands for the first result of a node, or None. `Uses` counts the uses of each value by its identity."""


def rewritten(graph: Graph, rule: Rule) -> Graph:
    """A graph in which a rule has replaced nodes, one after another, also in the bodies of loops; the rule sees inputs
    that are already new.
    """
    nodes = graph.nodes()
    uses = Counter(id(value) for value in (*(value for node in nodes for value in node.inputs), *graph.outputs))
    new: dict[int, Value] = {}
    kept: list[Node] = []  # so that no identity is used twice
    for node in nodes:
        inputs = tuple(None if value is None else new.get(id(value), value) for value in node.inputs)
        current, attributes = node, _with_bodies(node.attributes, graph, rule)
        if attributes is not node.attributes or any(
            now is not before for now, before in zip(inputs, node.inputs, strict=True)
        ):
            current = Node(node.op, inputs, attributes, node.types, node.scope, node.place)
            kept.append(current)
            for before, now in zip(node.results, current.results, strict=True):
                new[id(before)], uses[id(now)] = now, uses[id(before)]
        with entered(Scope(node.scope, {}, graph.names)):
            replacement = rule(current, uses)
        if replacement is not None:
            value = replacement.to_value()
            if isinstance(value, Result) and value.node.place is None:
                value.node.place = node.place
            assert value.type.dtype == node.types[0].dtype and same_shape(value.type.shape, node.types[0].shape)
            new[id(node.results[0])], uses[id(value)] = value, uses[id(node.results[0])]
    if not new:
        return graph
    outputs = [new.get(id(value), value) for value in graph.outputs]
    return graph.with_outputs(dict(zip(graph.output_names, outputs, strict=True)))


def _with_bodies(attributes: Attributes, graph: Graph, rule: Rule) -> Attributes:
    """The attributes of a node, in which the bodies of loops are rewritten."""
    changed: dict[str, Body] = {}
    for name, body in attributes.items():
        if isinstance(body, Body):
            inside = Graph(body.inputs, {str(place): value for place, value in enumerate(body.outputs)}, graph.names)
            new = rewritten(inside, rule)
            if new is not inside:
                changed[name] = Body(body.inputs, new.outputs)
    return {**attributes, **changed} if changed else attributes


def made_by(value: Value | None, *ops: Op[..., Any]) -> Node | None:
    """The node of one of these ops whose first result a value is."""
    return value.node if isinstance(value, Result) and not value.index and value.node.op in ops else None


def again(node: Node, inputs: Sequence[Tensor]) -> Tensor:
    """The first result of a node with other inputs."""
    assert isinstance(node.op, Op)
    result: Tensor = node.op.apply(inputs, node.attributes)
    return result


def number(value: Value | None) -> float | None:
    """The number of a constant with one element."""
    return float(value.array.item()) if isinstance(value, Constant) and value.array.size == 1 else None


_SHAPED = (reshape_op, unsqueeze_op, squeeze_op)


def keeps_matrices(node: Node) -> bool:
    """Whether a change of shape leaves the last two axes as they are, and only joins or splits those before."""
    before, after = operand(node).type.shape, node.types[0].shape
    return len(before) >= 2 and len(after) >= 2 and same_shape(before[-2:], after[-2:])


def swapped(value: Value) -> Tensor:
    """A value with its last two axes exchanged: the tensor before a transposition, if there was one."""
    if (node := made_by(value, *_SHAPED)) is not None and keeps_matrices(node):
        inner = swapped(operand(node))
        return regrouped(inner, value.type.shape[:-2])
    rank = value.type.rank
    order = [*range(rank - 2), rank - 1, rank - 2]
    if (node := made_by(value, permute_op)) is not None:
        return permute(Tensor.from_value(operand(node)), [node.attributes["axes"][axis] for axis in order])
    return permute(Tensor.from_value(value), order)


def regrouped(x: Tensor, leading: Shape) -> Tensor:
    """Matrices (..., a, b) with other leading axes, taken from before a reshape that joined these."""
    shape = (*leading, *x.shape[-2:])
    if same_shape(x.shape, shape):
        return x
    node = made_by(x.to_value(), *_SHAPED)
    if node is not None and keeps_matrices(node):
        return regrouped(Tensor.from_value(operand(node)), leading)
    if same_shape([size for size in leading if not same(size, 1)], x.shape[:-2]):
        return unsqueeze(x, [axis for axis, size in enumerate(leading) if same(size, 1)])
    return reshape(x, shape)


def opposite(condition: Tensor) -> Tensor:
    """The negation of a condition."""
    node = made_by(condition.to_value(), logical_not)
    return logical_not(condition) if node is None else Tensor.from_value(operand(node))


def is_one(shape: Shape) -> bool:
    """Whether all sizes are certainly 1."""
    return all(same(size, 1) for size in shape)


def constant_everywhere(value: Value) -> np.generic | None:
    """The element that all places of a constant hold."""
    if not isinstance(value, Constant) or not value.array.size:
        return None
    first = value.array.flat[0]
    return first if value.array.size == 1 or bool((value.array == first).all()) else None
