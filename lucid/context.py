"""Values that apply to a block of code, only in the thread that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a variable to this value inside, and back to the earlier one afterwards, also after an exception."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
