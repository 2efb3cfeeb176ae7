"""NumPy without floating-point warnings: inf and NaN are results of kernels, as on every backend.

`np.errstate` sets and restores the setting for each block of code, which takes as long as two small NumPy calls. Here
each thread sets it once, in a context of its own that kernels run in. The caller's own setting holds outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, TypeVar

import numpy as np

R = TypeVar("R")

_is_quiet: ContextVar[bool] = ContextVar("lucid_quiet", default=False)


class _Own(threading.local):
    """A thread's context: a context is entered by one thread at a time, and only once."""

    def __init__(self) -> None:
        context = Context()
        context.run(np.seterr, all="ignore")
        context.run(_is_quiet.set, True)
        self.run = context.run


_own = _Own()


def without_warnings(function: Callable[..., R], *args: Any) -> R:
    """Call a function without warnings about overflows, divisions by zero and the like.

    As in a worker thread, the function sees no context variable of the caller.
    """
    return function(*args) if _is_quiet.get() else _own.run(function, *args)
