"""Reading an ONNX file without its weights: a model of gigabytes is looked at in milliseconds."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, inliner

from lucid.files import open_regular
from lucid.runtime.model_file import check_model_file
from lucid.runtime.skeleton import skeleton


@dataclass(frozen=True)
class Slim:
    """A model whose large weights have lost their data, and the files it is made of."""

    model: ModelProto
    files: tuple[tuple[Path, int], ...]


def read(path: Path) -> Slim:
    """Check a file and read what is not bulk. Calls of the model's own functions become their bodies.

    Raises:
        ModelError: for a file that is broken, too new, or refers to data that is not there.
        OSError: for a file that is missing or may not be read.
    """
    check_model_file(path)
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        slim, _ = skeleton(data)
        length = len(data)
    model = onnx.ModelProto.FromString(slim)
    if model.functions:
        model = inliner.inline_local_functions(model)
    sides = {path.parent / name for name in _side_files(model)}
    return Slim(model, ((path, length), *((side, side.stat().st_size) for side in sorted(sides))))


def _side_files(model: ModelProto) -> set[str]:
    entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data)
    return {entry.value for entry in entries if entry.key == "location"}


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The branches and bodies of If, Loop and Scan."""
    found = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    return found + [graph for attribute in node.attribute for graph in attribute.graphs]


def all_nodes(graph: GraphProto) -> list[NodeProto]:
    """The nodes of a graph and of the graphs inside it."""
    nodes: list[NodeProto] = []
    waiting = [graph]
    while waiting:
        current = waiting.pop()
        nodes += current.node
        waiting += [inner for node in current.node for inner in subgraphs(node)]
    return nodes
