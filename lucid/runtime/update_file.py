"""A training step as two models: one for the loss and the gradients, one for the update, which may write in place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from onnx import ModelProto, NodeProto

from lucid.runtime.changed_models import Model, copied
from lucid.runtime.subgraphs import nodes_inside

_VIEWS = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Ops whose results may share the memory of their inputs."""
_ELEMENTWISE = ("Identity", "Add", "Sub", "Mul", "Div", "Where", "Sum")
"""Ops that may write over an input, of the shape of the output."""


def in_two(model: Model, results: Collection[str]) -> tuple[ModelProto, ModelProto, dict[str, str]] | None:
    """A copy that computes these outputs and passes values on, and one that computes all other outputs from them.

    Returns:
        Both, and the config of their sessions; None if the model lacks an output.

    Raises:
        ModelError, OSError: as `Session`, for a file.
    """
    whole, config = copied(model)
    outputs = [value.name for value in whole.graph.output]
    if not set(results) <= set(outputs):
        return None
    needed, first, second = set(results), list[NodeProto](), list[NodeProto]()
    for node in reversed(whole.graph.node):
        if needed.isdisjoint(node.output):
            second.append(node)
        else:
            first.append(node)
            needed.update(_reads(node))
    first, second = first[::-1], second[::-1]
    computed = {name for node in first for name in node.output}
    read_first, read = ({name for node in nodes for name in _reads(node)} for nodes in (first, second))
    passed = [name for node in first for name in node.output if name in read]
    types = {value.name: value for value in (*whole.graph.value_info, *whole.graph.output)}
    inputs = [value.name for value in whole.graph.input]
    own = [name for name in inputs if name in read]
    others = [name for name in inputs if name not in read or name in read_first]
    types |= {value.name: value for value in whole.graph.input}

    def part(nodes: list[NodeProto], used: set[str], takes: Iterable[str], gives: Iterable[str]) -> ModelProto:
        part = ModelProto()
        part.CopyFrom(whole)
        kept = [tensor for tensor in whole.graph.initializer if tensor.name in used]
        for field in ("node", "input", "output", "initializer", "value_info"):
            part.graph.ClearField(field)
        part.graph.node.extend(nodes)
        part.graph.initializer.extend(kept)
        part.graph.input.extend(types[name] for name in takes)
        part.graph.output.extend(types[name] for name in gives)
        return part

    gives = [name for name in outputs if name in computed]
    return (
        part(first, read_first, others, dict.fromkeys([*gives, *passed])),
        part(second, read, [*own, *passed], [name for name in outputs if name not in computed]),
        config,
    )


def overwritten(model: ModelProto, new: Mapping[str, str]) -> set[str]:
    """Which inputs may be overwritten by an output of their shape, each given by the name of its input.

    Everything that reads such an input must come before the node that writes the output, in any order that a runtime
    may take; that node may read it too, if it works element by element.
    """
    nodes = list(model.graph.node)
    makers = {name: node for node in nodes for name in node.output}
    reads = {id(node): list(_reads(node)) for node in nodes}
    readers = dict[str, list[NodeProto]]()
    for node in nodes:
        for name in reads[id(node)]:
            readers.setdefault(name, []).append(node)

    def fits(name: str, output: str) -> bool:
        last = makers.get(output)
        if last is None:
            return False
        before, waiting = {id(last)}, [last]
        while waiting:
            for value in reads[id(waiting.pop())]:
                if (node := makers.get(value)) is not None and id(node) not in before:
                    before.add(id(node))
                    waiting.append(node)
        own = [name]
        for value in own:
            for node in readers.get(value, ()):
                if id(node) not in before or (node is last and node.op_type not in _ELEMENTWISE):
                    return False
                own += node.output if node.op_type in _VIEWS and node is not last else ()
        return True

    return {name for name, output in new.items() if fits(name, output)}


def _reads(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, also within its branches and bodies."""
    return (name for inner in nodes_inside([node]) for name in inner.input if name)
