"""Two folders whose names are exchanged."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_THIS_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_SWAP = 2  # RENAME_SWAP of macOS
_NOT_OFFERED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # by the system, or this file system


def exchange(new: Path, old: Path) -> None:
    """Give each of two folders in one parent folder the name of the other.

    On Linux and macOS, in file systems that offer it, this is one step: at any moment there is a folder of each name.
    Elsewhere `old` names nothing for a moment.

    Raises:
        OSError: if they cannot be renamed; both then have their names as before.
    """
    try:
        _in_one_step(new, old)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
        _in_three_steps(new, old)


def _in_one_step(new: Path, old: Path) -> None:
    library = ctypes.CDLL(None, use_errno=True) if sys.platform != "win32" else None
    names = os.fsencode(new), os.fsencode(old)
    try:
        if sys.platform == "linux" and library is not None:
            failed = library.renameat2(_THIS_FOLDER, names[0], _THIS_FOLDER, names[1], _EXCHANGE)
        elif sys.platform == "darwin" and library is not None:
            failed = library.renamex_np(*names, _SWAP)
        else:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    except AttributeError:  # a C library without the function
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(new), None, str(old))


def _in_three_steps(new: Path, old: Path) -> None:
    aside = new.with_name(f"{new.name}-old")
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except OSError:
        os.rename(aside, old)
        raise
    os.rename(aside, new)
