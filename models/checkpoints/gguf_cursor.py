"""The values in the header of a GGUF file, read one after the other within bounds."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from lucid import WeightsError
from lucid.models.checkpoints.config import Array, show

MAX_HEADER = 64 << 20  # bytes: five times what the largest vocabularies with their merges take
MAX_STRINGS = 1 << 20  # in all arrays of strings: the vocabulary and the merges
MAX_METADATA = 1 << 12
MAX_TEXT = 4 << 20  # bytes of a text; chat templates take up to 100,000
MAX_TENSORS = 1 << 16
MAX_KEY = 1 << 10  # bytes of a key or of a tensor's name; llama.cpp takes names of 63 bytes
MAX_RANK = 4  # as in llama.cpp

_SCALARS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "?", 10: "u8", 11: "i8", 12: "f8"}
_STRING, _ARRAY = 8, 9


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
    """A place in the header that moves on as values are read, and never beyond the header's end."""

    def __init__(self, data: mmap.mmap, at: int, path: Path) -> None:
        self.data, self.at, self.path = data, at, path
        self.end = min(len(data), MAX_HEADER)
        self.strings = 0

    def skip(self, length: int, what: str) -> int:
        """Move over so many bytes; gives where they begin."""
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
        """What the header says of each tensor."""
        self._announced(count, "tensors", MAX_TENSORS, 32)
        found: dict[str, Described] = {}
        for _ in range(count):
            name = self.string("the name of a tensor", MAX_KEY)
            what = f"tensor {show(name)}"
            if name in found:
                raise broken(self.path, f"{what} is there twice")
            rank = self.number("I", what)
            if rank > MAX_RANK:
                raise broken(self.path, f"{what} has {rank} axes, expected at most {MAX_RANK}")
            shape = tuple(self.number("Q", what) for _ in range(rank))[::-1]
            found[name] = Described(self.number("I", what), shape, self.number("Q", what))
        return found

    def _announced(self, count: int, what: str, most: int, least_bytes: int) -> None:
        if count > min(most, len(self.data) // least_bytes):
            limit = f"expected at most {most}, of {least_bytes} bytes or more each"
            raise broken(self.path, f"announces {count} {what} in a file of {len(self.data)} bytes, {limit}")


def broken(path: Path, what: str) -> WeightsError:
    """The error for a file that is not as the format wants it."""
    return WeightsError(f"{show(str(path))}: {what}; get an intact copy of the file")


def decoded(raw: bytes, path: Path) -> str:
    """Text in UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise broken(path, f"{show(raw)} is not valid UTF-8") from None
