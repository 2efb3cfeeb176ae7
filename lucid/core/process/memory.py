"""The memory of this process."""

from __future__ import annotations

import ctypes
import re
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import resource

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


class _Counters(ctypes.Structure):
    """Windows' PROCESS_MEMORY_COUNTERS."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("faults", ctypes.c_uint32),
        ("peak", ctypes.c_size_t),  # bytes of the working set
        ("others", ctypes.c_size_t * 7),
    )


def restart_peak() -> int:
    """Forget the peak so far, where the system can (Linux); returns the peak from which on memory is counted."""
    if _RESET.exists():
        with suppress(AttributeError):  # musl has no such function
            ctypes.CDLL(None).malloc_trim(0)  # gives back what is free, which a next model would take uncounted
        with suppress(OSError):  # a container may not let it: then the peak so far counts
            _RESET.write_text("5", encoding="ascii")
    return peak_memory()


def peak_memory() -> int:
    """The peak memory of this process so far, or since `restart_peak`, in bytes."""
    if sys.platform == "win32":
        counters = _Counters(ctypes.sizeof(_Counters))
        system = ctypes.WinDLL("kernel32")
        system.K32GetProcessMemoryInfo.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Counters), ctypes.c_uint32]
        system.K32GetProcessMemoryInfo(-1, counters, counters.size)  # -1: this process
        return int(counters.peak)
    else:
        if _STATUS.exists():  # Linux; getrusage would also count the parent's memory at the time of fork
            peak = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text(encoding="ascii"))
            if peak:
                return int(peak[1]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
