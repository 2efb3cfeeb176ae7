"""Reading an ONNX file without its weights: a model of gigabytes is read in milliseconds."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, inliner

from lucid.files.atomic import open_regular
from lucid.runtime.demands import nodes_inside
from lucid.runtime.model_file import ModelError, check_demands, check_model_file
from lucid.runtime.skeleton import skeleton

MAX_SIZE_TEXT = 256  # characters of one symbolic size, such as "2*L + 1"
MAX_SIZE_TEXTS = 1 << 17  # of all different ones together
MAX_PATH = 64  # nested modules
MAX_MODULES = 1 << 16


@dataclass(frozen=True)
class Slim:
    """A model without the data of its large weights, and the files that it consists of."""

    model: ModelProto
    files: tuple[tuple[Path, int], ...]


def read(path: Path) -> Slim:
    """Check a file and read it without large data. Calls of the model's own functions are inlined.

    Raises:
        ModelError: for a file that is broken, too new, refers to missing data, or has longer names of sizes than any
            exporter writes.
        OSError: for a file that is missing or may not be read.
    """
    check_model_file(path)
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        slim, _ = skeleton(data)
        length = len(data)
    model = onnx.ModelProto.FromString(slim)
    if model.functions:
        model = inliner.inline_local_functions(model)
        check_demands(model, path)  # now with the constants of the functions
    _check_sizes(model, path)
    sides = {path.parent / name for name in _side_files(model)}
    return Slim(model, ((path, length), *((side, side.stat().st_size) for side in sorted(sides))))


def _check_sizes(model: ModelProto, path: Path) -> None:
    """Raise ModelError for long symbolic sizes: parsing them takes time quadratic in their length."""
    graphs = [model.graph, *(graph for node in all_nodes(model.graph) for graph in subgraphs(node))]
    values = (value for graph in graphs for value in (*graph.input, *graph.output, *graph.value_info))
    texts = {size.dim_param for value in values for size in value.type.tensor_type.shape.dim}
    longest, total = max(map(len, texts), default=0), sum(map(len, texts))
    if longest > MAX_SIZE_TEXT or total > MAX_SIZE_TEXTS:
        raise ModelError(
            f"{str(path)!r}: symbolic sizes of {longest} characters, {total} together, expected at most "
            f"{MAX_SIZE_TEXT} and {MAX_SIZE_TEXTS}; export the model again with shorter names of sizes"
        )


def _side_files(model: ModelProto) -> set[str]:
    entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data)
    return {entry.value for entry in entries if entry.key == "location"}


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The branches and bodies of If, Loop and Scan."""
    found = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    return found + [graph for attribute in node.attribute for graph in attribute.graphs]


def all_nodes(graph: GraphProto) -> list[NodeProto]:
    """The nodes of a graph and of the graphs inside it."""
    return nodes_inside(graph.node)
