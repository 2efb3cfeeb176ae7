"""Writing files that appear whole or not at all, and opening files safely.

Lucid writes every file with `write_atomically`: to a temporary file in the same folder, which is renamed to the target
only when it is complete and on the disk. `draft` is the same in steps. `write` also takes a pipe or a device, which are
written to and never replaced. Lucid opens every untrusted file with `open_regular`.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lucid.core.words.suggestions import or_check
from lucid.files.locks import lock as _lock
from lucid.files.locks import names as _names

if sys.platform == "win32":
    _READ, _NO_WAIT = os.O_RDONLY | os.O_BINARY, os.O_BINARY
else:
    # Between the two checks of `open_regular` a pipe may replace the file: open it without waiting.
    _NO_WAIT = os.O_NONBLOCK
    _READ = os.O_RDONLY | _NO_WAIT

_SUFFIX = ".lucid-tmp"
_DESCRIPTORS = ("/proc/self/fd", "/dev/fd")  # folders in which systems name the open files of a process
_MAX_LINKS = 40  # as many as systems follow
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what `explained` explains
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


class NotAFileError(ValueError):
    """The path names a folder, pipe, socket or device where a regular file was expected."""


class DiskFullError(OSError):
    """The disk, a quota or a limit on the size of files is full; the message names the file."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; symbolic links are followed.

    Raises:
        NotAFileError: for anything but a regular file (reading a pipe could wait forever, reading a device can have
            effects).
        OSError: for a file that is missing or may not be read.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"there is no file {os.fspath(path)!r}{or_check(path)}") from error
    if not stat.S_ISREG(mode):
        raise NotAFileError(_not_a_file(path))
    file = os.fdopen(os.open(path, _READ), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise NotAFileError(_not_a_file(path))


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file for writing; it gets the name `path` only if the block ends without an error.

    The data is on the disk (fsync of file and folder) before the file is renamed, so a crash at any moment leaves the
    earlier file or the new one, never a part. After an error the temporary file is removed and an earlier file is
    unchanged. Temporary files of killed writers are removed by the next one.

    Only regular files and new names are replaced. A symbolic link to a regular file, or to nothing, is replaced itself
    and not followed; one that leads to a pipe, device or open descriptor (/dev/stdout) is refused.

    An earlier file's permissions are kept, and its owner and group if the system allows it; if the group cannot be
    kept, the new group gets only the permissions that everybody had. Access control lists and extended attributes are
    not kept. The temporary file never has wider permissions than the finished one.

    Raises:
        OSError: for a missing folder, missing permission or a full disk; each message names the path.
    """
    with draft(path) as drafted:
        yield drafted.file
        drafted.publish()


@dataclass
class Draft:
    """A file to be written under a temporary name; `publish` renames it to the target."""

    file: BinaryIO
    target: Path
    temporary: Path
    earlier: os.stat_result | None
    completed: bool = False
    published: bool = False

    def complete(self) -> None:
        """Write everything to the disk, with the owner and permissions of the earlier file, but not yet its name."""
        self.file.flush()
        if self.earlier is not None:
            _copy_permissions(self.file, self.temporary, self.earlier)
        os.fsync(self.file.fileno())
        self.completed = True

    def publish(self) -> None:
        """Rename the file to the target."""
        if not self.completed:
            self.complete()
        if sys.platform == "win32":  # an open file cannot be renamed there
            self.file.close()
        os.replace(self.temporary, self.target)  # elsewhere with the lock, so that no other writer removes it
        self.published = True
        self.file.close()
        sync_folder(self.target.parent)


@contextmanager
def draft(path: str | os.PathLike[str]) -> Iterator[Draft]:
    """`write_atomically` in steps: if the block does not publish the file, it is removed."""
    target = Path(path)
    earlier = _target_status(target)
    drafted: Draft | None = None
    temporary = temporary_name(target)  # before the try, so that after an interrupt it can always be removed
    try:
        with explaining(target):
            remove_leftovers(target)
            while (file := _create(temporary, earlier)) is None:
                temporary = temporary_name(target)
        with file:
            drafted = Draft(file, target, temporary, earlier)
            yield drafted
    except DiskFullError:  # for this file or another one that the block writes, with its message already
        raise
    except OSError as error:
        if error.errno not in FULL:  # any other error may come from the block and concern another file
            raise
        raise explained(error, target) from error
    finally:
        if drafted is None or not drafted.published:
            temporary.unlink(missing_ok=True)


@contextmanager
def write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """`write_atomically`; for a stream (`is_stream`), the pipe, device or descriptor itself, which is written directly.

    Raises:
        OSError: for a pipe without a reader, and for a terminal.
    """
    if not is_stream(path):
        with write_atomically(path) as file:
            yield file
        return
    with io.BufferedWriter(_Stream(path, "wb", opener=_open_stream)) as file:
        if file.isatty():
            raise OSError(errno.EINVAL, f"cannot write {os.fspath(path)}: it is a terminal; give the name of a file")
        yield file


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to a pipe, a character device or an open descriptor, such as /dev/stdout."""
    target = Path(path)
    if _is_descriptor(target):
        return True
    try:
        mode = os.stat(target).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files of killed writers of `path`, or of files whose names begin with its name.

    A running writer holds a lock on its temporary file (the system releases it when the writer ends), so only files of
    dead writers are removed. If the file system has no locks, nothing is removed.
    """
    for entry in leftovers(path):
        if entry.is_file(follow_symlinks=False):
            _remove_if_dead(Path(entry.path))


def leftovers(path: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """The entries with temporary names of `path`, or of a file whose name begins with its name."""
    target = Path(path)
    with os.scandir(target.parent) as entries:
        return [e for e in entries if e.name.startswith(_prefix(target)) and e.name.endswith(_SUFFIX)]


def _prefix(target: Path) -> str:
    # Shortened, so that a long name stays below the file system's limit; another file's leftovers may be removed too.
    return "." + target.name[:50]


def temporary_name(target: Path) -> Path:
    """A new name next to the target."""
    return target.with_name(f"{_prefix(target)}.{os.urandom(4).hex()}{_SUFFIX}")


def _create(temporary: Path, earlier: os.stat_result | None) -> BinaryIO | None:
    """A new file, locked; None if another writer has removed it as a leftover before it was locked."""
    # A file that replaces another one is accessible only to its writer until it is complete and gets its permissions.
    mode = 0o666 if earlier is None else stat.S_IMODE(earlier.st_mode) & 0o600
    file = open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode))  # noqa: SIM115 - by the caller
    if _lock(file) is not False and _names(temporary, file):
        return file
    file.close()
    return None


def _remove_if_dead(leftover: Path) -> None:
    try:
        with open_regular(leftover) as file:
            if sys.platform != "win32" and _lock(file) is True:
                leftover.unlink(missing_ok=True)
        if sys.platform == "win32":  # removing a file that a running writer has open fails there
            leftover.unlink(missing_ok=True)
    except (FileNotFoundError, PermissionError):
        pass  # removed meanwhile, or another user's: neither is an error


def _target_status(target: Path) -> os.stat_result | None:
    """The earlier file's status, None without one; raises OSError for targets that cannot be replaced."""
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, f"cannot write {target}: the folder {target.parent} does not exist; create it first"
        )
    if target.name in ("", ".."):
        raise IsADirectoryError(errno.EISDIR, f"cannot write {target}: it is a folder; give a file name")
    no_file = f"cannot write {target}: not a regular file; give the name of a file"
    if _is_descriptor(target):
        raise OSError(errno.EINVAL, no_file)
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None  # no file, or a dangling link
    except PermissionError as error:
        raise explained(error, target) from error
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, f"cannot write {target}: it is a folder; give a file name")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, no_file)
    if not os.access(target, os.W_OK):
        raise PermissionError(
            errno.EACCES,
            f"cannot write {target}: it is write-protected; allow writing or choose another name",
        )
    return status


def _is_descriptor(target: Path) -> bool:
    """Whether a path is, or links to, a name that the system gives to an open file of a process.

    Such a name may look like a regular file, or like no file, but must not be replaced.
    """
    try:
        homes = {os.stat(home).st_dev for home in _DESCRIPTORS if os.path.isdir(home)}
        for _ in range(_MAX_LINKS):
            if os.stat(target.parent).st_dev in homes:
                return True
            target = target.parent / os.readlink(target)
    except OSError:  # not a link, or no file
        return False
    return False


class _Stream(io.FileIO):
    """Takes bytes only in order: even if it is a regular file, bytes are appended."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation("a stream has no position")

    def seek(self, *_: object) -> int:
        raise io.UnsupportedOperation("a stream has no position")


def _open_stream(path: str, _: int) -> int:
    """Open for appending (a descriptor may be that of a file), without waiting for a reader."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | _NO_WAIT)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(error.errno, f"cannot write {path}: the pipe has no reader; start its reader first") from error
    if sys.platform != "win32":  # there it was opened blocking
        os.set_blocking(descriptor, True)
    return descriptor


def _copy_permissions(file: BinaryIO, temporary: Path, earlier: os.stat_result) -> None:
    """Set the owner, group and permissions of the file that will be replaced, as far as the system allows it."""
    mode = stat.S_IMODE(earlier.st_mode)
    if sys.platform == "win32":
        os.chmod(temporary, mode)
    else:
        own = os.fstat(file.fileno())
        if (own.st_uid, own.st_gid) != (earlier.st_uid, earlier.st_gid) and not _set_owner(file, earlier):
            mode &= 0o707 | (mode & 0o007) << 3
        os.fchmod(file.fileno(), mode)


def _set_owner(file: BinaryIO, earlier: os.stat_result) -> bool:
    """Set the group of the earlier file and, if possible, its owner; whether the group could be set."""
    if sys.platform != "win32":
        for owner in (earlier.st_uid, -1):  # only root can change the owner
            with suppress(OSError):
                os.fchown(file.fileno(), owner, earlier.st_gid)
                return True
    return False


@contextmanager
def explaining(target: Path) -> Iterator[None]:
    """Inside, the errors of a full disk or a missing permission become those of `explained`."""
    try:
        yield
    except OSError as error:
        if error.errno not in DENIED + FULL:
            raise
        raise explained(error, target) from error


def explained(error: OSError, target: Path) -> OSError:
    """The error of a full disk or a missing permission, with a message that names the target and says what to do."""
    untouched = "(an earlier file is unchanged)"
    if error.errno in FULL:
        text = "the disk, quota or file size limit is full; free some space or choose another folder"
        return DiskFullError(error.errno, f"cannot write {target}: {text} {untouched}")
    text = f"no permission to create files in {target.parent}; change its permissions or choose another folder"
    return OSError(error.errno, f"cannot write {target}: {text} {untouched}")


def sync_folder(folder: Path) -> None:
    """Write a folder's list of names to the disk."""
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
