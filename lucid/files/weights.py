"""Weights of a checkpoint by name, whatever stores them: safetensors or torch's files, one file or shards."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from lucid.core.torch_names.argument_names import check_device, torch_names_and
from lucid.core.words.safe_text import show
from lucid.files import safetensors, torch_files
from lucid.files.atomic import NotAFileError, open_regular
from lucid.files.safetensors import save as save
from lucid.files.untrusted import MAX_HEADER, Array, broken, check_name, parse_bounded
from lucid.files.untrusted import WeightsError as WeightsError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
NAMES = (SINGLE, INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json")
"""What is read in a folder: the first of these that it has."""

_FOREIGN = {  # other formats that are given by mistake, by their first bytes
    b"GGUF": "a GGUF file; give it to a model's from_pretrained, or get the model's safetensors file",
    b"\x89HDF": "an HDF5 file; get the model's safetensors file",
    b"\x93NUM": "a .npy array; store it with lucid.save(path, {name: array})",
    b"version https://git-lfs": "a git-lfs pointer, not the file itself; run 'git lfs pull'",
}


@torch_names_and("weights_only", "mmap")
def load(path: str | os.PathLike[str], map_location: Any = None) -> dict[str, Array]:
    """Read the weights of a checkpoint: a safetensors file, a file of `torch.save`, an index of shards, or a folder.

    A folder holds model.safetensors or pytorch_model.bin, each in one file or in shards with an index; safetensors come
    first. torch's files are pickles, which are never run: they are read as data, and anything but tensors by name is an
    error. The description of the tensors is checked against the file's size before an array is made. Copy an array to
    change it; do not truncate a file while its arrays are in use.

    Args:
        path: the file or folder.
        map_location: torch's argument, which can only name the CPU; its `weights_only` and `mmap` change nothing.

    Returns:
        The arrays by name, in the file's order, as read-only views of the memory-mapped files: nothing is copied, and
        only the description of the arrays is read until one is used. bfloat16 is `ml_dtypes.bfloat16`. Tensors that
        share memory in a file of torch's, and transposed ones, are views that share it and are strided.

    Raises:
        WeightsError: for a file that does not follow its format exactly.
        OSError: for a file that is missing or may not be read.
        ValueError: for another device than the CPU.
    """
    if not callable(map_location) and not isinstance(map_location, Mapping):  # where storages of a file would go
        check_device("load", map_location)
    path = Path(path)
    if path.is_dir():
        path = _find_in(path)
    return _load_sharded(path) if path.name.endswith(".index.json") else _load_file(path)


def files_of(folder: Path) -> list[Path]:
    """The files that `load` reads in a folder; raises the errors of `load` for missing ones."""
    entry = _find_in(folder)
    if not entry.name.endswith(".index.json"):
        return [entry]
    return [entry, *(_shard_path(entry, shard) for shard in dict.fromkeys(_read_index(entry).values()))]


def _find_in(folder: Path) -> Path:
    for name in NAMES:
        if os.path.lexists(folder / name):
            return folder / name
    names = sorted(entry.name for entry in os.scandir(folder))
    other = [name for name in names if name.endswith((".safetensors", ".bin", ".pt", ".pth", ".ckpt"))]
    if other:
        hint = f"give the path of one of {show(other)}"
    elif any(name.endswith(".onnx") for name in names) or next(folder.glob("onnx/*.onnx"), None):
        hint = "its ONNX files are an export, from which no weights are read; give the checkpoint that was exported"
    else:
        hint = "download the model's safetensors files into it"
    raise WeightsError(
        f"{show(folder)}: expected a folder with {SINGLE}, pytorch_model.bin or an index of shards, found none of "
        f"these; {hint}"
    )


def _load_file(path: Path) -> dict[str, Array]:
    with _open(path) as file:
        first = file.read(512)
        for magic, what in _FOREIGN.items():
            if first.startswith(magic):
                raise WeightsError(f"{show(path)}: expected a safetensors file or one of torch's, got {what}")
        if not first:
            raise broken(path, "an empty file")
        buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return torch_files.read(buffer, path) if torch_files.is_one(first) else safetensors.read(buffer, path)


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
            raise broken(path, f"assigns {show(missing)} to {show(shard)}, which does not have them")
        if omitted := sorted(of_shard.keys() - set(keys)):
            raise broken(path, f"omits {show(omitted)}, which {show(shard)} has")
        arrays.update(of_shard)
    return {key: arrays[key] for key in index}


def _read_index(path: Path) -> dict[str, str]:
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not 0 < size <= MAX_HEADER:
            raise broken(path, f"an index of {size} bytes, expected 1 to {MAX_HEADER}")
        document = parse_bounded(file.read(size), path)
    if not isinstance(document, dict) or "weight_map" not in document:
        raise broken(path, f"expected a member 'weight_map', found {show(document)}")
    weight_map = document["weight_map"]
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise broken(path, f"weight_map is {show(weight_map)}, expected an object of strings")
    if not weight_map:
        raise broken(path, "an empty weight_map")
    for name in weight_map:
        check_name(name, path)
    return weight_map


def _shard_path(index: Path, shard: str) -> Path:
    """The file of a shard, which must be a plain name of a file in the index's own folder."""
    if shard in ("", ".", "..") or re.search(r"[/\\:\x00-\x1f]", shard):
        raise WeightsError(
            f"{show(index)}: names a shard {show(shard)}, expected a plain file name in the index's folder; "
            "do not use this checkpoint, or correct the name if you trust it"
        )
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
