"""Files that appear whole or not at all, and files that are safe to open.

`write_atomically` is how every file of Lucid is written: into a temporary file in the same folder, which
takes the target's name only when it is complete and on the disk. `open_regular` is how every file from a
stranger is opened.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

if sys.platform == "win32":
    _READ = os.O_RDONLY | os.O_BINARY
else:
    import fcntl

    # Between the two looks of `open_regular` a pipe may take the file's place: open it without waiting.
    _READ = os.O_RDONLY | os.O_NONBLOCK

_SUFFIX = ".lucid-tmp"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


class NotAFileError(ValueError):
    """The path names a folder, pipe, socket or device where a regular file was expected."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; symbolic links are followed.

    Raises `NotAFileError` for anything but a regular file (a pipe would wait for ever, a device can act on
    being read), `OSError` when the file is missing or may not be read.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"there is no file {os.fspath(path)!r}; check the path") from error
    if not stat.S_ISREG(mode):
        raise NotAFileError(_not_a_file(path))
    file = os.fdopen(os.open(path, _READ), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise NotAFileError(_not_a_file(path))


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file for writing; it takes the name `path` only when the block ends without an error.

    The data is on the disk (fsync of file and folder) before the name changes hands, so a crash at any moment
    leaves the earlier file or the new one, never a part. On an error the temporary file is removed and an
    earlier file keeps its bytes. What a killed writer left behind is removed by the next one. An earlier
    file's permissions are kept; a symbolic link at `path` is replaced, not followed.

    Raises `OSError` for a missing folder, missing permission or a full disk; each message names the path.
    """
    target = Path(path)
    mode = _mode_of_target(target)
    done = False
    temporary = _name_beside(target)  # chosen before the try, so that an interrupt at any moment finds what to remove
    try:
        try:
            remove_leftovers(target)
            while (file := _create(temporary)) is None:
                temporary = _name_beside(target)
        except OSError as error:
            if error.errno not in _DENIED + _FULL:
                raise
            raise _explained(error, target) from error
        with file:
            yield file
            file.flush()
            if mode is not None:
                os.chmod(temporary, mode)
            os.fsync(file.fileno())
            if sys.platform == "win32":  # an open file cannot be renamed there
                file.close()
            os.replace(temporary, target)  # elsewhere while still locked, so that no other writer takes it for dead
            done = True
        _sync_folder(target.parent)
    except OSError as error:
        if error.errno not in _FULL:  # anything else may come from the block, and be about another file
            raise
        raise _explained(error, target) from error
    finally:
        if not done:
            temporary.unlink(missing_ok=True)


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove what killed writers of `path`, or of files whose names begin with its name, left behind.

    A living writer holds a lock on its temporary file (the system drops it however the writer ends), so only
    files without an owner go. Where the file system has no locks, nothing is removed.
    """
    target = Path(path)
    for entry in os.scandir(target.parent):
        if (
            entry.name.startswith(_prefix(target))
            and entry.name.endswith(_SUFFIX)
            and entry.is_file(follow_symlinks=False)
        ):
            _remove_if_dead(Path(entry.path))


def _prefix(target: Path) -> str:
    # Cut, so that a long name stays below the file system's limit; a neighbour's leftover is welcome too.
    return "." + target.name[:50]


def _name_beside(target: Path) -> Path:
    return target.with_name(f"{_prefix(target)}.{os.urandom(4).hex()}{_SUFFIX}")


def _create(temporary: Path) -> BinaryIO | None:
    """A new file with our lock on it; None when another writer took it for a leftover before the lock was ours."""
    file = open(temporary, "xb")  # noqa: SIM115 - closed by the caller's with
    if _lock(file) is not False and _names(temporary, file):
        return file
    file.close()
    return None


def _names(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _lock(file: BinaryIO) -> bool | None:
    """True: the lock is ours. False: somebody holds it. None: there are no locks here."""
    if sys.platform == "win32":
        return None
    else:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a network file system without flock
            return None
        return True


def _remove_if_dead(leftover: Path) -> None:
    try:
        with open_regular(leftover) as file:
            if sys.platform != "win32" and _lock(file) is True:
                leftover.unlink(missing_ok=True)
        if sys.platform == "win32":  # removing a file that a living writer has open fails there
            leftover.unlink(missing_ok=True)
    except (FileNotFoundError, PermissionError):
        pass  # gone meanwhile, or another user's: neither is ours to report


def _mode_of_target(target: Path) -> int | None:
    """The earlier file's permission bits, None without one; refuses targets that no file can replace."""
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, f"cannot write {target}: there is no folder {target.parent}; make it first"
        )
    if target.name in ("", ".."):
        raise IsADirectoryError(errno.EISDIR, f"cannot write {target}: that is a folder; give a file name")
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None  # nothing there, or a dangling link
    except PermissionError as error:
        raise _explained(error, target) from error
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, f"cannot write {target}: that is a folder; give a file name")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"cannot write {target}: not a regular file; give the name of a file")
    if not os.access(target, os.W_OK):
        raise PermissionError(
            errno.EACCES,
            f"cannot write {target}: it is write-protected; allow writing or choose another name",
        )
    return stat.S_IMODE(mode)


def _explained(error: OSError, target: Path) -> OSError:
    if error.errno in _FULL:
        text = "the disk, quota or file size limit is full; free some space or choose another folder"
    else:
        text = f"no permission to create files in {target.parent}; change its rights or choose another folder"
    return OSError(error.errno, f"cannot write {target}: {text} (what was there before is untouched)")


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":  # folders cannot be opened there; the rename is journalled
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: a network file system that cannot sync folders
            raise
    finally:
        os.close(descriptor)


def _not_a_file(path: str | os.PathLike[str]) -> str:
    kind = "a folder" if os.path.isdir(path) else "a pipe, socket or device"
    return f"{os.fspath(path)!r}: expected a regular file, got {kind}; give the path of a file"
