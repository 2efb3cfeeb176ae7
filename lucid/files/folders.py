"""Folders that appear whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from lucid.files.atomic import DiskFullError, explained, explaining, is_stream, leftovers, sync_folder, temporary_name
from lucid.files.locks import lock, names

_THIS_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_SWAP = 2  # RENAME_SWAP of macOS
_NOT_OFFERED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # by the system, or this file system

Check: TypeAlias = Callable[[Path], None]
"""Called with a folder that is there and not empty; raises FileExistsError if it must stay."""


@contextmanager
def new_folder(path: str | os.PathLike[str], may_replace: Check | None = None) -> Iterator[Path]:
    """A folder to fill; it gets the name `path` only if the block ends without an error.

    It is filled under a temporary name next to its place, and renamed when all names in it are on the disk (the files
    are written by `lucid.files`). After an error it is removed. Folders that killed writers left are removed by the
    next writer of the same name.

    Args:
        path: its name. A folder of that name is replaced as a whole, if it is empty or `may_replace` allows it, and
            then removed; until then it stays as it was.
        may_replace: checks a folder that is not empty; without it every such folder stays.

    Raises:
        FileExistsError: for a folder that must stay, and for the working folder; neither is touched.
        OSError: for a file of that name, a missing parent folder, missing permission or a full disk.
    """
    if is_stream(path):
        raise NotADirectoryError(
            errno.ENOTDIR, f"cannot write {os.fspath(path)}: it is a pipe or a device; give the name of a folder"
        )
    target = Path(path).resolve()
    check_place(target, may_replace)
    temporary = temporary_name(target)  # before the try, so that after an interrupt it can always be removed
    try:
        with _made(temporary, target):
            yield temporary
            for folder in [*temporary.rglob("*"), temporary]:
                if folder.is_dir():
                    sync_folder(folder)
            _publish(temporary, target, may_replace)
    except DiskFullError as error:
        raise explained(error, target) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # once renamed, there is none, or the one that was replaced


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder that others may write to as well.

    Raises:
        FileExistsError: if another process or thread holds it.
    """
    descriptor = _locked(folder)
    if descriptor is None:
        raise FileExistsError(
            errno.EEXIST,
            f"cannot write {folder}: another process is at it; wait until it has ended, or give another output",
        )
    try:
        yield
    finally:
        _close(descriptor)


def check_place(target: Path, may_replace: Check | None = None) -> None:
    """Refuse a target whose place a new folder cannot take."""
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, f"cannot write {target}: the folder {target.parent} does not exist; create it first"
        )
    if not target.exists():
        return
    if not target.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"cannot write {target}: it is a file; give the name of a folder")
    full = any(target.iterdir())
    if full and may_replace is None:
        raise _not_empty(target)
    if Path.cwd().is_relative_to(target):
        raise FileExistsError(
            errno.EEXIST, f"cannot write {target}: the working folder cannot be replaced; give the name of a new one"
        )
    if full and may_replace is not None:
        may_replace(target)


def _not_empty(target: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, f"cannot write {target}: the folder is not empty; give the name of a new one")


@contextmanager
def _made(temporary: Path, target: Path) -> Iterator[None]:
    """Make the folder and hold its lock, so that no other writer takes it for a leftover."""
    descriptor = None
    with explaining(target):
        _remove_leftovers(target)
        while descriptor is None:  # another writer may remove the folder before it is locked
            temporary.mkdir(exist_ok=True)
            descriptor = _locked(temporary)
    try:
        yield
    finally:
        _close(descriptor)


def _remove_leftovers(target: Path) -> None:
    """Remove the folders that killed writers left, as `files.remove_leftovers` removes files."""
    for entry in leftovers(target):
        if entry.is_dir(follow_symlinks=False):
            descriptor = _locked(Path(entry.path))
            if descriptor is not None and lock(descriptor) is True:  # not in a file system without locks
                shutil.rmtree(entry.path, ignore_errors=True)
            _close(descriptor)


def _locked(folder: Path) -> int | None:
    """The folder's descriptor, with the lock if there are locks; None if another writer has it or has removed it."""
    if sys.platform == "win32":  # folders cannot be opened there
        return -1
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except (FileNotFoundError, PermissionError):  # the second: another user's
        return None
    if lock(descriptor) is not False and names(folder, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _close(descriptor: int | None) -> None:
    if descriptor is not None and sys.platform != "win32":
        os.close(descriptor)


def _publish(temporary: Path, target: Path, may_replace: Check | None) -> None:
    if target.exists():  # it may be another one than at the beginning
        check_place(target, may_replace)
        shutil.copymode(target, temporary)
        _exchange(temporary, target)
    else:
        os.rename(temporary, target)
    sync_folder(target.parent)


def _exchange(new: Path, old: Path) -> None:
    """Exchange the names of two folders in one parent folder.

    On Linux and macOS, in file systems that offer it, this is one step: at any moment there is a folder of each name.
    Elsewhere `old` names nothing for a moment.

    Raises:
        OSError: if they cannot be renamed; both then have their names as before.
    """
    code = _error_of_exchange(os.fsencode(new), os.fsencode(old))
    if code in _NOT_OFFERED:
        _in_three_steps(new, old)
    elif code:
        raise OSError(code, os.strerror(code), str(new), None, str(old))


def _error_of_exchange(new: bytes, old: bytes) -> int:
    """The error number of the system's call; 0 if it has exchanged the names."""
    if sys.platform == "win32":  # has no such call
        return errno.ENOSYS
    else:
        library = ctypes.CDLL(None, use_errno=True)
        try:
            if sys.platform == "darwin":
                failed = library.renamex_np(new, old, _SWAP)
            else:
                failed = library.renameat2(_THIS_FOLDER, new, _THIS_FOLDER, old, _EXCHANGE)
        except AttributeError:  # a C library without the function
            return errno.ENOSYS
        return ctypes.get_errno() if failed else 0


def _in_three_steps(new: Path, old: Path) -> None:
    aside = new.with_name(f"{new.name}-old")
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except OSError:
        os.rename(aside, old)
        raise
    os.rename(aside, new)
