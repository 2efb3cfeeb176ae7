"""An ONNX file without its bulk: the model as written, minus the raw data of its large initializers.

Source: https://protobuf.dev/programming-guides/encoding and onnx.proto (ModelProto.graph = 7,
GraphProto.initializer = 5, TensorProto.raw_data = 9). Parsing a model of a gigabyte to look at its shapes
would read and copy all of it; this steps over the bulk, so a mapped file is touched only at the few places
between.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

Buffer = bytes | mmap  # both give numbers and bytes, and a mapped one costs nothing

_GRAPH, _INITIALIZER, _RAW_DATA = (number << 3 | 2 for number in (7, 5, 9))
_LARGE = 4096
MAX_ENTRIES = 1 << 18  # of the graph: nodes, initializers, ...; two bytes of file can become 170 of memory
_MAX_FIELDS = 1000  # of a tensor; one that has more is kept as it is


class WireError(ValueError):
    """Bytes that are no protobuf message, or one with too many entries."""


def skeleton(data: Buffer) -> tuple[bytes, list[int]]:
    """The serialized model without large raw data, and how many bytes each initializer of its graph lost.

    Looks only as deep as it must: that the rest is well-formed is for protobuf to say. Raises `WireError`.
    """
    parts: list[bytes] = []
    removed: list[int] = []
    for tag, start, body, end in _fields(data, 0, len(data)):
        if tag == _GRAPH:
            parts += _message(tag, _graph(data, body, end, removed))
        else:
            parts.append(data[start:end])
    return b"".join(parts), removed


def _graph(data: Buffer, begin: int, end: int, removed: list[int]) -> bytes:
    parts: list[bytes] = []
    for tag, start, body, stop in _fields(data, begin, end):
        if len(parts) > MAX_ENTRIES * 3:
            raise WireError(f"more than {MAX_ENTRIES} entries in the graph")
        gone = _raw_data(data, body, stop) if tag == _INITIALIZER else None
        if gone is not None:
            parts += _message(tag, data[body : gone[0]] + data[gone[2] : stop])
        else:
            parts += (data[start:stop], b"", b"")
        if tag == _INITIALIZER:
            removed.append(gone[2] - gone[1] if gone is not None else 0)
    return b"".join(parts)


def _raw_data(data: Buffer, begin: int, end: int) -> tuple[int, int, int] | None:
    """Where a tensor's large raw data starts (its tag), begins and ends; None if the tensor stays whole."""
    if end - begin < _LARGE:
        return None
    found = None
    for count, (tag, start, body, stop) in enumerate(_fields(data, begin, end)):
        if count == _MAX_FIELDS:
            return None
        if tag == _RAW_DATA:
            if found is not None:
                raise WireError("a tensor with raw data twice")
            found = start, body, stop
    return found


def _fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field's tag, and where its tag, its content and the next field start."""
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
            raise WireError("ends inside a number")
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
