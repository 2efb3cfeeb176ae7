"""Files of `torch.save` that hold tensors by name: read without torch, without copying, and never run.

Since torch 1.6 such a file is a zip archive of uncompressed members: data.pkl describes the tensors, as
`torch_pickle.py` reads it, and data/0, data/1, ... are their storages. Before, it was five pickles one after the other,
and then the storages.

Sources: `torch/serialization.py` (`_save`, `_legacy_save`) and PKWARE's APPNOTE.TXT 4.3.
"""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lucid.core.words.safe_text import show
from lucid.files.torch_pickle import PickleError, Storage, TensorView, read_pickles
from lucid.files.untrusted import MAX_HEADER, MAX_TENSORS, Array, WeightsError, broken, check_booleans, check_shape

MAX_PICKLE = 4 << 20  # bytes: 20,000 tensors
MOST_SHARED = 32  # so many times the bytes of the file may its tensors have in all

_CONVERT = (
    "only tensors by name are read; if you trust the file, let torch write them: "
    'python -c "import torch, safetensors.torch as s; '
    "d = torch.load('pytorch_model.bin', map_location='cpu', weights_only=True); "
    "s.save_file({k: v.contiguous().clone() for k, v in d.items()}, 'model.safetensors')\""
)


_Places: TypeAlias = Mapping[str, tuple[int, int]]


class _Contents(NamedTuple):
    """The tensors of a file, the place of each storage (begin and end), and the byte order of numbers."""

    value: Any
    places: _Places
    big_endian: bool


def is_one(first: bytes) -> bool:
    """Whether a file that begins with these bytes is to be read as torch's."""
    # The first bytes of a pickle can also be a length of safetensors, but then the brace of its header follows.
    pickled = first[:1] == b"\x80" and first[1:2] < b"\x06" and first[8:9] != b"{"
    return pickled or first.startswith(b"PK\x03\x04") or first[257:262] == b"ustar"


def read(buffer: mmap.mmap, path: Path) -> dict[str, Array]:
    """The arrays of a mapped file by name, in the file's order, as views of it.

    Raises:
        WeightsError: for a file that holds anything but tensors by name, or tensors that its storages do not hold.
    """
    try:
        contents = (_read_archive if buffer[:2] == b"PK" else _read_pickles)(buffer, path)
        tensors = _tensors(contents.value)
    except PickleError as error:
        raise WeightsError(f"{show(path)}: {error}; {_CONVERT}") from None
    arrays = {name: _array(buffer, path, name, tensor, contents.places) for name, tensor in tensors.items()}
    if sum(array.nbytes for array in arrays.values()) > MOST_SHARED * len(buffer):
        raise broken(path, f"its tensors, which share memory, have more than {MOST_SHARED} times the bytes of the file")
    for name, array in arrays.items():
        check_booleans(path, name, array)
    return {name: _swapped(array) for name, array in arrays.items()} if contents.big_endian else arrays


def _tensors(value: object) -> dict[str, TensorView]:
    if not isinstance(value, dict):
        raise PickleError(f"holds a value of type {_kind(value)}, expected the tensors of a state_dict by name")
    for name, tensor in value.items():
        if not isinstance(tensor, TensorView):
            raise PickleError(f"{show(name)} is of type {_kind(tensor)}, expected the tensors of a state_dict by name")
    if len(value) > MAX_TENSORS:
        raise PickleError(f"more than {MAX_TENSORS} tensors")
    return value


def _kind(value: object) -> str:
    return {TensorView: "tensor", Storage: "storage"}.get(type(value), type(value).__name__)


def _array(buffer: mmap.mmap, path: Path, name: str, tensor: TensorView, places: _Places) -> Array:
    """One tensor, whose numbers must all be in its storage."""
    storage, dtype = tensor.storage, tensor.dtype
    begin, end = places.get(storage.key, (0, -1))
    if end - begin != storage.count * storage.dtype.itemsize:
        raise broken(path, f"tensor {show(name)}: no storage {show(storage.key)} of {storage.count} {storage.dtype}")
    sizes = (tensor.offset, *tensor.shape, *tensor.strides)
    if len(tensor.shape) != len(tensor.strides) or any(type(size) is not int or size < 0 for size in sizes):
        raise broken(path, f"tensor {show(name)}: offset, shape and strides {show(sizes)}, expected whole numbers >= 0")
    check_shape(path, name, tensor.shape, dtype)
    if 0 in tensor.shape:
        return np.ndarray(tensor.shape, dtype)
    strides = [stride if size > 1 else 0 for size, stride in zip(tensor.shape, tensor.strides, strict=True)]
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    if (last + 1) * dtype.itemsize > end - begin:
        raise broken(path, f"tensor {show(name)}: its last number is {last} of a storage of {end - begin} bytes")
    of_storage = memoryview(buffer)[begin:end]
    steps = [stride * dtype.itemsize for stride in strides]
    return np.ndarray(tensor.shape, dtype, of_storage, tensor.offset * dtype.itemsize, steps)


def _swapped(array: Array) -> Array:
    """A copy with the bytes of each number in the other order."""
    parts = array.view(f"u{array.itemsize}") if array.dtype.kind != "c" else array
    return parts.byteswap().view(array.dtype)


# Before torch 1.6 -----------------------------------------------------------------------------------------------------

_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def _read_pickles(buffer: mmap.mmap, path: Path) -> _Contents:
    file = io.BytesIO(buffer[:MAX_PICKLE])
    if file.read(len(_MAGIC)) != _MAGIC:
        raise PickleError("a pickle or tar archive, but no file of torch 0.1.10 or later")
    _protocol, system, value, keys = read_pickles(file, 4)
    if not isinstance(system, dict) or not isinstance(keys, list):
        raise PickleError("a file of torch's without its list of storages")
    sizes = {tensor.storage.key: tensor.storage.dtype.itemsize for tensor in _tensors(value).values()}
    places, at = dict[str, tuple[int, int]](), file.tell()
    for key in keys:
        if not isinstance(key, str) or key not in sizes or key in places:
            raise PickleError("a file of torch's whose list of storages is not that of its tensors")
        begin = at + 8
        at = begin + int.from_bytes(buffer[at:begin], "little") * sizes[key]
        if at > len(buffer):
            raise broken(path, f"its storage {show(key)} ends at byte {at} of {len(buffer)}: truncated")
        places[key] = begin, at
    return _Contents(value, places, system.get("little_endian") is False)


# Since torch 1.6 ------------------------------------------------------------------------------------------------------

# An archive ends with a directory: an entry for each member, then where it is. Torch writes that with 64 bits too, and
# no comment after it.
_END, _LOCATOR, _END_64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")
_ENTRY, _LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
_WIDE = 0xFFFFFFFF  # in the place of a number that the extra field of 64 bits has


def _read_archive(buffer: mmap.mmap, path: Path) -> _Contents:
    try:
        members = _members(buffer, path)
    except (struct.error, OverflowError):  # the second for an offset beyond 2^63
        raise broken(path, "a zip archive whose directory does not fit the file: truncated") from None
    data = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(data) != 1:
        raise PickleError("a zip archive without a data.pkl, so no file of torch's")
    begin, end = members[data[0]]
    if end - begin > MAX_PICKLE:
        raise PickleError(f"a data.pkl of {end - begin} bytes, expected at most {MAX_PICKLE}")
    (value,) = read_pickles(io.BytesIO(buffer[begin:end]), 1)
    home = data[0].removesuffix("data.pkl")
    storages = f"{home}data/"
    places = {name.removeprefix(storages): place for name, place in members.items() if name.startswith(storages)}
    begin, end = members.get(f"{home}byteorder", (0, 0))
    return _Contents(value, places, buffer[begin : min(end, begin + 8)] == b"big")


def _members(buffer: mmap.mmap, path: Path) -> dict[str, tuple[int, int]]:
    """The members of an archive by name, each with its beginning and its end."""
    count, size, directory = _directory(buffer, path)
    if count > MAX_TENSORS + 64 or size > MAX_HEADER:
        raise broken(path, f"a zip archive of {count} members, expected at most {MAX_TENSORS + 64}")
    members, at = dict[str, tuple[int, int]](), directory
    for _ in range(count):
        magic, _, _, flags, method, *_ = entry = _ENTRY.unpack_from(buffer, at)
        sizes, (name_size, extra_size, comment_size) = entry[8:10], entry[10:13]
        named = at + _ENTRY.size
        at = named + name_size + extra_size + comment_size
        name = buffer[named : named + name_size].decode("utf-8", "replace")
        stored, whole, local = _wide((*sizes, entry[16]), buffer[named + name_size : at - comment_size])
        if magic != b"PK\1\2" or at > directory + size or name in members:
            raise broken(path, f"a zip archive whose directory is damaged at {show(name)}")
        if method != 0 or flags & 1 or stored != whole:
            raise PickleError(f"a zip archive with {show(name)} compressed or encrypted, as torch writes none")
        header = _LOCAL.unpack_from(buffer, local)
        begin = local + _LOCAL.size + header[-2] + header[-1]
        if header[0] != b"PK\3\4" or begin + whole > directory:
            raise broken(path, f"a zip archive whose member {show(name)} is not where its directory says")
        members[name] = begin, begin + whole
    return members


def _directory(buffer: mmap.mmap, path: Path) -> tuple[int, int, int]:
    """An archive's directory: how many entries and bytes it has, and where it begins."""
    at = max(len(buffer) - _END.size, 0)
    magic, _, _, _, count, size, place, _ = _END.unpack_from(buffer, at)
    if magic != b"PK\5\6":
        raise broken(path, "a zip archive without a directory at its end: truncated")
    if at >= _LOCATOR.size:
        magic, _, end, _ = _LOCATOR.unpack_from(buffer, at - _LOCATOR.size)
        if magic == b"PK\6\7":
            *_, count, size, place = _END_64.unpack_from(buffer, end)
    return count, size, place


def _wide(numbers: tuple[int, ...], extra: bytes) -> list[int]:
    """Numbers of an entry, those that do not fit into 32 bits from its extra field."""
    wide: Iterator[int] = iter(())
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<2H", extra)
        if kind == 1:
            wide = iter(struct.unpack_from(f"<{size // 8}Q", extra, 4))
        extra = extra[4 + size :]
    return [next(wide, number) if number == _WIDE else number for number in numbers]
