"""The values of a model: the node that makes each, its element type, and which are constants."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from lucid.core.graph.types import Array
from lucid.inspection.shapes import Known, inferred, shapes_of
from lucid.runtime.subgraphs import graphs_inside, nodes_inside

STANDARD = ("", "ai.onnx", "ai.onnx.ml")
"""The domains of standard operators."""
ORT_OWN = ("com.microsoft", "com.microsoft.nchwc", "com.microsoft.experimental", "com.ms.internal.nhwc")
"""The domains of onnxruntime's own operators."""

_ALIKE = ("Unsqueeze", "Squeeze", "Reshape", "Cast", "Identity", "Expand")
_SMALL = 64  # elements of a constant that is read


@dataclass(frozen=True)
class Values:
    """The values of a model by name, also those inside branches and loops."""

    nodes: tuple[NodeProto, ...]  # all nodes
    makers: Mapping[str, NodeProto]  # the node that computes each value, apart from constants
    users: Mapping[str, Collection[str]]  # the ops that read each value
    kinds: Mapping[str, int]  # ONNX's numbers of the element types, as far as they are known
    constants: Mapping[str, TensorProto]  # weights and constants
    open_sizes: bool  # whether an input has a symbolic size
    # shapes, others: the shapes for some values of the symbolic sizes, and for others.
    shapes: Mapping[str, Known]
    others: Mapping[str, Known]

    def is_open(self, name: str, axis: int) -> bool:
        """Whether an axis of a value differs from run to run, or is not known."""
        one, other = (shapes.get(name, ()) for shapes in (self.shapes, self.others))
        known = len(one) == len(other) and -len(one) <= axis < len(one)
        return self.open_sizes and not (known and one[axis] is not None and one[axis] == other[axis])

    def kind(self, name: str) -> int:
        """The element type of a value; 0 if it is not known."""
        return self.kinds.get(name, 0)

    def constant(self, name: str) -> Array | None:
        """A small constant; None for large ones and for computed values."""
        tensor = self.constants.get(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL or math.prod(tensor.dims) > _SMALL:
            return None
        try:
            array: Array = numpy_helper.to_array(tensor)
        except ValueError:  # its data does not match its shape
            return None
        return array

    def source(self, name: str) -> NodeProto | None:
        """The node that computes a value, before any that only change its axes or type."""
        for _ in range(len(_ALIKE)):
            node = self.makers.get(name)
            if node is None or node.op_type not in _ALIKE or not node.input:
                return node
            name = node.input[0]
        return None


def values_of(model: ModelProto, typed: ModelProto, sizes: Mapping[str, int]) -> Values:
    """The values of a model.

    Args:
        model: as it was read.
        typed: `inferred`, with these sizes.
        sizes: values of its symbolic sizes.
    """
    nodes = tuple(nodes_inside(model.graph.node))
    constants = {tensor.name: tensor for graph in graphs_inside(model.graph) for tensor in graph.initializer}
    for node in nodes:
        if node.op_type == "Constant" and node.output:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    constants[node.output[0]] = attribute.t
    users = defaultdict[str, set[str]](set)
    for node in nodes:
        for name in node.input:
            users[name].add(node.op_type)
    input_sizes = (size for value in model.graph.input for size in value.type.tensor_type.shape.dim)
    return Values(
        nodes,
        {output: node for node in nodes for output in node.output if output and node.op_type != "Constant"},
        dict(users),
        kinds_of(typed.graph) | {name: tensor.data_type for name, tensor in constants.items()},
        constants,
        any(not size.HasField("dim_value") for size in input_sizes),
        shapes_of(typed),
        shapes_of(inferred(model, {name: 2 * value + 1 for name, value in sizes.items()})),
    )


def is_known(node: NodeProto) -> bool:
    """Whether a node's op is of ONNX or onnxruntime; one of another library may have the name of theirs."""
    return node.domain in STANDARD + ORT_OWN


def attributes_of(node: NodeProto) -> dict[str, int | list[int]]:
    """The attributes of a node that are whole numbers or lists of these."""
    integers: dict[str, int | list[int]] = {a.name: a.i for a in node.attribute if a.type == AttributeProto.INT}
    return integers | {a.name: list(a.ints) for a in node.attribute if a.type == AttributeProto.INTS}


def kinds_of(graph: GraphProto) -> dict[str, int]:
    """ONNX's numbers of the element types of values by name, also of those inside branches and loops."""
    values = (value for each in graphs_inside(graph) for value in (*each.input, *each.value_info, *each.output))
    return {value.name: value.type.tensor_type.elem_type for value in values}
