"""The list of files that Lucid wrote to a folder: a folder with other or changed files is not replaced."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lucid.core.version import __version__
from lucid.layouts.checkpoint_files import sha256
from lucid.models.checkpoints.config import ConfigError, read_json, read_optional_json, write_json

MANIFEST = "lucid_export.json"
_EDITED = 1 << 20  # larger files are compared by size alone: nobody edits them by hand


def write_manifest(folder: Path, layout: str, weights: Mapping[str, Sequence[str]]) -> None:
    """List the files of a folder in a file of its own, and in which types each ONNX file stores its weights.

    Raises:
        OSError: if it cannot be written.
    """
    files = {name: _seen(path) for name, path in _files(folder).items() if name != MANIFEST}
    made_by = f"lucid {__version__}"
    write_json(folder / MANIFEST, {"made_by": made_by, "layout": layout, "weights": weights, "files": files})


def stored_weights(folder: Path) -> list[tuple[str, ...]]:
    """The types in which a folder stores weights, such as ``("8 bits", "float32")``: each once; [] if it does not say.

    Raises:
        ConfigError: for a list of files that is not a JSON object.
    """
    weights = read_optional_json(folder / MANIFEST).get("weights")
    kinds = weights.values() if isinstance(weights, dict) else ()
    return list(dict.fromkeys(tuple(map(str, kind)) for kind in kinds if isinstance(kind, list)))


def check_replaceable(folder: Path) -> None:
    """Whether a folder holds what Lucid wrote there and nothing else.

    Raises:
        FileExistsError: if it does not; the message names a file.
    """
    if not (folder / MANIFEST).is_file():
        raise _kept(folder, "the folder is not empty, and Lucid did not write it")
    there = _files(folder)
    try:
        listed = read_json(there.pop(MANIFEST)).get("files")
    except ConfigError:
        listed = None
    if not isinstance(listed, dict):
        raise _kept(folder, f"its {MANIFEST} is not as Lucid wrote it")
    for name, path in there.items():
        if name not in listed:
            raise _kept(folder, f"it holds {name}, which Lucid did not write")
        if path.is_symlink() or not path.is_file() or _seen(path) != listed[name]:
            raise _kept(folder, f"its {name} was changed since Lucid wrote it")


def _files(folder: Path) -> dict[str, Path]:
    """All but folders, by their paths in the folder."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _seen(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    return {"bytes": size} if size > _EDITED else {"bytes": size, "sha256": sha256(path)}


def _kept(folder: Path, why: str) -> FileExistsError:
    return FileExistsError(
        errno.EEXIST,
        f"cannot write {folder}: {why}; give the name of a new folder, or force (--force) to replace all of it",
    )
