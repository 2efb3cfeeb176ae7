"""Copies of exported models with a change: products computed in float32, or more outputs.

A copy is a model where the source is one, and otherwise its bytes. External weights of a file stay where they are:
the config that comes with a copy tells its `Session` the folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import onnx

from lucid.core.targets.runtimes import ACCURACY_LEVEL
from lucid.files.utf8_paths import utf8_path
from lucid.runtime.model_file import check_and_locate
from lucid.runtime.subgraphs import nodes_inside

Model: TypeAlias = onnx.ModelProto | bytes | str | os.PathLike[str]
_FOLDER = "session.model_external_initializers_file_folder_path"  # onnxruntime's config key


def at_level_0(model: Model) -> tuple[onnx.ModelProto | bytes, dict[str, str]] | None:
    """A copy whose products with quantized weights compute in float32, and its config; None if all do already.

    Raises:
        ModelError: as `Session`, for a file.
        OSError: if there is no such file.
    """
    copy, config = copied(model)
    nodes = nodes_inside(copy.graph.node)
    levels = [
        attribute
        for node in nodes
        for attribute in node.attribute
        if attribute.name == "accuracy_level" and node.op_type == "MatMulNBits"
    ]
    entries = [entry for entry in copy.metadata_props if entry.key == ACCURACY_LEVEL]
    standard = any(node.op_type == "DequantizeLinear" for node in nodes) and [e.value for e in entries] != ["0"]
    if not standard and not any(level.i for level in levels):
        return None
    for level in levels:
        level.i = 0
    for entry in entries:
        copy.metadata_props.remove(entry)
    copy.metadata_props.add(key=ACCURACY_LEVEL, value="0")
    return _as_given(copy, model), config


def with_inner_values(model: Model, values: Sequence[str]) -> tuple[onnx.ModelProto | bytes, dict[str, str], list[str]]:
    """A copy with outputs for the wanted values, as far as the model computes them; its config, and their names.

    Raises:
        ModelError: as `Session`, for a file.
        OSError: if there is no such file.
    """
    copy, config = copied(model)
    types = {info.name: info for info in copy.graph.value_info}
    outputs = {value.name for value in copy.graph.output}
    names = [name for name in values if name in types or name in outputs]
    copy.graph.output.extend(types[name] for name in names if name not in outputs)
    return _as_given(copy, model), config, names


def inner_values(model: Model) -> list[str]:
    """The outputs of all nodes of a model's main graph, by name, in the order in which they are computed.

    Raises:
        ModelError, OSError: as `with_inner_values`.
    """
    return [name for node in copied(model)[0].graph.node for name in node.output if name]


def copied(model: Model) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A copy and the config of its sessions. Large data of a file stays there, as external data of the copy.

    Raises:
        ModelError, OSError: as `Session`, for a file.
    """
    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy, {}
    if isinstance(model, bytes):
        return onnx.ModelProto.FromString(model), {}
    path = Path(model)
    copy, places = check_and_locate(path)
    for tensor, place in zip(copy.graph.initializer, places, strict=True):
        if place:
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", utf8_path(path.name)), ("offset", place.start), ("length", len(place))):
                tensor.external_data.add(key=key, value=str(value))
    return copy, {_FOLDER: utf8_path(path.resolve().parent)}


def _as_given(copy: onnx.ModelProto, model: Model) -> onnx.ModelProto | bytes:
    return copy if isinstance(model, onnx.ModelProto) else copy.SerializeToString()
