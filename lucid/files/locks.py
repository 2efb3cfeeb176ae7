"""Locks between the writers of a file, in one process or several. The system releases a lock when its owner ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

_SUFFIX = ".lucid-lock"


@contextmanager
def exclusively(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Hold the lock of the writers of `path`; waits until no other writer, in this process or another, holds it.

    Yields True with the lock. Yields False if the file system has no locks or denies this one; then other writers may
    be active, and nothing may be removed that they may need. The lock is a file in the target's folder, removed with
    the lock; the file of a killed writer is reused by the next one, because the system has released its lock.
    """
    place = Path(path).with_name(f".{Path(path).name[:50]}{_SUFFIX}")
    file = _acquire(place)
    if file is None:
        yield False
        return
    with file:
        try:
            yield True
        finally:
            with suppress(OSError):  # another user's file in a folder with restricted deletion: an empty file stays
                place.unlink()
            _unlock(file)


def names(path: Path, file: BinaryIO | int) -> bool:
    """Whether a path still names this open file, or folder by its descriptor, and not another one."""
    try:
        return os.path.samestat(os.stat(path), os.stat(file if isinstance(file, int) else file.fileno()))
    except FileNotFoundError:
        return False


def lock(file: BinaryIO | int, wait: bool = False, shared: bool = False) -> bool | None:
    """Take the lock of an open file, or of a folder by its descriptor; several may share it.

    True: this process has it. False: another one holds it. None: the file system has no locks.
    """
    if sys.platform == "win32":
        return None
    else:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        except OSError:  # a network file system without flock
            return None
        return True


def _unlock(file: BinaryIO) -> None:
    if sys.platform != "win32":  # closing is not enough if a fork of this process has the file open, too
        fcntl.flock(file, fcntl.LOCK_UN)


def _acquire(place: Path) -> BinaryIO | None:
    """The lock's file, with the lock on it; None if there are no locks."""
    while (file := _open(place)) is not None:
        with ExitStack() as closing:
            closing.enter_context(file)
            locked = lock(file, wait=True)
            if locked and names(place, file):
                closing.pop_all()
                return file
            if locked is None:
                place.unlink(missing_ok=True)
                return None
        # Its owner has removed the file meanwhile; there may be a new one.
    return None


def _open(place: Path) -> BinaryIO | None:
    if sys.platform == "win32":
        return None
    else:
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):  # another user's file may only be readable
            with suppress(PermissionError, FileNotFoundError):
                return os.fdopen(os.open(place, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666), "rb")
        return None
