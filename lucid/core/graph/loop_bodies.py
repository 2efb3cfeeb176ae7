"""Bodies of loops: built from values, rebuilt with other inputs, and with numbers in place of symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lucid.core.graph.types import TensorType
from lucid.core.graph.values import Body, Constant, Input, Node, Value, in_order
from lucid.core.sizes.dims import Dim, bind


def rebuild_nodes(
    nodes: Iterable[Node], outputs: Sequence[Value], read: Callable[[Value], Value], remake: Callable[[Node], Node]
) -> tuple[Value, ...]:
    """Rebuild nodes with `remake` and return the new outputs; `read` gives the values from outside the nodes."""
    rebuilt: dict[int, Value] = {}

    def now(value: Value) -> Value:
        return rebuilt[id(value)] if id(value) in rebuilt else read(value)

    for node in nodes:
        new = remake(replace(node, inputs=tuple(None if value is None else now(value) for value in node.inputs)))
        rebuilt.update((id(before), after) for before, after in zip(node.results, new.results, strict=True))
    return tuple(map(now, outputs))


def with_inputs(body: Body, values: Mapping[int, Value]) -> tuple[Value, ...]:
    """The outputs of a body with its inputs replaced; `values` maps the identity of an input to the new value."""
    nodes = in_order(body.outputs)
    return rebuild_nodes(nodes, body.outputs, lambda value: values.get(id(value), value), lambda node: node)


def bound(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with its symbolic sizes replaced by numbers, also inside a body."""
    if not isinstance(value, Body):
        return bind(value, sizes)

    def bound_type(of: TensorType) -> TensorType:
        return of.with_shape(bind(of.shape, sizes))

    def remake(node: Node) -> Node:
        attributes = {name: bound(attribute, sizes) for name, attribute in node.attributes.items()}
        return Node(node.op, node.inputs, attributes, tuple(map(bound_type, node.types)), node.scope)

    inputs = {id(old): Input(old.name, bound_type(old.type)) for old in value.inputs}
    outputs = rebuild_nodes(in_order(value.outputs), value.outputs, lambda old: inputs.get(id(old), old), remake)
    return Body(tuple(inputs.values()), outputs)


_NUMBERS = frozenset((int, float, bool))


def has_symbolic_size(value: Any) -> bool:
    """Whether an attribute holds a symbolic size."""
    if isinstance(value, tuple):
        return not _NUMBERS.issuperset(map(type, value)) and any(map(has_symbolic_size, value))
    if not isinstance(value, Body):
        return isinstance(value, Dim)
    shapes = [operand.type.shape for operand in value.inputs]
    nodes = in_order(value.outputs)
    return has_symbolic_size((*shapes, *(attribute for node in nodes for attribute in node.attributes.values())))


def with_bodies(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes, each followed by the nodes of its bodies."""
    for node in nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, Body):
                yield from with_bodies(in_order(value.outputs))


def closed(
    inputs: Sequence[Input],
    outputs: Sequence[Value],
    is_inside: Callable[[Constant], bool],
    name: Callable[[Value], str],
) -> tuple[Body, list[Value]]:
    """A body that computes `outputs` from `inputs`, and the outer values that it also needs.

    The body takes the outer values as further inputs, named by `name`. Values that do not depend on `inputs` are outer
    values, so they are computed once, before the loop. Constants are outer values unless `is_inside`.
    """
    dependent = set(map(id, inputs))
    for node in in_order(outputs):
        if any(id(value) in dependent for value in node.inputs):
            dependent.update(map(id, node.results))
    outer: dict[int, tuple[Value, Input]] = {}

    def read(value: Value) -> Value:
        if id(value) in dependent or (isinstance(value, Constant) and is_inside(value)):
            return value
        return outer.setdefault(_identity(value), (value, Input(name(value), value.type)))[1]

    nodes = in_order(outputs, lambda value: id(value) not in dependent)
    results = rebuild_nodes(nodes, outputs, read, lambda node: node)
    return Body((*inputs, *(operand for _, operand in outer.values())), results), [value for value, _ in outer.values()]


def _identity(value: Value) -> int:
    """Constants of one array share an input."""
    return id(value.array) if isinstance(value, Constant) else id(value)
