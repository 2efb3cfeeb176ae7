"""Weights in safetensors files: read without copying, written atomically, and never trusted.

The safetensors library is not used: its NumPy reader copies every tensor, accepts invalid booleans and does not read
indexes, and its writer reorders the tensors. The tests use it as the reference: each reads what the other wrote, and
damaged files.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lucid.core.words.other_libraries import type_name
from lucid.core.words.progress import phase
from lucid.files.atomic import NotAFileError, open_regular, write_atomically
from lucid.files.safetensors_header import (
    CONVERT,
    DTYPES,
    MAX_HEADER,
    MAX_MEMBER,
    MAX_TENSORS,
    PICKLES,
    WeightsError,
    broken,
    checked_utf8,
    members,
    read_header,
    show,
    strings,
)
from lucid.ops.tensor.tensor import Tensor

__all__ = ["WeightsError", "load", "save"]

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

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
    """The files that `load` reads of a folder; raises its errors for what is missing."""
    found = _find_in(folder)
    if found.name != INDEX:
        return [found]
    return [found, *(_shard_path(found, shard) for shard in dict.fromkeys(_read_index(found).values()))]


def _find_in(folder: Path) -> Path:
    for name in (SINGLE, INDEX):
        if os.path.lexists(folder / name):
            return folder / name
    names = sorted(entry.name for entry in os.scandir(folder))
    if any(name.endswith(PICKLES) for name in names):
        raise WeightsError(f"{show(folder)}: holds only pickled weights; {CONVERT}")
    other = [name for name in names if name.endswith(".safetensors")]
    hint = f"give the path of one of {show(other)}" if other else "download the model's safetensors files into it"
    raise WeightsError(f"{show(folder)}: expected a folder with {SINGLE} or {INDEX}, found neither; {hint}")


def _load_file(path: Path) -> dict[str, Array]:
    if path.name.endswith(PICKLES):
        raise WeightsError(f"{show(path)}: a pickle by its name; {CONVERT}")
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        entries, start = read_header(file, size, path)
        buffer = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    arrays: dict[str, Array] = {}
    for name, entry in entries.items():
        array: Array = np.ndarray(entry.shape, entry.dtype, buffer=buffer, offset=start + entry.begin)
        # NumPy assumes that every byte of a bool is 0 or 1, and computes wrong results from others.
        if entry.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise broken(path, f"tensor {show(name)}: a BOOL byte is neither 0 nor 1")
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
        held = _load_file(files[shard])
        if missing := [key for key in keys if key not in held]:
            raise broken(path, f"assigns {show(missing)} to {show(shard)}, which does not have them")
        if omitted := sorted(held.keys() - set(keys)):
            raise broken(path, f"omits {show(omitted)}, which {show(shard)} has")
        arrays.update(held)
    return {key: arrays[key] for key in index}


def _read_index(path: Path) -> dict[str, str]:
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not 0 < size <= MAX_HEADER:
            raise broken(path, f"an index of {size} bytes, expected 1 to {MAX_HEADER}")
        text = checked_utf8(file.read(size), path)
    spans = {name: (begin, end) for name, begin, end in members(text, path)}
    if "weight_map" not in spans:
        raise broken(path, f"expected a member 'weight_map', found {show(list(spans))}")
    weight_map = strings(text, *spans["weight_map"], path)
    if not weight_map:
        raise broken(path, "an empty weight_map")
    return weight_map


def _shard_path(index: Path, shard: str) -> Path:
    """The file of a shard, which must be a plain name of a file in the index's own folder."""
    if shard in ("", ".", "..") or re.search(r"[/\\:\x00-\x1f]", shard):
        raise WeightsError(
            f"{show(index)}: names a shard {show(shard)}, expected a plain file name in the index's folder; "
            "do not use this checkpoint, or correct the name if you trust it"
        )
    if shard.endswith(PICKLES):
        raise WeightsError(f"{show(index)}: its shard {show(shard)} is a pickle; {CONVERT}")
    path = index.parent / shard
    try:
        real = Path(os.path.realpath(path, strict=True))
        folder = Path(os.path.realpath(index.parent, strict=True))
    except OSError as error:
        raise WeightsError(f"{show(index)}: shard {show(shard)}: {error.strerror}; download it again") from error
    # The hub's cache is a folder snapshots/<revision> of links to the folder blobs/ next to it, which is allowed.
    homes = [folder, folder.parent.parent / "blobs"] if folder.parent.name == "snapshots" else [folder]
    if real.parent not in homes:
        raise WeightsError(
            f"{show(index)}: shard {show(shard)} is a link that leads out of the folder, to {show(real)}; "
            "put the file itself there if you trust it"
        )
    return path


def _open(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except NotAFileError as error:
        raise WeightsError(str(error)) from error


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
    if name == "__metadata__" or len(json.dumps(name, ensure_ascii=False).encode("utf-8", "replace")) > MAX_MEMBER:
        raise WeightsError(f"save: the name {show(name)} is reserved or too long; choose another")
