"""A GGUF file: its metadata and its tensors, each size checked against the file before anything is read.

Source of the format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Little-endian: magic, version, the
number of tensors and of metadata; each metadata as key, type, value; each tensor as name, sizes (the last axis
first), type, offset; then the data, each tensor padded to the alignment.

The `gguf` library's own reader believes every count and every length that it finds, and makes several objects for each
word of the vocabulary. So the header is read here, within bounds, and the library computes the numbers.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from lucid import WeightsError
from lucid.core.words.safe_text import show
from lucid.files.atomic import NotAFileError, open_regular
from lucid.files.untrusted import broken
from lucid.models.checkpoints.config import Array
from lucid.models.checkpoints.gguf_blocks import LAYOUTS, read_blocks
from lucid.quantization import Blocks

MAX_HEADER = 64 << 20  # bytes: five times what the largest vocabularies with their merges take
MAX_STRINGS = 1 << 20  # in all arrays of strings: the vocabulary and the merges
MAX_METADATA = 1 << 12
MAX_TEXT = 4 << 20  # bytes of a text; chat templates take up to 100,000
MAX_TENSORS = 1 << 16
MAX_KEY = 1 << 10  # bytes of a key or of a tensor's name; llama.cpp takes names of 63 bytes
MAX_RANK = 4  # as in llama.cpp

_SCALARS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "?", 10: "u8", 11: "i8", 12: "f8"}
_STRING, _ARRAY = 8, 9
_FLOATS = {kind for kind in GGMLQuantizationType if GGML_QUANT_SIZES[kind][0] == 1}


class Entry(NamedTuple):
    """A tensor: its element type in the file, its shape as NumPy has it, and its bytes in the file."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """The content of a file: metadata and tensors by name. The data is mapped, and read when it is used."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Entry]
    data: mmap.mmap

    def array(self, name: str) -> Array:
        """A tensor as float32: dequantized where the file has another type, a read-only view of the file otherwise."""
        kind, shape, _, _ = self.tensors[name]
        array: Array = dequantize(self._bytes(name), kind)
        return array.reshape(shape)

    def weight(self, name: str, expert: int | None = None) -> Array | Blocks:
        """A quantized tensor as it is, where blocks can hold its type; otherwise as float32.

        Args:
            expert: of a tensor of several matrices, which is asked for.

        Raises:
            WeightsError: for blocks with NaN or infinity.
        """
        raw = self._bytes(name) if expert is None else self._bytes(name)[expert]
        kind, shape = self.tensors[name].kind, self.tensors[name].shape[0 if expert is None else 1 :]
        if kind not in LAYOUTS or len(shape) != 2:
            array: Array = dequantize(raw, kind)
            return array.reshape(shape)
        try:
            return read_blocks(kind, raw)
        except ValueError as error:
            raise broken(self.path, f"tensor {show(name)}: {error}") from error

    def widened(self) -> str:
        """The number of quantized tensors that become float32, by type: "3 tensors of Q6_K"."""
        kinds = Counter(
            kind
            for kind, shape, _, _ in self.tensors.values()
            if kind not in _FLOATS and (kind not in LAYOUTS or len(shape) != 2)
        )
        return ", ".join(f"{count} tensors of {kind.name}" for kind, count in kinds.items())

    def _bytes(self, name: str) -> Array:
        """The bytes of a tensor's rows, mapped."""
        _, shape, begin, end = self.tensors[name]
        return np.frombuffer(self.data, np.uint8, end - begin, begin).reshape(*shape[:-1], -1)


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read and check everything except the data.

    Raises:
        WeightsError: for a file that is not a GGUF file, is broken, or holds tensors of a type that cannot be read.
        OSError: when there is no such file or it may not be read.
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(24)
            _check_start(start, size, path)
            data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except NotAFileError as error:
        raise WeightsError(str(error)) from None
    _, _, tensors, metadata = struct.unpack("<4sIQQ", start)
    cursor = Cursor(data, 24, path)
    values = dict(cursor.metadata(metadata))
    entries = cursor.tensors(tensors)
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in [1 << power for power in range(17)]:
        raise broken(path, f"general.alignment is {show(alignment)}, expected a power of two up to 65536")
    return Header(path, values, _placed(entries, cursor.at, alignment, size, path), data)


def _check_start(start: bytes, size: int, path: Path) -> None:
    if start[:4] != b"GGUF":
        got = f"one that begins with {start[:8]!r}" if start else "an empty one"
        raise WeightsError(
            f"{show(str(path))}: expected a GGUF file, got {got}; give the path of a .gguf file, or the folder of a "
            "checkpoint"
        )
    if size < 24:
        raise broken(path, f"{size} bytes, expected at least 24: truncated")
    version = int.from_bytes(start[4:8], "little")
    if version not in (2, 3):
        order = "big-endian" if version and version % 65536 == 0 else "little-endian"
        version = int.from_bytes(start[4:8], "big" if order == "big-endian" else "little")
        raise WeightsError(
            f"{show(str(path))}: GGUF version {version}, {order}, expected version 2 or 3, little-endian; "
            "convert the model again"
        )


def _placed(
    described: Mapping[str, Described],
    header: int,
    alignment: int,
    size: int,
    path: Path,
) -> dict[str, Entry]:
    """Where each tensor's bytes are. As in llama.cpp they come one after the other, each padded to the alignment."""
    entries: dict[str, Entry] = {}
    begin = _padded(header, alignment)
    expected = 0
    for name, (number, shape, offset) in described.items():
        what, kind = f"tensor {show(name)}", _kind(number, name, path)
        block, nbytes = GGML_QUANT_SIZES[kind]
        count = math.prod(shape)
        if not shape or not 0 < count < 1 << 60:
            raise broken(path, f"{what} has shape {show(shape)}, expected sizes from 1, of less than 2^60 numbers")
        if shape[-1] % block:
            raise broken(path, f"{what} has {shape[-1]} columns, expected blocks of {block} for {kind.name}")
        if offset != expected:
            raise broken(path, f"{what} is at offset {offset}, expected {expected}: one after the other, without gaps")
        length = count // block * nbytes
        if begin + offset + length > size:
            raise broken(path, f"{what} ends at byte {begin + offset + length} of {size}: truncated")
        entries[name] = Entry(kind, shape, begin + offset, begin + offset + length)
        expected = _padded(offset + length, alignment)
    return entries


def _padded(length: int, alignment: int) -> int:
    return -(-length // alignment) * alignment


def _kind(number: int, name: str, path: Path) -> GGMLQuantizationType:
    known = {kind.value: kind for kind in GGMLQuantizationType}
    if number in known and _is_readable(known[number]):
        return known[number]
    shown = known[number].name if number in known else f"number {number}"
    supported = ", ".join(kind.name for kind in GGMLQuantizationType if _is_readable(kind))
    raise WeightsError(
        f"{show(str(path))}: tensor {show(name)} is of type {shown}, supported: {supported}; "
        "get the model in one of these"
    )


@cache
def _is_readable(kind: GGMLQuantizationType) -> bool:
    """Whether the library can dequantize such tensors; tried on one block, as it has no list."""
    try:
        numbers: Array = dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return bool(numbers.dtype == np.float32)


# Values of the header -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Strings:
    """An array of strings in the header, decoded when it is read: models do not need the vocabulary."""

    data: mmap.mmap
    begin: int
    count: int
    path: Path

    def __repr__(self) -> str:
        return f"{self.count} strings"

    def read(self) -> Iterator[str]:
        """The strings one by one."""
        at = self.begin
        for _ in range(self.count):
            (length,) = struct.unpack_from("<Q", self.data, at)
            at += 8 + length
            yield decoded(self.data[at - length : at], self.path)


Value: TypeAlias = bool | int | float | str | Array | Strings


class Described(NamedTuple):
    """A tensor as the header has it: the number of its type, its shape as NumPy has it, its offset in the data."""

    kind: int
    shape: tuple[int, ...]
    offset: int


class Cursor:
    """A position in the header. It advances as values are read, never beyond the end of the header."""

    def __init__(self, data: mmap.mmap, at: int, path: Path) -> None:
        self.data, self.at, self.path = data, at, path
        self.end = min(len(data), MAX_HEADER)
        self.strings = 0

    def skip(self, length: int, what: str) -> int:
        """Skip so many bytes; returns where they begin."""
        begin = self.at
        if length > self.end - begin:
            limit = "truncated" if self.end == len(self.data) else f"expected a header of at most {MAX_HEADER} bytes"
            raise broken(self.path, f"{what} takes {length} bytes at byte {begin} of {len(self.data)}: {limit}")
        self.at += length
        return begin

    def number(self, kind: str, what: str) -> int:
        return int(struct.unpack_from("<" + kind, self.data, self.skip(struct.calcsize("<" + kind), what))[0])

    def string(self, what: str, most: int = MAX_TEXT) -> str:
        length = self.number("Q", f"the length of {what}")
        if length > most:
            raise broken(self.path, f"{what} takes {length} bytes, expected at most {most}")
        begin = self.skip(length, what)
        return decoded(self.data[begin : begin + length], self.path)

    def metadata(self, count: int) -> Iterator[tuple[str, Value]]:
        """Keys and values."""
        self._announced(count, "metadata", MAX_METADATA, 13)
        seen: set[str] = set()
        for _ in range(count):
            key = self.string("a metadata key", MAX_KEY)
            if key in seen:
                raise broken(self.path, f"metadata {show(key)} is there twice")
            seen.add(key)
            yield key, self._value(self.number("I", f"metadata {show(key)}"), f"metadata {show(key)}")

    def _value(self, kind: int, what: str) -> Value:
        if kind == _STRING:
            return self.string(what)
        if kind != _ARRAY:
            number = self._numbers(kind, 1, what)[0]
            # The shortest decimal that rounds to a float32: 1e-05, not 9.99999974e-06.
            value: Value = float(str(number)) if number.dtype == np.float32 else number.item()
            return value
        kind, count = self.number("I", what), self.number("Q", what)
        if kind != _STRING:
            return self._numbers(kind, count, what)
        self.strings += count
        if self.strings > MAX_STRINGS:
            raise broken(self.path, f"{what} announces {count} strings, expected at most {MAX_STRINGS} in all")
        begin = at = self.at
        read_length = struct.Struct("<Q").unpack_from  # a vocabulary has 100,000 strings, so nothing slower here
        for _ in range(count):
            if at + 8 > self.end:
                at += 8
                break
            at += 8 + read_length(self.data, at)[0]
        self.skip(at - begin, what)
        return Strings(self.data, begin, count, self.path)

    def _numbers(self, kind: int, count: int, what: str) -> Array:
        if kind not in _SCALARS:
            raise broken(self.path, f"{what} is of type {kind}, expected one of 0 to 12, and no arrays in an array")
        dtype = np.dtype(_SCALARS[kind]).newbyteorder("<")
        begin = self.skip(count * dtype.itemsize, what)
        if dtype == np.bool_ and np.frombuffer(self.data, np.uint8, count, begin).max(initial=0) > 1:
            raise broken(self.path, f"{what} is a boolean, expected 0 or 1")
        return np.frombuffer(self.data, dtype, count, begin)

    def tensors(self, count: int) -> dict[str, Described]:
        """The tensors as the header describes them."""
        self._announced(count, "tensors", MAX_TENSORS, 32)
        by_name: dict[str, Described] = {}
        for _ in range(count):
            name = self.string("the name of a tensor", MAX_KEY)
            what = f"tensor {show(name)}"
            if name in by_name:
                raise broken(self.path, f"{what} is there twice")
            rank = self.number("I", what)
            if rank > MAX_RANK:
                raise broken(self.path, f"{what} has {rank} axes, expected at most {MAX_RANK}")
            shape = tuple(self.number("Q", what) for _ in range(rank))[::-1]
            by_name[name] = Described(self.number("I", what), shape, self.number("Q", what))
        return by_name

    def _announced(self, count: int, what: str, most: int, least_bytes: int) -> None:
        if count > min(most, len(self.data) // least_bytes):
            limit = f"expected at most {most}, of {least_bytes} bytes or more each"
            raise broken(self.path, f"announces {count} {what} in a file of {len(self.data)} bytes, {limit}")


def decoded(raw: bytes, path: Path) -> str:
    """Text in UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise broken(path, f"{show(raw)} is not valid UTF-8") from None
