"""Files to read and write, on this machine or in an object store, by fsspec's addresses."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import infer_compression

from lucid.core.words.suggestions import or_check
from lucid.files.atomic import explaining, write_atomically

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""The endings of compressed files."""

# The names under which file systems report the version of a file's content.
_VERSIONS = ("mtime", "ETag", "etag", "LastModified", "last_modified", "updated", "created")


def address(place: str | os.PathLike[str]) -> str:
    """An absolute path, which is the same in every process; URLs such as `s3://...` stay as they are."""
    text = os.fspath(place)
    return text if "://" in text else os.path.abspath(text)


def files_at(place: str) -> list[str]:
    """The files of an address, sorted: one file, those of a pattern, or all in a folder and its subfolders.

    What begins with a dot or an underscore is passed over, files and in a folder also subfolders: programs keep copies,
    marks and unfinished files there.

    Raises:
        FileNotFoundError: if there are none.
    """
    system, path = _system(place)
    if system.isdir(path):
        paths = [each for each in system.find(path) if not _is_hidden(os.path.dirname(each.removeprefix(path)))]
    elif system.exists(path):  # a name may have the characters of a pattern
        paths = [path]
    else:
        paths = [each for each in system.glob(path) if system.isfile(each)]
    shown = sorted(each for each in paths if not _is_hidden(os.path.basename(each)))
    if not shown:
        hint = or_check(place) if isinstance(system, LocalFileSystem) else ""
        raise FileNotFoundError(f"there is no file {place!r}{hint}")
    return [each if isinstance(system, LocalFileSystem) else system.unstrip_protocol(each) for each in shown]


def _is_hidden(path: str) -> bool:
    return any(name.startswith((".", "_")) for name in path.split("/"))


def open_file(place: str) -> BinaryIO:
    """A file to read from any position, decompressed if its name has one of the endings `COMPRESSED`.

    Raises:
        ModuleNotFoundError: if what decompresses it is not installed.
    """
    system, path = _system(place)
    if path.lower().endswith(COMPRESSED) and infer_compression(path) is None:  # only .zst is not Python's own
        raise ModuleNotFoundError(f"{place}: needs a package: pip install backports.zstd")
    file: BinaryIO = system.open(path, "rb", compression="infer")
    return file


def read_file(place: str) -> bytes:
    """All of a file."""
    system, path = _system(place)
    data: bytes = system.cat_file(path)
    return data


def size_and_version(place: str) -> tuple[int, str]:
    """The size of a file, and a value that changes with its content."""
    system, path = _system(place)
    info = system.info(path)
    version = next((str(info[name]) for name in _VERSIONS if info.get(name) is not None), "")
    return int(info.get("size") or 0), version


def names_in(folder: str) -> set[str]:
    """The names of the files in a folder; none for a folder that does not exist.

    Raises:
        FileExistsError: for a file.
    """
    system, path = _system(folder)
    if not system.exists(path):
        return set()
    if not system.isdir(path):
        raise FileExistsError(f"{folder}: is a file, expected a folder; give the name of a new one")
    return {os.path.basename(each) for each in system.ls(path, detail=False)}


def make_folder(folder: str) -> None:
    """Make a folder, on file systems that have folders.

    Raises:
        OSError: if it cannot be made.
    """
    system, path = _system(folder)
    with explaining(Path(path)) if isinstance(system, LocalFileSystem) else nullcontext():
        system.makedirs(path, exist_ok=True)


@contextmanager
def writing(place: str) -> Iterator[BinaryIO]:
    """A file that appears whole or not at all: by its name on a disk, in one request in an object store.

    Raises:
        OSError: as `lucid.files.write_atomically`.
    """
    system, path = _system(place)
    if isinstance(system, LocalFileSystem):
        with write_atomically(Path(path)) as file:
            yield file
        return
    memory = io.BytesIO()
    yield memory
    system.pipe_file(path, memory.getvalue())


def _system(place: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it; errors about other addresses name them."""
    try:
        system, path = fsspec.core.url_to_fs(place)
    except ImportError as error:  # of the package for a kind of store, which the error names
        raise ModuleNotFoundError(f"{place}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{place}: {error}; give a path, or an address that fsspec knows") from error
    return system, str(path)
