"""The memory that a model demands when it is loaded: copies of its functions, and tensors computed from constants.

A file of a few hundred bytes can demand terabytes, which onnx and onnxruntime allocate when they load it. This module
counts what can be counted exactly from the file; for everything else a command has a budget (`lucid/cli/guard.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import AttributeProto, NodeProto, TensorProto, numpy_helper

MAX_NODES = 1 << 18  # after each call of a function is replaced by its body; as many as `skeleton.MAX_ENTRIES`
MAX_BYTES = 1 << 28  # of these nodes
MAX_DEPTH = 100  # of functions that call each other: protobuf's own limit of depth
MAX_MADE = 1 << 28  # elements of all tensors computed from constants together: 2 GiB of int64
_SCALARS = 64  # elements of a constant whose values are read: a shape or a bound


def demands(model: onnx.ModelProto) -> str:
    """What the model demands beyond the limits, as text; empty if it does not."""
    excess = _calls(model)
    if not excess and (made := made_of_constants(model)) > MAX_MADE:
        excess = f"{_about(made)} elements computed from constants, expected at most {MAX_MADE}"
    return excess


def nodes_inside(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """Nodes, each followed by those of its branches and bodies."""
    found: list[NodeProto] = []
    waiting = list(nodes)[::-1]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for attribute in node.attribute:
            graphs = ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)
            waiting += [inner for graph in graphs[::-1] for inner in graph.node[::-1]]
    return found


# ------------------------------------------------------------------------------------------------- functions


def _calls(model: onnx.ModelProto) -> str:
    """Count the nodes and bytes of the graph after each call is replaced by the function's body, without doing so."""
    if not model.functions:
        return ""
    bodies = {(f.domain, f.name, f.overload): f for f in model.functions}
    called = {key: [k for n in nodes_inside(f.node) if (k := _key(n)) in bodies] for key, f in bodies.items()}
    counts: dict[tuple[str, str, str], tuple[int, int, int]] = {}  # nodes, bytes, depth; callees first

    def count(calls: Sequence[tuple[str, str, str]], nodes: int, size: int) -> tuple[int, int, int]:
        found = [counts[key] for key in calls]
        return (
            nodes + sum(each[0] for each in found),
            size + sum(each[1] for each in found),
            1 + max((each[2] for each in found), default=0),
        )

    waiting = {key: set(calls) for key, calls in called.items()}
    callers: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {key: [] for key in bodies}
    for key, calls in waiting.items():
        for each in calls:
            callers[each].append(key)
    ready = [key for key, calls in waiting.items() if not calls]
    while ready:
        key = ready.pop()
        counts[key] = count(called[key], len(bodies[key].node), bodies[key].ByteSize())
        for caller in callers[key]:
            waiting[caller].discard(key)
            if not waiting[caller]:
                ready.append(caller)
    if len(counts) < len(bodies):
        return "functions that call themselves, expected none"
    main = nodes_inside(model.graph.node)
    nodes, size, depth = count([k for n in main if (k := _key(n)) in bodies], len(main), 0)
    if depth - 1 > MAX_DEPTH:
        return f"functions that call each other {depth - 1} deep, expected at most {MAX_DEPTH}"
    if nodes > MAX_NODES or size > MAX_BYTES:
        got = f"{_about(nodes)} nodes of {_about(size)} bytes after its functions are inlined"
        return f"{got}, expected at most {MAX_NODES} of {MAX_BYTES}"
    return ""


def _key(node: NodeProto) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


# ------------------------------------------------------------------------------------------------- constants


def made_of_constants(model: onnx.ModelProto) -> int:
    """The number of elements that the model's nodes compute from constants and shapes alone. The count stops when it
    exceeds `MAX_MADE`.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    sizes = {name: math.prod(tensor.dims) for name, tensor in constants.items()}
    made: set[str] = set()  # those of them that are not in the file
    total = 0
    for node in nodes_inside(model.graph.node):
        count, grown = _elements(node, sizes, constants) if node.output else (None, False)
        if count is None:
            continue
        for name in node.output:
            sizes[name] = count
            if grown or made.intersection(node.input):
                made.add(name)
                total += count
        if total > MAX_MADE:
            break
    return total


def _elements(node: NodeProto, sizes: Mapping[str, int], constants: dict[str, TensorProto]) -> tuple[int | None, bool]:
    """The number of elements of an output, None if it depends on the inputs; and whether the node adds elements."""
    if node.op_type == "Constant":
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                constants[node.output[0]] = attribute.t
                return math.prod(attribute.t.dims), False
        return 1, False
    if node.op_type in ("Shape", "Size"):
        return 1, False
    known = [sizes.get(name) for name in node.input if name]
    held = [size for size in known if size is not None]
    if not held or len(held) < len(known):
        return None, False
    if node.op_type == "Concat":
        return sum(held), len(held) > 1
    if node.op_type == "Range":
        return _range(*(_values(name, constants) for name in node.input[:3])), True
    if node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        shape = _values(node.input[-1], constants)
        if shape is None:
            return None, False
        return math.prod(max(int(size), 1) for size in shape) * (held[0] if node.op_type == "Tile" else 1), True
    return max(held), False


def _values(name: str, constants: Mapping[str, TensorProto]) -> list[float] | None:
    """The numbers of a small constant that is in the file."""
    tensor = constants.get(name)
    kinds = (TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.FLOAT, TensorProto.DOUBLE)
    if tensor is None or tensor.data_type not in kinds or tensor.external_data or math.prod(tensor.dims) > _SCALARS:
        return None
    numbers: list[float] = numpy_helper.to_array(tensor).reshape(-1).tolist()
    return numbers


def _range(start: list[float] | None, limit: list[float] | None, step: list[float] | None) -> int | None:
    if not start or not limit or not step or not all(map(math.isfinite, (start[0], limit[0], step[0]))) or not step[0]:
        return None
    return max(0, math.ceil((limit[0] - start[0]) / step[0]))


def _about(count: int) -> str:
    return str(count) if count < 10**9 else f"10^{len(str(count)) - 1}"
