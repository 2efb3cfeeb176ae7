"""Graphs whose products round their inputs to 8 bits, cut into parts that can be compared.

Two implementations of one model differ in the last digits of what they round. Where such a number lies between two
codes, one of them takes the one and the other the next, which is 1/255 of the range: a difference that tolerances for
float32 do not cover, and that all later layers see. Given the same inputs, the products themselves have the same codes.
"""

from __future__ import annotations

from collections.abc import Mapping

from lucid.core.graph.graph import Graph
from lucid.core.graph.values import Constant, Input, Node, Result, Value
from lucid.ops.int8 import ROUNDING


def rounded_values(graph: Graph) -> list[Result]:
    """The results of nodes that products of a graph round, each once."""
    found = {id(x): x for node in graph.nodes() if node.op in ROUNDING and isinstance(x := node.inputs[0], Result)}
    return list(found.values())


def cut(graph: Graph, values: Mapping[str, Result]) -> Graph:
    """The graph in which products round new inputs instead of these values, which are outputs too, by their names.

    The inputs and outputs of the graph come first.
    """
    given = {id(x): Input(f"given {name}", x.type) for name, x in values.items()}
    made: dict[int, Value] = {}

    def read(value: Value | None, is_rounded: bool) -> Value | None:
        if value is None or isinstance(value, (Constant, Input)):
            return value
        return given[id(value)] if is_rounded and id(value) in given else made[id(value)]

    for node in graph.nodes():
        inputs = tuple(read(x, index == 0 and node.op in ROUNDING) for index, x in enumerate(node.inputs))
        new = Node(node.op, inputs, node.attributes, node.types, node.scope)
        made.update((id(before), after) for before, after in zip(node.results, new.results, strict=True))
    outputs = {name: made.get(id(x), x) for name, x in zip(graph.output_names, graph.outputs, strict=True)}
    outputs |= {f"input of a product: {name}": made[id(x)] for name, x in values.items()}
    return graph.with_outputs(outputs, [*graph.inputs, *given.values()])
