"""Weights in safetensors files: read without copying, written atomically, and never trusted.

The safetensors library is not used: its NumPy reader copies every tensor, accepts invalid booleans and does not read
indexes, and its writer reorders the tensors. The tests use it as the reference: each reads what the other wrote, and
damaged files.

Source of the format: https://github.com/huggingface/safetensors, "Format": eight bytes of header length
(little-endian), a JSON header `{"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__":
{str: str}}`, then the data, which the tensors cover exactly.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from lucid.core.words.other_libraries import type_name
from lucid.core.words.progress import phase
from lucid.core.words.safe_text import show
from lucid.files.atomic import open_regular, write_atomically
from lucid.files.untrusted import (
    MAX_HEADER,
    MAX_NAME,
    MAX_TENSORS,
    Array,
    WeightsError,
    broken,
    check_booleans,
    check_name,
    check_shape,
    parse_bounded,
)
from lucid.ops.tensor.tensor import Tensor

DTYPES: dict[str, np.dtype[np.generic]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
    "C64": np.dtype("<c8"),
}


class _Entry(NamedTuple):
    """A tensor of a header: its type, its shape and its place in the data."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    begin: int
    end: int


_CODES = {dtype.name: code for code, dtype in DTYPES.items()}

# ---------------------------------------------------------------------------------------------------- reading


def read(buffer: mmap.mmap, path: Path) -> dict[str, Array]:
    """The arrays of a mapped file by name, in the header's order, as views of it.

    Raises:
        WeightsError: for a file that does not follow the format exactly.
    """
    entries, start = _read_header(buffer, path)
    arrays: dict[str, Array] = {}
    for name, entry in entries.items():
        arrays[name] = np.ndarray(entry.shape, entry.dtype, buffer=buffer, offset=start + entry.begin)
        check_booleans(path, name, arrays[name])
    return arrays


def places(path: Path) -> dict[str, tuple[np.dtype[np.generic], tuple[int, ...], range]]:
    """The dtype, the shape and the bytes of each tensor in a file, by name; none are read.

    Raises:
        WeightsError, OSError: as `lucid.load`.
    """
    with open_regular(path) as file:
        if not os.fstat(file.fileno()).st_size:
            raise broken(path, "0 bytes, expected at least 10")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            entries, start = _read_header(buffer, path)
    return {name: (e.dtype, e.shape, range(start + e.begin, start + e.end)) for name, e in entries.items()}


def _read_header(buffer: mmap.mmap, path: Path) -> tuple[dict[str, _Entry], int]:
    """The checked entries by name, in the header's order, and the offset of the data in the file."""
    size = len(buffer)
    if size < 10:
        raise broken(path, f"{size} bytes, expected at least 10")
    length = int.from_bytes(buffer[:8], "little")
    if length > size - 8:
        raise broken(path, f"declares a header of {length} bytes in a file of {size}: truncated, or another format")
    if length > MAX_HEADER:
        raise broken(path, f"a header of {length} bytes, expected at most {MAX_HEADER}")
    document = parse_bounded(buffer[8 : 8 + length], path)
    if not isinstance(document, dict):
        raise broken(path, f"its JSON is {show(document)}, expected an object")
    metadata = document.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise broken(path, "__metadata__ is not an object of strings")
    if len(document) > MAX_TENSORS:
        raise broken(path, f"more than {MAX_TENSORS} entries")
    entries = {name: _entry(document.pop(name), path, name) for name in list(document)}
    _check_coverage(entries, size - 8 - length, path)
    return entries, 8 + length


def _entry(value: object, path: Path, name: str) -> _Entry:
    check_name(name, path)
    match value:
        case {"dtype": str(code), "shape": [*sizes], "data_offsets": [begin, end], **others} if not others:
            pass
        case _:
            raise broken(path, f"tensor {show(name)}: {show(value)}, expected {_FORM}")
    if not all(type(number) is int for number in (*sizes, begin, end)):
        raise broken(path, f"tensor {show(name)}: {show(value)}, expected {_FORM}")
    if code not in DTYPES:
        raise broken(path, f"tensor {show(name)}: dtype {show(code)}, expected one of {', '.join(DTYPES)}")
    entry = _Entry(DTYPES[code], tuple(sizes), begin, end)
    check_shape(path, name, entry.shape, entry.dtype)
    size = math.prod(sizes) * entry.dtype.itemsize
    if end - begin != size:
        got = f"data_offsets {begin} to {end}"
        raise broken(path, f"tensor {show(name)}: {got}, expected {size} bytes for {code} of shape {show(sizes)}")
    return entry


def _check_coverage(entries: Mapping[str, _Entry], size: int, path: Path) -> None:
    """Check that the tensors cover the data exactly: no overlap, no gap, no byte left over."""
    covered, before = 0, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.end > size:
            raise broken(path, f"tensor {show(name)} ends at byte {entry.end} of {size} bytes of data: truncated")
        if entry.begin != covered:
            relation = "overlaps" if entry.begin < covered else f"starts {entry.begin - covered} bytes after"
            raise broken(path, f"tensor {show(name)} {relation} {show(before)}, expected one directly after the other")
        covered, before = entry.end, name
    if covered != size:
        raise broken(path, f"{size - covered} bytes after the last tensor, expected none")


_FORM = '{"dtype": name, "shape": [size, ...], "data_offsets": [begin, end]} in whole numbers >= 0'


# ---------------------------------------------------------------------------------------------------- writing


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor | Array],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors or arrays, such as a `state_dict()`, to a safetensors file, atomically: a crash or a full disk
    leaves the earlier file unchanged.

    The same arrays give the same bytes, and `load` returns them in the same order. Only an array that is not in C order
    and little-endian is copied, one at a time.

    Raises:
        WeightsError: for a name or dtype that the format cannot hold.
        TypeError: for anything but NumPy arrays and text.
        OSError: if the file cannot be written.
    """
    if isinstance(path, Mapping):
        raise TypeError("save: the tensors came first, as in torch.save; write lucid.save(path, tensors)")
    if not isinstance(tensors, Mapping):
        raise TypeError(
            f"save: got {type_name(tensors)}, expected tensors by name, as lucid.save(path, model.state_dict())"
        )
    arrays = {name: tensor.numpy() if isinstance(tensor, Tensor) else tensor for name, tensor in tensors.items()}
    header: dict[str, object] = {}
    if metadata is not None:
        if not all(isinstance(text, str) for item in metadata.items() for text in item):
            raise TypeError(f"save: metadata {show(metadata)}, expected only strings; turn the values into text")
        header["__metadata__"] = dict(metadata)
    for name, array in arrays.items():
        _check_storable(name, array)
    # The widest items come first, so that every array is aligned in memory although gaps are not allowed.
    order = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    begins, end = {}, 0
    for name in order:
        begins[name], end = end, end + arrays[name].nbytes
    for name, array in arrays.items():
        offsets = [begins[name], begins[name] + array.nbytes]
        header[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": offsets,
        }
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise WeightsError(f"save: {show(error.object[:100])} is not valid Unicode text; choose other names") from error
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER or len(arrays) > MAX_TENSORS:
        raise WeightsError(
            f"save: {len(arrays)} arrays and a header of {len(text)} bytes, expected at most {MAX_TENSORS} "
            f"and {MAX_HEADER}; split them into several files"
        )
    with phase("writing", end) as advance, write_atomically(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            flat = np.ascontiguousarray(arrays[name], DTYPES[_CODES[arrays[name].dtype.name]]).reshape(-1)
            file.write(flat.view(np.uint8).data)
            advance(flat.nbytes)


def _check_storable(name: str, array: Array) -> None:
    if not isinstance(name, str) or not isinstance(array, np.ndarray):
        raise TypeError(f"save: {show(name)}: {type_name(array)}, expected a NumPy array under a string")
    if array.dtype.name not in _CODES:
        raise WeightsError(f"save: {show(name)}: dtype {array.dtype}, expected one of {', '.join(_CODES)}; cast it")
    if name == "__metadata__" or len(json.dumps(name, ensure_ascii=False).encode("utf-8", "replace")) > MAX_NAME:
        raise WeightsError(f"save: the name {show(name)} is reserved or too long; choose another")
