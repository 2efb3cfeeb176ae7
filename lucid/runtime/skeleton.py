"""An ONNX file without its large data: the model as written, minus the raw data of its large initializers.

Source: https://protobuf.dev/programming-guides/encoding and onnx.proto (ModelProto.graph = 7, GraphProto.initializer =
5, TensorProto.raw_data = 9). Parsing a model of a gigabyte for its shapes would read and copy all of it; this skips the
raw data, so only a few pages of a mapped file are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

Buffer = bytes | mmap  # both can be indexed and sliced

_GRAPH, _INITIALIZER, _RAW_DATA = (number << 3 | 2 for number in (7, 5, 9))
_LARGE = 4096
MAX_ENTRIES = 1 << 18  # of the graph: nodes, initializers, ...; two bytes of file can become 170 of memory
_MAX_FIELDS = 1000  # of a tensor; one that has more is kept whole


class WireError(ValueError):
    """Bytes that are not a protobuf message, or are one with too many entries."""


def skeleton(data: Buffer) -> tuple[bytes, list[range]]:
    """The serialized model without large raw data, and the bytes of each initializer of its graph that were left out.

    It reads only as deep as necessary; protobuf checks the rest.

    Raises:
        WireError: for bytes that are not a protobuf message, or too many entries.
    """
    parts: list[bytes] = []
    removed: list[range] = []
    for tag, start, body, end in _fields(data, 0, len(data)):
        if tag == _GRAPH:
            parts += _message(tag, _graph(data, body, end, removed))
        else:
            parts.append(data[start:end])
    return b"".join(parts), removed


def _graph(data: Buffer, begin: int, end: int, removed: list[range]) -> bytes:
    parts: list[bytes] = []
    for tag, start, body, stop in _fields(data, begin, end):
        if len(parts) > MAX_ENTRIES * 3:
            raise WireError(f"more than {MAX_ENTRIES} entries in the graph")
        raw = _raw_data(data, body, stop) if tag == _INITIALIZER else None
        if raw is not None:
            parts += _message(tag, data[body : raw[0]] + data[raw[2] : stop])
        else:
            parts += (data[start:stop], b"", b"")
        if tag == _INITIALIZER:
            removed.append(range(raw[1], raw[2]) if raw is not None else range(0))
    return b"".join(parts)


def _raw_data(data: Buffer, begin: int, end: int) -> tuple[int, int, int] | None:
    """The positions of the tag, start and end of a tensor's large raw data; None if the tensor is kept whole."""
    if end - begin < _LARGE:
        return None
    place = None
    for count, (tag, start, body, stop) in enumerate(_fields(data, begin, end)):
        if count == _MAX_FIELDS:
            return None
        if tag == _RAW_DATA:
            if place is not None:
                raise WireError("a tensor with two raw data fields")
            place = start, body, stop
    return place


def _fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field's tag, and the positions of its tag, its content and the next field."""
    while at < end:
        start = at
        tag, at = _varint(data, at, end)
        match tag & 7:
            case 0:
                stop = _varint(data, at, end)[1]
            case 1:
                stop = at + 8
            case 2:
                length, at = _varint(data, at, end)
                stop = at + length
            case 5:
                stop = at + 4
            case _:
                raise WireError(f"field type {tag & 7} at byte {start}")
        if stop > end:
            raise WireError(f"the field at byte {start} ends beyond its message")
        yield tag, start, at, stop
        at = stop


def _varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise WireError("it ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise WireError(f"a number of more than ten bytes before byte {at}")


def _message(tag: int, content: bytes) -> tuple[bytes, bytes, bytes]:
    head, length = bytearray(), len(content)
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes([tag]), bytes(head), content
