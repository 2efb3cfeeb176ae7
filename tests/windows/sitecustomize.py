"""Shows Lucid a Windows: Python runs this file at its start if this folder is in PYTHONPATH.

The modules of this repository get stand-ins for the modules of Python's library that differ there. The library itself
and other packages, which know Windows themselves, keep the real ones. Files that this process has open or mapped can
be neither removed nor replaced. `python -m tools.check_types` checks that every name exists.
"""

from __future__ import annotations

import builtins
import ctypes
import mmap
import os
import signal
import socket
import sys
import warnings
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OWN = tuple(f"{ROOT / name}{os.sep}" for name in ("lucid", "models", "examples"))
ABSENT = {"curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
NAMES = {
    os: """EX_OK O_ASYNC O_CLOEXEC O_DIRECTORY O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE
        POSIX_FADV_DONTNEED WNOHANG chown confstr copy_file_range ctermid fchdir fchmod fchown fdatasync fork forkpty
        fpathconf getegid geteuid getgid getgroups getloadavg getpgid getpgrp getpriority getsid getuid initgroups
        killpg lchown lockf major minor mkfifo mknod nice openpty pathconf pipe2 posix_fadvise posix_fallocate
        posix_spawn pread pwrite readv register_at_fork sched_getaffinity sched_setaffinity sched_yield sendfile
        set_blocking setegid seteuid setgid setpgid setpriority setsid setuid statvfs sync sysconf tcgetpgrp ttyname
        uname unshare wait wait3 wait4 waitid""".split(),
    signal: """ITIMER_PROF ITIMER_REAL ITIMER_VIRTUAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGPROF
        SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIG_BLOCK SIG_SETMASK SIG_UNBLOCK alarm getitimer pause pthread_kill
        pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo""".split(),
    mmap: ["MAP_PRIVATE", "MAP_SHARED", "PROT_READ", "PROT_WRITE"],
    socket: ["AF_UNIX", "SO_REUSEPORT", "socketpair"],
    sys: ["getdlopenflags", "setdlopenflags", "abiflags"],
    ctypes: ["CDLL", "RTLD_LOCAL"],  # CDLL(None) raises there
}


class StandIn(ModuleType):
    """A module without some names, and with some of its own."""

    def __init__(self, real: ModuleType, absent: list[str], **own: Any) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _absent=frozenset(absent), **own)

    def __getattr__(self, name: str) -> Any:
        if name in self._absent:
            raise AttributeError(f"Windows' module {self.__name__} has no {name}")
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


class Kernel32:
    """What `lucid.core.process.memory` asks."""

    class K32GetProcessMemoryInfo:
        """Of the process: fills the structure, if it has its size."""

        def __new__(cls, process: int, counters: Any, size: int) -> Any:
            assert (process, size) == (-1, 72)
            counters.peak = 123_456_789


def open_file(path: str, flags: int, *rest: Any, **options: Any) -> int:
    """`os.open`, which opens no folders."""
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return os.open(path, flags, *rest, **options)


def rename(old: str, new: str) -> None:
    """`os.rename`, which replaces nothing."""
    if os.path.lexists(new):
        raise FileExistsError(17, "Cannot create a file when that file already exists", old, None, new)
    os.rename(old, new)


STAND_INS = {
    module.__name__: StandIn(module, absent, **own)
    for (module, absent), own in zip(
        NAMES.items(),
        (
            {"name": "nt", "open": open_file, "rename": rename, "O_BINARY": 0},
            {},
            {},
            {},
            {"platform": "win32"},
            {"WinDLL": lambda name: Kernel32},
        ),
        strict=True,
    )
}


def held(path: Any, folder: int | None) -> bool:
    """Whether this process has a file, or one in this folder, open or mapped."""
    try:
        status = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    if folder is None and os.path.isdir(path):
        inside = os.path.realpath(os.fspath(path)) + os.sep
        return any(name.startswith(inside) for name in opened())
    return any(os.path.exists(name) and os.path.samestat(os.stat(name), status) for name in opened())


def opened() -> set[str]:
    """The names of the files that this process has open or mapped."""
    names = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            names.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # that of the listing
            continue
    return {name for name in names if os.path.isfile(name)}


def refusing(call: Any) -> Any:
    """A function of `os` that fails if a file that it takes away is open."""

    @wraps(call)
    def checked(*paths: Any, dir_fd: int | None = None, **options: Any) -> Any:
        for path in paths:
            if held(path, dir_fd):
                raise PermissionError(13, "The process cannot access the file because it is being used", str(path))
        return call(*paths, **options) if dir_fd is None else call(*paths, dir_fd=dir_fd, **options)

    return checked


def import_there(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0, real: Any = __import__
) -> Any:
    """The statement `import`."""
    if not level and globals and str(globals.get("__file__", "")).startswith(OWN):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r} (as on Windows)", name=name)
        if name in STAND_INS:
            return STAND_INS[name]
    return real(name, globals, locals, fromlist, level)


for name in ("unlink", "remove", "rename", "replace", "rmdir"):
    setattr(os, name, refusing(getattr(os, name)))
builtins.__import__ = import_there  # type: ignore[assignment]
# Text files have another encoding there unless one is named; tests/test_windows.py asks Python to warn.
warnings.simplefilter("ignore", EncodingWarning)
warnings.filterwarnings("error", category=EncodingWarning, module=r"lucid\b|models\b|examples\b")
