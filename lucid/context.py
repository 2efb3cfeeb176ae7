"""Values that hold for a block of code, in the thread that runs it and in no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """The variable has this value inside, and the one it had before afterwards, whatever is raised inside."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
