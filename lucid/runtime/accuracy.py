"""The accuracy level of products with quantized weights, changed in a model that is exported already."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import onnx

from lucid.core.targets.runtimes import ACCURACY_LEVEL
from lucid.runtime.model_file import check_model_file

FOLDER = "session.model_external_initializers_file_folder_path"  # onnxruntime's config key


def at_level_0(
    model: onnx.ModelProto | str | os.PathLike[str],
) -> tuple[onnx.ModelProto | bytes, dict[str, str]] | None:
    """A copy whose products compute in float32, and the config that its `Session` needs; None if all do already.

    External weights of a file stay where they are.

    Raises:
        ModelError: as `Session`, for a file.
        OSError: if there is no such file.
    """
    config = {}
    if isinstance(model, onnx.ModelProto):
        made = onnx.ModelProto()
        made.CopyFrom(model)
    else:
        check_model_file(Path(model))
        made = onnx.load(model, load_external_data=False)
        config[FOLDER] = str(Path(model).resolve().parent)
    nodes = list(_nodes(made.graph))
    levels = [
        attribute
        for node in nodes
        for attribute in node.attribute
        if attribute.name == "accuracy_level" and node.op_type == "MatMulNBits"
    ]
    told = [entry for entry in made.metadata_props if entry.key == ACCURACY_LEVEL]
    standard = any(node.op_type == "DequantizeLinear" for node in nodes) and [e.value for e in told] != ["0"]
    if not standard and not any(level.i for level in levels):
        return None
    for level in levels:
        level.i = 0
    for entry in told:
        made.metadata_props.remove(entry)
    made.metadata_props.add(key=ACCURACY_LEVEL, value="0")
    return made if isinstance(model, onnx.ModelProto) else made.SerializeToString(), config


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those of a graph, and of the graphs of its alternatives."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)
