"""The data of a file's initializers, mapped from the file and its side files, not read into memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import onnx

from lucid.files.atomic import open_regular
from lucid.runtime.model_file import check_and_locate


def stored_tensors(path: str | os.PathLike[str]) -> tuple[onnx.ModelProto, dict[str, memoryview]]:
    """A file's model without its large data, and the bytes of each initializer of its graph, in C order, by name.

    Raises:
        ModelError, OSError: as `check_model_file`.
    """
    path = Path(path)
    model, places = check_and_locate(path)
    files = {path: _mapped(path)}
    found: dict[str, memoryview] = {}
    for tensor, place in zip(model.graph.initializer, places, strict=True):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            told = {entry.key: entry.value for entry in tensor.external_data}
            side, start = path.parent / told["location"], int(told.get("offset", "0"))
            if side not in files:
                files[side] = _mapped(side)
            stop = start + int(told["length"]) if "length" in told else None
            found[tensor.name] = files[side][start:stop]
        elif place:
            found[tensor.name] = files[path][place.start : place.stop]
        else:
            found[tensor.name] = bytes_of(tensor)
    return model, found


def bytes_of(tensor: onnx.TensorProto) -> memoryview:
    """The bytes of a tensor that holds its data; of texts, one after the other."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return memoryview(b"\0".join(tensor.string_data))
    if tensor.HasField("raw_data"):
        return memoryview(tensor.raw_data)
    return memoryview(onnx.numpy_helper.to_array(tensor).tobytes())


def _mapped(path: Path) -> memoryview:
    with open_regular(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
