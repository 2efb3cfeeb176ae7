"""The memory that a run of a model takes for the values between its nodes, found without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from onnx import GraphProto, ModelProto, TensorProto, helper

from lucid.inspection.shapes import Known, shapes_of
from lucid.inspection.values import is_known, kinds_of
from lucid.runtime.subgraphs import nodes_inside, subgraphs

_VIEWS = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Ops whose result is their input's memory."""


@dataclass(frozen=True)
class PeakMemory:
    """The most memory that values take at once, of a run in the order of the file.

    No node writes over its input here, so a runtime that lets nodes do so takes less; one that runs in another order,
    or keeps freed memory in pieces, may take more.
    """

    bytes: int  # of computed values that are still needed, outputs included; without weights and inputs
    node: str  # the node at which it is reached; empty for a model without nodes
    unknown: int  # how many values were not counted, since their shapes are not known


def peak_memory_of(typed: ModelProto) -> PeakMemory:
    """The peak of a model whose types are inferred for some sizes (`inferred`)."""
    shapes, kinds = shapes_of(typed), kinds_of(typed.graph)
    sizes = {name: _bytes_of(shapes.get(name), kind) for name, kind in kinds.items()}
    peak, node = _peak(typed.graph, sizes)
    computed = [name for each in nodes_inside(typed.graph.node) for name in each.output if name]
    return PeakMemory(peak, node, sum(sizes.get(name) is None for name in computed))


def _peak(graph: GraphProto, sizes: Mapping[str, int | None]) -> tuple[int, str]:
    owner: dict[str, str] = {}  # of a view, what it is a view of
    last: dict[str, int] = {}  # of a value, the last node that needs its memory
    for at, node in enumerate(graph.node):
        if node.op_type in _VIEWS and is_known(node) and node.input and node.output:
            owner[node.output[0]] = owner.get(node.input[0], node.input[0])
        for name in (*node.output, *(name for inner in nodes_inside([node]) for name in inner.input)):
            last[owner.get(name, name)] = at
    last |= {owner.get(value.name, value.name): len(graph.node) for value in graph.output}
    freed: dict[int, list[str]] = {}
    for name, at in last.items():
        freed.setdefault(at, []).append(name)
    live, taken, peak, where = 0, dict[str, int](), 0, ""
    for at, node in enumerate(graph.node):
        taken |= {name: sizes.get(name) or 0 for name in node.output if name not in owner}
        live += sum(taken[name] for name in node.output if name in taken)
        inside = max((_peak(inner, sizes)[0] for inner in subgraphs(node)), default=0)
        if live + inside > peak:
            peak, where = live + inside, node.name
        live -= sum(taken.pop(name, 0) for name in freed.get(at, ()))
    return peak, where


def _bytes_of(shape: Known | None, kind: int) -> int | None:
    """The size of a value; None if it is not known. Of texts the pointers count."""
    if shape is None or None in shape:
        return None
    count = prod(size for size in shape if size is not None)
    return (
        count * (8 if kind == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(kind).itemsize) if kind else None
    )
