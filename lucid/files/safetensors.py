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
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from lucid.core.words.other_libraries import type_name
from lucid.core.words.progress import phase
from lucid.files.atomic import NotAFileError, open_regular, write_atomically
from lucid.ops.tensor.tensor import Tensor

__all__ = ["WeightsError", "load", "save"]

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

MAX_HEADER = 24 << 20  # bytes of header or index: seven times the largest one published
MAX_TENSORS = 1 << 16  # in one file
MAX_KEYS = 1 << 18  # names in a header or index
MAX_MEMBER = 4096  # bytes of one tensor's name

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

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CONVERT = (
    "pickle runs code when it is read, so Lucid does not read it; if you trust the file, convert it: "
    'python -c "import torch, safetensors.torch as s; '
    "d = torch.load('pytorch_model.bin', map_location='cpu', weights_only=True); "
    "s.save_file({k: v.contiguous().clone() for k, v in d.items()}, 'model.safetensors')\""
)
_FOREIGN = {  # other formats that are given by mistake, by their first bytes
    b"PK\x03\x04": f"a zip archive (torch or npz); {CONVERT}",
    b"\x80\x02": f"a pickle; {CONVERT}",
    b"\x80\x03": f"a pickle; {CONVERT}",
    b"\x80\x04": f"a pickle; {CONVERT}",
    b"\x80\x05": f"a pickle; {CONVERT}",
    b"GGUF": "a GGUF file; give it to a model's from_pretrained, or get the model's safetensors file",
    b"\x89HDF": "an HDF5 file; get the model's safetensors file",
    b"\x93NUM": "a .npy array; store it with lucid.save(path, {name: array})",
    b"version https://git-lfs": "a git-lfs pointer, not the file itself; run 'git lfs pull'",
}


class WeightsError(ValueError):
    """A weights file that is broken, hostile or of another kind."""


class _Entry(NamedTuple):
    """A tensor of a header: its type, its shape and its place in the data."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    begin: int
    end: int


_CODES = {dtype.name: code for code, dtype in DTYPES.items()}

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"

# ---------------------------------------------------------------------------------------------------- reading


def load(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a checkpoint: a .safetensors file, a model.safetensors.index.json, or a folder that holds either.

    The header is checked against the file's size before the file is mapped. Copy an array to change it; do not truncate
    a file while its arrays are in use.

    Returns:
        The arrays by name, in the file's order, as read-only views of the memory-mapped files: nothing is copied, and
        only the header is read until an array is used. bfloat16 is `ml_dtypes.bfloat16`.

    Raises:
        WeightsError: for a file that does not follow the format exactly.
        OSError: for a file that is missing or may not be read.
    """
    path = Path(path)
    if path.is_dir():
        path = _find_in(path)
    return _load_sharded(path) if path.name.endswith(".index.json") else _load_file(path)


def files_of(folder: Path) -> list[Path]:
    """The files that `load` reads in a folder; raises the errors of `load` for missing ones."""
    entry = _find_in(folder)
    if entry.name != INDEX:
        return [entry]
    return [entry, *(_shard_path(entry, shard) for shard in dict.fromkeys(_read_index(entry).values()))]


def _find_in(folder: Path) -> Path:
    for name in (SINGLE, INDEX):
        if os.path.lexists(folder / name):
            return folder / name
    names = sorted(entry.name for entry in os.scandir(folder))
    if any(name.endswith(PICKLES) for name in names):
        raise WeightsError(f"{_show(folder)}: holds only pickled weights; {CONVERT}")
    other = [name for name in names if name.endswith(".safetensors")]
    hint = f"give the path of one of {_show(other)}" if other else "download the model's safetensors files into it"
    raise WeightsError(f"{_show(folder)}: expected a folder with {SINGLE} or {INDEX}, found neither; {hint}")


def _load_file(path: Path) -> dict[str, Array]:
    if path.name.endswith(PICKLES):
        raise WeightsError(f"{_show(path)}: a pickle by its name; {CONVERT}")
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        entries, start = _read_header(file, size, path)
        buffer = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    arrays: dict[str, Array] = {}
    for name, entry in entries.items():
        array: Array = np.ndarray(entry.shape, entry.dtype, buffer=buffer, offset=start + entry.begin)
        # NumPy assumes that every byte of a bool is 0 or 1, and computes wrong results from others.
        if entry.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise _broken(path, f"tensor {_show(name)}: a BOOL byte is neither 0 nor 1")
        arrays[name] = array
    return arrays


def _load_sharded(path: Path) -> dict[str, Array]:
    shards: dict[str, list[str]] = {}
    index = _read_index(path)
    for key, shard in index.items():
        shards.setdefault(shard, []).append(key)
    files = {shard: _shard_path(path, shard) for shard in shards}
    arrays: dict[str, Array] = {}
    for shard, keys in shards.items():
        of_shard = _load_file(files[shard])
        if missing := [key for key in keys if key not in of_shard]:
            raise _broken(path, f"assigns {_show(missing)} to {_show(shard)}, which does not have them")
        if omitted := sorted(of_shard.keys() - set(keys)):
            raise _broken(path, f"omits {_show(omitted)}, which {_show(shard)} has")
        arrays.update(of_shard)
    return {key: arrays[key] for key in index}


def _read_index(path: Path) -> dict[str, str]:
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not 0 < size <= MAX_HEADER:
            raise _broken(path, f"an index of {size} bytes, expected 1 to {MAX_HEADER}")
        document = _read_json(file.read(size), path)
    if not isinstance(document, dict) or "weight_map" not in document:
        raise _broken(path, f"expected a member 'weight_map', found {_show(document)}")
    weight_map = document["weight_map"]
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise _broken(path, f"weight_map is {_show(weight_map)}, expected an object of strings")
    if not weight_map:
        raise _broken(path, "an empty weight_map")
    for name in weight_map:
        _check_name(name, path)
    return weight_map


def _shard_path(index: Path, shard: str) -> Path:
    """The file of a shard, which must be a plain name of a file in the index's own folder."""
    if shard in ("", ".", "..") or re.search(r"[/\\:\x00-\x1f]", shard):
        raise WeightsError(
            f"{_show(index)}: names a shard {_show(shard)}, expected a plain file name in the index's folder; "
            "do not use this checkpoint, or correct the name if you trust it"
        )
    if shard.endswith(PICKLES):
        raise WeightsError(f"{_show(index)}: its shard {_show(shard)} is a pickle; {CONVERT}")
    path = index.parent / shard
    try:
        real = Path(os.path.realpath(path, strict=True))
        folder = Path(os.path.realpath(index.parent, strict=True))
    except OSError as error:
        raise WeightsError(f"{_show(index)}: shard {_show(shard)}: {error.strerror}; download it again") from error
    # The hub's cache is a folder snapshots/<revision> of links to the folder blobs/ next to it, which is allowed.
    homes = [folder, folder.parent.parent / "blobs"] if folder.parent.name == "snapshots" else [folder]
    if real.parent not in homes:
        raise WeightsError(
            f"{_show(index)}: shard {_show(shard)} is a link that leads out of the folder, to {_show(real)}; "
            "put the file itself there if you trust it"
        )
    return path


def _open(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except NotAFileError as error:
        raise WeightsError(str(error)) from error


# ----------------------------------------------------------------------------------------------------- headers


def _read_header(file: BinaryIO, size: int, path: Path) -> tuple[dict[str, _Entry], int]:
    """The checked entries by name, in the header's order, and the offset of the data in the file."""
    first = file.read(32)
    # The first bytes of a pickle can also be a header length, but then the header's brace follows.
    for magic, what in _FOREIGN.items():
        if first.startswith(magic) and first[8:9] != b"{":
            raise WeightsError(f"{_show(path)}: expected a safetensors file, got {what}")
    if size < 10:
        raise _broken(path, f"{size} bytes, expected at least 10" if size else "an empty file")
    length = int.from_bytes(first[:8], "little")
    if length > size - 8:
        raise _broken(path, f"declares a header of {length} bytes in a file of {size}: truncated, or another format")
    if length > MAX_HEADER:
        raise _broken(path, f"a header of {length} bytes, expected at most {MAX_HEADER}")
    file.seek(8)
    document = _read_json(file.read(length), path)
    if not isinstance(document, dict):
        raise _broken(path, f"its JSON is {_show(document)}, expected an object")
    metadata = document.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise _broken(path, "__metadata__ is not an object of strings")
    if len(document) > MAX_TENSORS:
        raise _broken(path, f"more than {MAX_TENSORS} entries")
    entries = {name: _entry(document.pop(name), path, name) for name in list(document)}
    _check_coverage(entries, size - 8 - length, path)
    return entries, 8 + length


def _entry(value: object, path: Path, name: str) -> _Entry:
    _check_name(name, path)
    match value:
        case {"dtype": str(code), "shape": [*sizes], "data_offsets": [begin, end], **others} if not others:
            pass
        case _:
            raise _broken(path, f"tensor {_show(name)}: {_show(value)}, expected {_FORM}")
    if not all(type(number) is int for number in (*sizes, begin, end)):
        raise _broken(path, f"tensor {_show(name)}: {_show(value)}, expected {_FORM}")
    if code not in DTYPES:
        raise _broken(path, f"tensor {_show(name)}: dtype {_show(code)}, expected one of {', '.join(DTYPES)}")
    entry = _Entry(DTYPES[code], tuple(sizes), begin, end)
    # NumPy's limits; that on the bytes applies even if a zero makes the array empty.
    if len(sizes) > 64 or math.prod(filter(None, sizes)) * entry.dtype.itemsize >= 1 << 63:
        raise _broken(path, f"tensor {_show(name)}: shape {_show(sizes)}, expected <= 64 sizes, < 2^63 bytes")
    size = math.prod(sizes) * entry.dtype.itemsize
    if end - begin != size:
        got = f"data_offsets {begin} to {end}"
        raise _broken(path, f"tensor {_show(name)}: {got}, expected {size} bytes for {code} of shape {_show(sizes)}")
    return entry


def _check_coverage(entries: Mapping[str, _Entry], size: int, path: Path) -> None:
    """Check that the tensors cover the data exactly: no overlap, no gap, no byte left over."""
    covered, before = 0, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.end > size:
            raise _broken(path, f"tensor {_show(name)} ends at byte {entry.end} of {size} bytes of data: truncated")
        if entry.begin != covered:
            relation = "overlaps" if entry.begin < covered else f"starts {entry.begin - covered} bytes after"
            raise _broken(
                path, f"tensor {_show(name)} {relation} {_show(before)}, expected one directly after the other"
            )
        covered, before = entry.end, name
    if covered != size:
        raise _broken(path, f"{size - covered} bytes after the last tensor, expected none")


_FORM = '{"dtype": name, "shape": [size, ...], "data_offsets": [begin, end]} in whole numbers >= 0'


# One of the characters :,[{ outside of strings, the first in a group; or the end. It cannot backtrack.
_TOKEN = re.compile(rb'(?:[^":,\[{]++|"(?:[^"\\]++|\\.)*+"?)*+(?:(:)|[,\[{]|\Z)', re.DOTALL)
_MOST_MEMBERS = MAX_KEYS + 64
_MOST_VALUES = 16 * MAX_TENSORS


def _read_json(text: bytes, path: Path) -> Any:
    """The value of an untrusted JSON text. The memory that it takes is bounded before it is parsed.

    Whole numbers of 0 and more are integers, of up to 19 digits; other numbers are of another type.
    """
    _check_bounds(text, path)
    try:
        decoded = text.decode()
        del text  # which would take memory while it is parsed
        return json.loads(decoded, object_pairs_hook=_object, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"no valid JSON: {error}") from error


def _check_bounds(text: bytes, path: Path) -> None:
    wide = 4 if re.search(rb"[\xf0-\xff]", text) else 2 if re.search(rb"[\xc4-\xff]", text) else 1
    if len(text) * wide > MAX_HEADER:  # decoded, each character takes as many bytes as the widest
        raise _broken(path, f"JSON of {len(text)} bytes, {wide} for each character, expected at most {MAX_HEADER}")
    members = values = 0
    for token in _TOKEN.finditer(text):
        members, values = members + (token.lastindex is not None), values + 1
        if members > _MOST_MEMBERS or values - members > _MOST_VALUES:
            raise _broken(path, f"JSON of more than {_MOST_MEMBERS} members or {_MOST_VALUES} values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the name {_show(name)} occurs twice")
        name.encode()  # half of a surrogate pair is not text
        members[name] = value
    return members


def _whole(text: str) -> int | float:
    return int(text) if text.isdecimal() and len(text) < 20 else float(text)


def _check_name(name: str, path: Path) -> None:
    """Refuse a name of more than `MAX_MEMBER` bytes."""
    if len(name.encode()) > MAX_MEMBER:
        raise _broken(path, f"a name of {len(name)} letters, {_show(name)}, expected at most {MAX_MEMBER} bytes")


# A message names the file and shows untrusted text escaped and shortened.


def _broken(path: Path, what: str) -> WeightsError:
    return WeightsError(f"{_show(path)}: {what}; get an intact copy of the file")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200


def _show(value: object) -> str:
    return _SHORT.repr(os.fspath(value) if isinstance(value, Path) else value)


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
    arrays = {name: tensor.numpy() if isinstance(tensor, Tensor) else tensor for name, tensor in tensors.items()}
    header: dict[str, object] = {}
    if metadata is not None:
        if not all(isinstance(text, str) for item in metadata.items() for text in item):
            raise TypeError(f"save: metadata {_show(metadata)}, expected only strings; turn the values into text")
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
        raise WeightsError(
            f"save: {_show(error.object[:100])} is not valid Unicode text; choose other names"
        ) from error
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
        raise TypeError(f"save: {_show(name)}: {type_name(array)}, expected a NumPy array under a string")
    if array.dtype.name not in _CODES:
        raise WeightsError(f"save: {_show(name)}: dtype {array.dtype}, expected one of {', '.join(_CODES)}; cast it")
    if name == "__metadata__" or len(json.dumps(name, ensure_ascii=False).encode("utf-8", "replace")) > MAX_MEMBER:
        raise WeightsError(f"save: the name {_show(name)} is reserved or too long; choose another")
