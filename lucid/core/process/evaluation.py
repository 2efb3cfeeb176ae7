"""Evaluation mode for a block of code: inside, no module is in training, and no module is changed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from lucid.core.process.context import holding

_evaluating: ContextVar[bool] = ContextVar("lucid_evaluating", default=False)


def is_evaluating() -> bool:
    """Whether this thread is inside `evaluating`."""
    return _evaluating.get()


def evaluating() -> AbstractContextManager[None]:
    """Inside, every module is in evaluation mode, in this thread alone: other threads may train it meanwhile."""
    return holding(_evaluating, True)
