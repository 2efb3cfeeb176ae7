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

from lucid.export.array_bytes import byte_blocks, fingerprint, in_order
from lucid.export.assemble import Assembled, tensor_header
from lucid.export.builder import SMALL
from lucid.export.target import ExportError
from lucid.file_locks import exclusively
from lucid.files import draft, is_stream, write_atomically
from lucid.files import write as write_stream
from lucid.types import Array

LIMIT = 2**31 - 1 - 2**20  # the largest protobuf message, without what the headers of tensors may take
HELD = 1 << 26  # bytes of weights up to which a model that went to a file comes back with them
ALIGNMENT = 64
_LARGE = 1 << 20


def fits_one_file(model: Assembled) -> bool:
    """Whether one protobuf message can hold the model with its weights."""
    return bool(model.weight_bytes + model.skeleton.ByteSize() <= LIMIT)


def in_memory(model: Assembled) -> onnx.ModelProto:
    """The model with its weights.

    Raises:
        ExportError: when it would exceed protobuf's limit of 2 GiB.
    """
    if not fits_one_file(model):
        raise ExportError(
            f"the model has {model.weight_bytes / 2**30:.1f} GiB of weights, more than a model in memory may hold "
            '(2 GiB): write it to a file with lucid.export.to_onnx(model, ..., path="model.onnx")'
        )
    return _with_initializers(model, {}, "")


def write(model: Assembled, path: Path, *, external: bool) -> onnx.ModelProto:
    """Write the model to a file, with `external` its larger weights to one side file beside it; the model as written.

    With a side file, and beyond 64 MiB without one, what is returned holds no second copy of the larger weights: it
    refers to the file that does, as ONNX's external data.

    Several exports to one path may run at once, in threads or processes: the last one to put its model in place wins,
    whole. Who reads meanwhile finds one model or another with the weights it refers to; only who opens a model and
    comes for its side file after the next export has removed that finds none, never another's, and opens again.

    Raises:
        ExportError: for weights beside a pipe or device.
    """
    if is_stream(path):
        if external:
            raise ExportError(f"{str(path)!r} is a pipe or device, and weights beside it need a file: give its name")
        with write_stream(path) as file:
            _stream(model, file)
        return _with_initializers(model, {}, "")
    if external:
        return _write_external(model, path)
    with draft(path) as made:
        offsets = _stream(model, made.file)
        made.complete()
        with exclusively(path) as alone:
            made.publish()
            if alone:
                _remove_side_files(path, keep=None)
    return _with_initializers(model, offsets if model.weight_bytes > HELD else {}, path.name)


def _write_external(model: Assembled, path: Path) -> onnx.ModelProto:
    """The side file carries its contents' hash in its name, so a model never refers to a half-written or newer one.

    The new side file is complete before the model that refers to it appears; the old one goes after that. An export
    that ends before the model is there takes its side file with it.

    From the moment the side file has its name until the old ones are gone no other export to this path does the same:
    each would remove the other's. The weights themselves are written before, many at a time.
    """
    large = {name: array for name, array in model.initializers.items() if array.nbytes > SMALL}
    side = path.with_name(f"{path.name}.{fingerprint(large)}.data")
    with draft(side) as weights:
        offsets = _write_aligned(large, weights.file)
        weights.complete()
        with exclusively(path) as alone:
            unused = alone and not side.exists()
            try:
                weights.publish()
                complete = _with_initializers(model, offsets, side.name)
                with write_atomically(path) as file:
                    file.write(complete.SerializeToString(deterministic=True))
                    unused = False  # from here on the model may be in place
            finally:
                if unused:
                    side.unlink(missing_ok=True)
            if alone:
                _remove_side_files(path, keep=side)
    return complete


def _write_aligned(arrays: Mapping[str, Array], file: BinaryIO) -> dict[str, int]:
    """Write the arrays one after the other; where in the file each begins."""
    offset, offsets = 0, {}
    for name, array in arrays.items():
        file.write(b"\0" * (-offset % ALIGNMENT))
        offset += -offset % ALIGNMENT
        offsets[name] = offset
        _put(array, file, offset)
        offset += array.nbytes
    return offsets


def _with_initializers(model: Assembled, offsets: Mapping[str, int], location: str) -> onnx.ModelProto:
    """The model with its weights; those that have an offset stay in the file of that name, and are referred to."""
    complete = onnx.ModelProto()
    complete.CopyFrom(model.skeleton)
    for name, array in model.initializers.items():
        made = complete.graph.initializer.add()  # filled in place: a message that is appended is copied
        made.CopyFrom(tensor_header(name, array))
        if name not in offsets or array.nbytes <= SMALL:
            made.raw_data = in_order(array).tobytes()
            continue
        made.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offsets[name]), ("length", array.nbytes)):
            made.external_data.add(key=key, value=str(value))
    return complete


def _remove_side_files(path: Path, keep: Path | None) -> None:
    """Remove the side files of earlier exports to the same path."""
    pattern = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.data")
    for entry in path.parent.iterdir():
        if entry != keep and pattern.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def _stream(model: Assembled, file: BinaryIO) -> dict[str, int]:
    """Write the model as one protobuf message, the weights straight from their arrays; where in the file each begins.

    Fields of a message may come in any order: the skeleton's graph is written first, the initializers are appended.
    """
    graph = model.skeleton.graph.SerializeToString(deterministic=True)
    shell = onnx.ModelProto()
    shell.CopyFrom(model.skeleton)
    shell.ClearField("graph")
    heads = []
    length = len(graph)
    for name, array in model.initializers.items():
        header = tensor_header(name, array).SerializeToString(deterministic=True)
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
        _put(array, file, offsets[name])
        offset = offsets[name] + array.nbytes
    return offsets


def _put(array: Array, file: BinaryIO, offset: int) -> None:
    """Write the bytes of an array, which begin at this place of the file."""
    for piece in byte_blocks(array):
        file.write(piece)
    if sys.platform == "linux" and array.nbytes >= _LARGE:
        # The disk begins to write at once, instead of when fsync waits for it: a third of an export's time.
        with suppress(OSError):  # not every file system takes advice
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
