"""Ctrl-C in a conversation: it stops what waits or computes, and never the program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any


class Interrupts:
    """While it is entered, Ctrl-C raises KeyboardInterrupt inside `with heard():` alone, and once.

    Else a second Ctrl-C, pressed while the first is still being handled, would end the program. Where it is not
    entered, Ctrl-C is Python's own.
    """

    def __init__(self) -> None:
        self._heard = False

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Inside, Ctrl-C raises KeyboardInterrupt, also on the way in and out: catch it around."""
        self._heard = True
        try:
            yield
        finally:
            self._heard = False

    def _handle(self, *_: Any) -> None:
        if self._heard:
            self._heard = False
            raise KeyboardInterrupt
