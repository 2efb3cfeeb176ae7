"""Locks between the writers of a file, in one process or several. The system drops a lock however its owner ends."""

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
    """Wait until no other writer of `path` is in a block of this kind, in this process or another.

    True: no other one is. False: the file system has no locks, or denies this one, so others may be: then
    nothing may be removed that another writer may need. The lock is a file beside the target, removed with the lock;
    what a killed writer left is taken over by the next one, for the system has dropped its lock.
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
            with suppress(OSError):  # another user's, in a folder that keeps it so: an empty file that stays
                place.unlink()
            _unlock(file)


def names(path: Path, file: BinaryIO) -> bool:
    """Whether a path names this open file, and not another one by now."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def lock(file: BinaryIO, wait: bool = False) -> bool | None:
    """True: the lock is ours. False: somebody holds it. None: there are no locks here."""
    if sys.platform == "win32":
        return None
    else:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a network file system without flock
            return None
        return True


def _unlock(file: BinaryIO) -> None:
    if sys.platform != "win32":  # closing is not enough where a fork of this process has the file open, too
        fcntl.flock(file, fcntl.LOCK_UN)


def _acquire(place: Path) -> BinaryIO | None:
    """The lock's file, with the lock on it; None where there can be none."""
    while (file := _open(place)) is not None:
        with ExitStack() as closing:
            closing.enter_context(file)
            held = lock(file, wait=True)
            if held and names(place, file):
                closing.pop_all()
                return file
            if held is None:
                place.unlink(missing_ok=True)
                return None
        # The one that held it has removed it meanwhile; there may be a new one.
    return None


def _open(place: Path) -> BinaryIO | None:
    if sys.platform == "win32":
        return None
    else:
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):  # another user's may allow no more than reading
            with suppress(PermissionError, FileNotFoundError):
                return os.fdopen(os.open(place, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666), "rb")
        return None
