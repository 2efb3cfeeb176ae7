"""Limits of named sizes: what a spec says of them, which holds while a model is traced."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TypeAlias

from lucid.core.process.context import holding

Limits: TypeAlias = tuple[int, float]
"""The least and the largest value of a size, which may be infinite."""

_NONE: Mapping[str, Limits] = MappingProxyType({})
_known: ContextVar[Mapping[str, Limits]] = ContextVar("lucid_limits", default=_NONE)


def known_limits() -> Mapping[str, Limits]:
    """The limits of sizes by name, in this thread."""
    return _known.get()


def within(limits: Mapping[str, Limits]) -> AbstractContextManager[None]:
    """Inside, named sizes are within limits."""
    return holding(_known, limits)
