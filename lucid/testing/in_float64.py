"""A graph computed in float64: the results of a float32 or half-precision model without its rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.loop_bodies import with_bodies
from lucid.core.graph.scope import new_node
from lucid.core.graph.types import Array, DType, TensorType, float64
from lucid.core.graph.values import Body, Constant, Input, Result, Value, in_order
from lucid.ops.elementwise import cast


class NarrowOpError(TypeError):
    """An op of a graph does not take float64."""


def in_float64(graph: Graph) -> Graph:
    """The same graph with every floating-point value in float64; casts between floating-point types do nothing in it.

    Constants are widened by nodes, so that a run holds in float64 only those that it needs at the time.

    Raises:
        NarrowOpError: for an op that does not take float64, such as one defined for float32 alone.
    """
    inputs, outputs = _in_float64(graph.inputs, graph.outputs)
    return Graph(inputs, dict(zip(graph.output_names, outputs, strict=True)))


def _in_float64(before: Sequence[Input], outputs: Sequence[Value]) -> tuple[list[Input], list[Value]]:
    inputs = {id(value): Input(value.name, _wide(value.type)) for value in before}
    values: dict[int, Value] = dict(inputs)

    def read(value: Value) -> Value:
        if isinstance(value, Constant) and id(value) not in values:
            values[id(value)] = _widened(value)
        return values[id(value)]

    for node in in_order(outputs):
        attributes = {name: _wide_attribute(value) for name, value in node.attributes.items()}
        try:
            computed = new_node(node.op, [None if value is None else read(value) for value in node.inputs], attributes)
        except (TypeError, ValueError) as error:
            raise NarrowOpError(f"{node.op.name} is not computed in float64: {error}") from None
        # An op may have a fixed result type, so its result may have to be widened.
        values.update((id(old), _widened(new)) for old, new in zip(node.results, computed.results, strict=True))
    return [inputs[id(value)] for value in before], [read(value) for value in outputs]


def _wide_attribute(value: Any) -> Any:
    if isinstance(value, Body):
        inputs, outputs = _in_float64(value.inputs, value.outputs)
        return Body(tuple(inputs), tuple(outputs))
    return float64 if isinstance(value, DType) and value.kind == "float" else value


def run_in_float64(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of a graph in float64, from inputs of the graph's types.

    Raises:
        NarrowOpError: as in `in_float64`.
    """
    wide = in_float64(graph)
    return wide.run([array.astype(value.type.dtype.numpy) for array, value in zip(arrays, wide.inputs, strict=True)])


def coarsest(graph: Graph) -> DType | None:
    """The least precise floating-point type among a graph's values; None if it has none."""
    types = {value.type.dtype for value in (*graph.inputs, *graph.outputs)}
    types |= {result.type.dtype for node in with_bodies(graph.nodes()) for result in node.results}
    return max((dtype for dtype in types if dtype.kind == "float"), key=lambda dtype: dtype.epsilon, default=None)


def _wide(kind: TensorType) -> TensorType:
    return TensorType(float64, kind.shape) if kind.dtype.kind == "float" else kind


def _widened(value: Constant | Result) -> Constant | Result:
    if value.type == _wide(value.type):
        return value
    if isinstance(value, Constant) and not value.array.ndim:
        return Constant(value.array.astype(np.float64), _wide(value.type))
    return new_node(cast, [value], {"dtype": float64}).results[0]
