"""What a long computation is at: it names its phases, and whoever called it may show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeAlias

from lucid.context import holding

Advance: TypeAlias = Callable[[int], object]
"""Called with how much more of the total is done."""


class Listener(Protocol):
    """What is told of phases, each of which is a block of code; phases inside it are its parts."""

    def __call__(self, name: str, total: int | None) -> AbstractContextManager[Advance]:
        """A phase that is entered: its name, and how much there is to do if that is known."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def phase(name: str, total: int | None = None) -> Iterator[Advance]:
    """The block is a phase of the computation; gives what to call as parts of `total` are done."""
    listener = _listener.get()
    if listener is None:
        yield lambda done: None
    else:
        with listener(name, total) as advance:
            yield advance


def listening(listener: Listener) -> AbstractContextManager[None]:
    """Inside the block the listener is told of the phases of this thread."""
    return holding(_listener, listener)
