"""`uninterrupted`: a block that Ctrl-C does not enter."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A block whose changes belong together: a Ctrl-C in it raises KeyboardInterrupt when it has ended."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # Python interrupts the main thread alone, and only by a handler
        return
    received: list[Any] = []
    signal.signal(signal.SIGINT, lambda *what: received.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            handler(*received[0])
