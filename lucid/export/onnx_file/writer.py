"""Writing models: weights are streamed from their arrays, never collected in memory first."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import onnx

from lucid.core.graph.types import Array
from lucid.core.words.progress import Advance, phase
from lucid.export.builder import SMALL
from lucid.export.onnx_file.array_bytes import byte_blocks, fingerprint, in_order
from lucid.export.onnx_file.assemble import Assembled
from lucid.export.target import ExportError
from lucid.files.atomic import draft, is_stream, write_atomically
from lucid.files.atomic import write as write_stream
from lucid.files.locks import exclusively
from lucid.files.utf8_paths import local_path, utf8_path

LIMIT = 2**31 - 1 - 2**20  # the largest protobuf message, less room for the headers of tensors
HELD = 1 << 26  # up to so many bytes of weights, a model written to a file is returned with them
ALIGNMENT = 64
_LARGE = 1 << 20


def fits_one_file(model: Assembled) -> bool:
    """Whether one protobuf message can hold the model with its weights."""
    return bool(model.weight_bytes + model.skeleton.ByteSize() <= LIMIT)


def in_memory(model: Assembled) -> onnx.ModelProto:
    """The model with its weights.

    Raises:
        ExportError: if it would exceed protobuf's limit of 2 GiB.
    """
    if not fits_one_file(model):
        raise ExportError(
            f"the model has {model.weight_bytes / 2**30:.1f} GiB of weights, but a model in memory holds at most "
            '2 GiB: write it to a file with lucid.export.to_onnx(model, ..., path="model.onnx")'
        )
    return _with_initializers(model, {}, "")


def write(model: Assembled, path: Path, *, external: bool) -> onnx.ModelProto:
    """Write the model to a file, with `external` its larger weights to one side file next to it; returns the model.

    With a side file, and beyond 64 MiB without one, the model returned does not hold the larger weights: it refers to
    the file that does, as ONNX's external data.

    Several exports to one path may run at once, in threads or processes: the last one to put its model in place wins,
    as a whole. A reader always finds a complete model. If the next export removes its side file before the reader
    opens that, the reader gets an error, never other weights, and can open the model again.

    Raises:
        ExportError: for a side file next to a pipe or device.
    """
    with phase("writing", model.weight_bytes) as advance:
        return _write(model, path, external, advance)


def _write(model: Assembled, path: Path, external: bool, advance: Advance) -> onnx.ModelProto:
    if is_stream(path):
        if external:
            raise ExportError(
                f"{str(path)!r} is a pipe or device, which has no separate file of weights: give a file's name"
            )
        with write_stream(path) as file:
            _stream(model, file, advance)
        return _with_initializers(model, {}, "")
    if external:
        return _write_external(model, path, advance)
    with draft(path) as model_file:
        offsets = _stream(model, model_file.file, advance)
        model_file.complete()
        with exclusively(path) as alone:
            model_file.publish()
            if alone:
                _remove_side_files(path, keep=None)
    return _with_initializers(model, offsets if model.weight_bytes > HELD else {}, path.name)


def _write_external(model: Assembled, path: Path, advance: Advance) -> onnx.ModelProto:
    """The side file has its contents' hash in its name, so a model never refers to a half-written or newer one.

    The new side file is complete before the model that refers to it appears; the old one is removed after that. An
    export that fails before the model appears removes its side file.

    From renaming the side file to removing the old ones, an export holds a lock on the path: otherwise two exports
    would remove each other's side files. The weights themselves are written before, without the lock.
    """
    large = {name: array for name, array in model.initializers.items() if array.nbytes > SMALL}
    side = path.with_name(f"{path.name}.{fingerprint(large)}.data")
    with draft(side) as weights:
        offsets = _write_aligned(large, weights.file, advance)
        weights.complete()
        with exclusively(path) as alone:
            unused = alone and not side.exists()
            try:
                weights.publish()
                complete = _with_initializers(model, offsets, side.name)
                with write_atomically(path) as file:
                    file.write(complete.SerializeToString(deterministic=True))
                    unused = False  # from here on the model may refer to it
            finally:
                if unused:
                    side.unlink(missing_ok=True)
            if alone:
                _remove_side_files(path, keep=side)
    return complete


def _write_aligned(arrays: Mapping[str, Array], file: BinaryIO, advance: Advance) -> dict[str, int]:
    """Write the arrays one after the other; returns each one's offset in the file."""
    offset, offsets = 0, {}
    for name, array in arrays.items():
        file.write(b"\0" * (-offset % ALIGNMENT))
        offset += -offset % ALIGNMENT
        offsets[name] = offset
        _write_array(array, file, offset, advance)
        offset += array.nbytes
    return offsets


def _with_initializers(model: Assembled, offsets: Mapping[str, int], location: str) -> onnx.ModelProto:
    """The model with its weights; those with an offset are external data in the file `location`."""
    complete = onnx.ModelProto()
    complete.CopyFrom(model.skeleton)
    for name, array in model.initializers.items():
        proto = complete.graph.initializer.add()  # filled in place: appending a message copies it
        proto.CopyFrom(model.header(name))
        if name not in offsets or array.nbytes <= SMALL:
            proto.raw_data = in_order(array).tobytes()
            continue
        proto.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", utf8_path(location)), ("offset", offsets[name]), ("length", array.nbytes)):
            proto.external_data.add(key=key, value=str(value))
    return complete


def _remove_side_files(path: Path, keep: Path | None) -> None:
    """Remove the side files of earlier exports to the same path."""
    pattern = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.data")
    for entry in path.parent.iterdir():
        if entry != keep and pattern.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def _stream(model: Assembled, file: BinaryIO, advance: Advance) -> dict[str, int]:
    """Write the model as one protobuf message, weights directly from their arrays; returns each one's offset.

    Fields of a message may come in any order: the skeleton's graph is written first, the initializers are appended.
    """
    graph = model.skeleton.graph.SerializeToString(deterministic=True)
    shell = onnx.ModelProto()
    shell.CopyFrom(model.skeleton)
    shell.ClearField("graph")
    heads = []
    length = len(graph)
    for name, array in model.initializers.items():
        header = model.header(name).SerializeToString(deterministic=True)
        header += _field(_RAW_DATA, array.nbytes)
        head = _field(_INITIALIZER, len(header) + array.nbytes) + header
        heads.append(head)
        length += len(head) + array.nbytes
    start = shell.SerializeToString(deterministic=True) + _field(_GRAPH, length) + graph
    file.write(start)
    offset, offsets = len(start), {}
    for head, (name, array) in zip(heads, model.initializers.items(), strict=True):
        file.write(head)
        offsets[name] = offset + len(head)
        _write_array(array, file, offsets[name], advance)
        offset = offsets[name] + array.nbytes
    return offsets


def _write_array(array: Array, file: BinaryIO, offset: int, advance: Advance) -> None:
    """Write the bytes of an array at the current position, which is `offset`."""
    for block in byte_blocks(array):
        file.write(block)
        advance(len(block))
    if sys.platform == "linux" and array.nbytes >= _LARGE:
        # Start writing to disk now instead of at fsync: this saves a third of an export's time.
        with suppress(OSError):  # not supported by every file system
            os.posix_fadvise(file.fileno(), offset, array.nbytes, os.POSIX_FADV_DONTNEED)


_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number


def _field(number: int, length: int) -> bytes:
    """The key of a length-delimited field and its length (protobuf encoding, wire type 2)."""
    return _varint(number << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def rename_side_file(path: str | os.PathLike[str], name: str) -> None:
    """Rename the file of weights next to a model, for programs that expect a certain name.

    A model without such a file stays as it is. Do not use it in a folder that others read meanwhile: for a moment the
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
    os.rename(path.with_name(local_path(locations[0].value)), target)
    for entry in locations:
        entry.value = utf8_path(name)
    with write_atomically(path) as file:
        file.write(model.SerializeToString(deterministic=True))
