"""The file beside a model that holds its weights."""

from __future__ import annotations

import os
from pathlib import Path

import onnx

from lucid.files.atomic import write_atomically


def rename_side_file(path: str | os.PathLike[str], name: str) -> None:
    """Give the file of weights beside a model another name, for programs that know it by that name.

    Nothing happens to a model without such a file. Not for a folder that others read meanwhile: between two steps the
    model has no weights.

    Args:
        path: a model that `to_onnx` wrote.
        name: of a file in the same folder.

    Raises:
        FileExistsError: if there is a file of that name.
        OSError: if a file cannot be written.
    """
    path = Path(path)
    model = onnx.load(path, load_external_data=False)
    locations = [
        entry
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    ]
    if not locations:
        return
    target = path.with_name(name)
    if target.exists():
        raise FileExistsError(f"cannot write {target}: there is a file of that name; write to a new folder")
    os.rename(path.with_name(locations[0].value), target)
    for entry in locations:
        entry.value = name
    with write_atomically(path) as file:
        file.write(model.SerializeToString(deterministic=True))
