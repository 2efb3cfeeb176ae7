"""The header of a GGUF file: its metadata and its list of tensors, checked against the file's size.

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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from lucid import WeightsError
from lucid.files.atomic import NotAFileError, open_regular
from lucid.models.checkpoints.config import Array, show
from lucid.models.checkpoints.gguf_blocks import KEPT, read_blocks
from lucid.models.checkpoints.gguf_cursor import Cursor, Described, Value, broken
from lucid.quantization import Blocks

_FLOATS = {kind for kind in GGMLQuantizationType if GGML_QUANT_SIZES[kind][0] == 1}


class Entry(NamedTuple):
    """A tensor: its element type in the file, its shape as NumPy has it, and its bytes in the file."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """What a file holds: metadata and tensors by name. The data is mapped, and read when it is used."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Entry]
    data: mmap.mmap

    def array(self, name: str) -> Array:
        """A tensor as float32: dequantised where the file has another type, a read-only view of the file otherwise."""
        kind, shape, _, _ = self.tensors[name]
        array: Array = dequantize(self._bytes(name), kind)
        return array.reshape(shape)

    def weight(self, name: str) -> Array | Blocks:
        """A quantized tensor as it is, where blocks can hold its type; otherwise as float32.

        Raises:
            WeightsError: for blocks with NaN or infinity.
        """
        kind, shape, _, _ = self.tensors[name]
        if kind not in KEPT or len(shape) != 2:
            return self.array(name)
        try:
            return read_blocks(kind, self._bytes(name))
        except ValueError as error:
            raise broken(self.path, f"tensor {show(name)}: {error}") from error

    def widened(self) -> str:
        """How many tensors of which types become float32, although they are quantized: "3 tensors of Q6_K"."""
        kinds = Counter(entry.kind for entry in self.tensors.values() if entry.kind not in (*KEPT, *_FLOATS))
        return ", ".join(f"{count} tensors of {kind.name}" for kind, count in kinds.items())

    def _bytes(self, name: str) -> Array:
        """The bytes of a tensor's rows, mapped."""
        _, shape, begin, end = self.tensors[name]
        return np.frombuffer(self.data, np.uint8, end - begin, begin).reshape(*shape[:-1], -1)


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read and check all but the data.

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
    found = dict(cursor.metadata(metadata))
    entries = cursor.tensors(tensors)
    alignment = found.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in [1 << power for power in range(17)]:
        raise broken(path, f"general.alignment is {show(alignment)}, expected a power of two up to 65536")
    return Header(path, found, _placed(entries, cursor.at, alignment, size, path), data)


def _check_start(start: bytes, size: int, path: Path) -> None:
    if start[:4] != b"GGUF":
        got = f"one that begins with {start[:8]!r}" if start else "an empty one"
        raise WeightsError(f"{show(str(path))}: expected a GGUF file, got {got}; give the path of a .gguf file")
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
    found: Mapping[str, Described],
    header: int,
    alignment: int,
    size: int,
    path: Path,
) -> dict[str, Entry]:
    """Where each tensor's bytes are. As in llama.cpp they come one after the other, each padded to the alignment."""
    entries: dict[str, Entry] = {}
    begin = _padded(header, alignment)
    expected = 0
    for name, (number, shape, offset) in found.items():
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
    """Whether the library turns such tensors into float32: tried on one block, since it does not tell."""
    try:
        numbers: Array = dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return bool(numbers.dtype == np.float32)
