"""Evaluation mode for a block of code: no module is in training there, and nothing in any module is changed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from lucid.context import holding

_evaluating: ContextVar[bool] = ContextVar("lucid_evaluating", default=False)


def is_evaluating() -> bool:
    """Whether this thread is inside `evaluating`."""
    return _evaluating.get()


def evaluating() -> AbstractContextManager[None]:
    """Every module reads as in evaluation mode inside, in this thread alone: other threads may train it meanwhile."""
    return holding(_evaluating, True)
