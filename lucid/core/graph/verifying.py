"""Checks a graph: the recorded types of its nodes must follow from their inputs."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.core.graph.order import in_order
from lucid.core.graph.types import same_shape
from lucid.core.graph.values import Body, Input, Value


def verify(inputs: Sequence[Input], outputs: Sequence[Value]) -> None:
    """Check that the nodes that the outputs reach read only these inputs, and have the types that follow from them.

    Raises:
        ValueError: for a wrong node, which the message names.
    """
    own = {id(value) for value in inputs}
    for node in in_order(outputs):
        for value in node.inputs:
            if isinstance(value, Input) and id(value) not in own:
                raise ValueError(f"graph: {node.op.name} reads {value.name}, which is not an input of this graph")
        for attribute in node.attributes.values():
            if isinstance(attribute, Body):
                verify(attribute.inputs, attribute.outputs)
        types = node.op.infer([None if value is None else value.type for value in node.inputs], node.attributes)
        for got, expected in zip(node.types, types, strict=True):
            if got.dtype != expected.dtype or not same_shape(got.shape, expected.shape):
                raise ValueError(f"graph: {node.op.name} is recorded as {got}, but its inputs give {expected}")
