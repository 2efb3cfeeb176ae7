"""Context-local settings: values that apply to a block of code, such as evaluation mode."""

from __future__ import annotations

from contextlib import AbstractContextManager, ContextDecorator
from contextvars import ContextVar, Token
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class holding(ContextDecorator, Generic[T]):  # noqa: N801  # used as a function
    """Set a variable to this value inside, and back to the earlier one afterwards, also after an exception.

    An asyncio task or a call of `asyncio.to_thread` that starts inside keeps the value until it ends; a thread that is
    started inside does not have it. The same object may be entered several times in one thread, nested or in turn.
    """

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable, self._value = variable, value
        self._tokens: list[Token[T]] = []

    def __enter__(self) -> None:
        self._tokens.append(self._variable.set(self._value))

    def __exit__(self, *error: object) -> None:
        self._variable.reset(self._tokens.pop())

    def _recreate_cm(self) -> Self:  # one object for each call of a decorated function, which threads share
        return type(self)(self._variable, self._value)


_evaluating: ContextVar[bool] = ContextVar("lucid_evaluating", default=False)


def is_evaluating() -> bool:
    """Whether this thread is inside `evaluating`."""
    return _evaluating.get()


def evaluating() -> AbstractContextManager[None]:
    """Inside, every module is in evaluation mode, in this thread only: other threads may train it meanwhile."""
    return holding(_evaluating, True)
