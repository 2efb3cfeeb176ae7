"""Progress reporting: a long computation names its phases, and its caller may show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeAlias

from lucid.core.process.context import holding

Advance: TypeAlias = Callable[[int], object]
"""Called with how much of the total was done since the last call."""


def unheard(done: int) -> None:
    """An `Advance` that reports to nobody."""


class Listener(Protocol):
    """The receiver of phases. A phase is a block of code; phases inside it belong to it."""

    def __call__(self, name: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """Called when a phase is entered, with its name and, if known, the amount of work and its unit."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def phase(name: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
    """The block is a phase of the computation; it gets a function to call as work is done.

    Args:
        name: the text to show.
        total: the amount of work.
        unit: the unit of the work, such as "rows", if speed and remaining time are of interest.
    """
    listener = _listener.get()
    if listener is None:
        yield unheard
    else:
        with listener(name, total, unit) as advance:
            yield advance


def listening(listener: Listener) -> AbstractContextManager[None]:
    """Inside the block the listener receives the phases of this thread."""
    return holding(_listener, listener)
