"""An exported model that also gives values inside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import onnx

from lucid.runtime.accuracy import FOLDER
from lucid.runtime.model_file import check_model_file


def with_inner_values(
    exported: onnx.ModelProto | bytes | str | os.PathLike[str], wanted: Sequence[str]
) -> tuple[onnx.ModelProto | bytes, dict[str, str], list[str]]:
    """A copy with outputs for those of the wanted values that the model computes.

    External weights of a file stay where they are.

    Returns:
        The model, the config that its `Session` needs, and the names of the values.

    Raises:
        ModelError: as `Session`, for a file.
        OSError: if there is no such file.
    """
    config = {}
    if isinstance(exported, onnx.ModelProto):
        made = onnx.ModelProto()
        made.CopyFrom(exported)
    elif isinstance(exported, bytes):
        made = onnx.ModelProto.FromString(exported)
    else:
        check_model_file(Path(exported))
        made = onnx.load(exported, load_external_data=False)
        config[FOLDER] = str(Path(exported).resolve().parent)
    types = {info.name: info for info in made.graph.value_info}
    outputs = {value.name for value in made.graph.output}
    names = [name for name in wanted if name in types or name in outputs]
    made.graph.output.extend(types[name] for name in names if name not in outputs)
    return made if isinstance(exported, onnx.ModelProto) else made.SerializeToString(), config, names
