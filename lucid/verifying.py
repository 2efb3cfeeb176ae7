"""A graph checked: the types that its nodes record are those that their inputs give."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.order import in_order
from lucid.types import same_shape
from lucid.values import Input, Value


def verify(inputs: Sequence[Input], outputs: Sequence[Value]) -> None:
    """Check that the nodes that the outputs reach read these inputs alone, and record the types that follow.

    Raises:
        ValueError: naming the node that is wrong.
    """
    own = {id(value) for value in inputs}
    for node in in_order(outputs):
        for value in node.inputs:
            if isinstance(value, Input) and id(value) not in own:
                raise ValueError(f"graph: {node.op.name} reads {value.name}, which is no input of this graph")
        types = node.op.infer([None if value is None else value.type for value in node.inputs], node.attributes)
        for got, expected in zip(node.types, types, strict=True):
            if got.dtype != expected.dtype or not same_shape(got.shape, expected.shape):
                raise ValueError(f"graph: {node.op.name} is recorded as {got}, its inputs give {expected}")
