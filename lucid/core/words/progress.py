"""What a long computation is at: it names its phases, and whoever called it may show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeAlias

from lucid.core.process.context import holding

Advance: TypeAlias = Callable[[int], object]
"""Called with how much more of the total is done."""


class Listener(Protocol):
    """What is told of phases, each of which is a block of code; phases inside it are its parts."""

    def __call__(self, name: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """A phase that is entered: its name; how much there is to do and of what, if that is known."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def phase(name: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
    """The block is a phase of the computation; gives what to call as parts of `total` are done.

    Args:
        name: what is shown of it.
        total: how much there is to do.
        unit: of what, such as "rows", where people want to know how fast it goes and when it ends.
    """
    listener = _listener.get()
    if listener is None:
        yield lambda done: None
    else:
        with listener(name, total, unit) as advance:
            yield advance


def listening(listener: Listener) -> AbstractContextManager[None]:
    """Inside the block the listener is told of the phases of this thread."""
    return holding(_listener, listener)
