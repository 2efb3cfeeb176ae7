"""Flush denormal numbers to zero on the calling thread, only while it runs a model.

A processor computes with denormal numbers (below 1.2e-38 in float32) up to a hundred times slower than with others,
unless a control register of the thread disables them. onnxruntime's own setting reaches its worker threads in every
session. But it reaches the calling thread, which computes its share of every op, only in the first session of a
process, and then permanently, NumPy included. So the register is set here around each run, where that is possible: with
glibc on x86-64.
"""

from __future__ import annotations

import ctypes
import platform
import sys

import numpy as np

_FLUSH = 0x8040  # MXCSR: denormal results become zero (bit 15), denormal operands count as zero (bit 6)


class _Environment(ctypes.Structure):
    """glibc's fenv_t on x86-64: seven words of the x87 unit, then MXCSR."""

    _fields_ = (("x87", ctypes.c_uint32 * 7), ("mxcsr", ctypes.c_uint32))


def flushing() -> bool:
    """Whether this thread flushes denormal numbers to zero."""
    return not np.any(np.full(4, 1e-39, np.float32) * np.float32(0.5))


class flushed:  # noqa: N801  # read as a function; a generator's context would take as long as a small op
    """Flush denormal numbers to zero on this thread; afterwards as before. Does nothing if `AVAILABLE` is false."""

    __slots__ = ("_before", "_environment", "_pointer")

    def __enter__(self) -> None:
        if _LIBM is None:
            return
        self._environment = _Environment()
        self._pointer = ctypes.byref(self._environment)
        _LIBM.fegetenv(self._pointer)
        self._before = self._environment.mxcsr
        self._environment.mxcsr = self._before | _FLUSH
        _LIBM.fesetenv(self._pointer)

    def __exit__(self, *error: object) -> None:
        if _LIBM is not None:
            self._environment.mxcsr = self._before
            _LIBM.fesetenv(self._pointer)


def _libm() -> ctypes.CDLL | None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:  # another C library, with another fenv_t
        return None


_LIBM = _libm()
with flushed():
    AVAILABLE = _LIBM is not None and flushing()
"""Whether `flushed` works on this platform."""
