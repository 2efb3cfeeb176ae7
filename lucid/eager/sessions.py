"""The sessions that run eager calls: one for all that share threads, so that these are in one pool.

A session of onnxruntime has a pool of threads. Those of many sessions would take the cores from each other: the ones
that wait busily for the next call of their session, or else each call would have to wake its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lucid.core.graph.types import Array
from lucid.export.branches import as_branches, selection
from lucid.runtime import denormals
from lucid.runtime.session import Session

MOST = 256
"""Models that are kept. If there are more, all are loaded again when they are run."""

ALONE = 16
"""Models that have a session of their own, each with a thread for each core."""

_MICROSECONDS = "3000"
"""How long the threads that are shared wait busily for the next call: longer than what a model does between two calls,
but no longer, as NumPy may want the cores."""


def run(model: bytes, inputs: Mapping[str, Array], threads: int) -> Array:
    """The result of a model of one float32 output. Models have inputs of the same name if these have the same type."""
    if threads == 1:
        alone: Session = _alone(model)
        return alone.run_unchecked(inputs)[0]
    shared: SharedThreads = _pools(threads)
    return shared.run(model, inputs)


@dataclass(frozen=True)
class _Place:
    """Where a model is run: in a session, with inputs that select it there."""

    session: Session
    selected: Mapping[str, Array]

    def run(self, inputs: Mapping[str, Array]) -> Array:
        return self.session.run_unchecked({**self.selected, **inputs})[0]


class SharedThreads:
    """Models that are run by the same threads.

    One that is run for the first time has a session of its own, since it may be the last time. When one is run again,
    or there are many, all become branches of one model and its session's.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._joined: dict[bytes, _Place] = {}
        self._new: dict[bytes, _Place] = {}

    def run(self, model: bytes, inputs: Mapping[str, Array]) -> Array:
        return (self._joined.get(model) or self._place(model)).run(inputs)

    def _place(self, model: bytes) -> _Place:
        with self._lock:
            if model in self._joined:  # by another thread, by now
                return self._joined[model]
            again = model in self._new
            if not again and len(self._joined) + len(self._new) >= MOST:
                self._joined, self._new = {}, {}
            if again or len(self._new) >= ALONE:
                models = list(dict.fromkeys([*self._joined, *self._new, model]))
                session = _loaded(as_branches(models), self._threads, spinning=True)
                self._joined = {known: _Place(session, selection(number)) for number, known in enumerate(models)}
                self._new = {}
                return self._joined[model]
            self._new[model] = place = _Place(_loaded(model, self._threads), {})
            return place


def _loaded(model: bytes, threads: int, spinning: bool = False) -> Session:
    # Keys that are hidden by a large negative number get weights that are next to nothing, and as denormal numbers they
    # would take most of attention's time.
    config = {"session.intra_op.spin_duration_us": _MICROSECONDS} if spinning else {}
    return Session(model, threads=threads, spinning=spinning, flush_denormals=denormals.AVAILABLE, config=config)


def _caches() -> tuple[Any, Any]:
    return lru_cache(maxsize=MOST)(lambda model: _loaded(model, 1)), lru_cache(maxsize=None)(SharedThreads)


_alone, _pools = _caches()
_of_parents: list[Any] = []


def _after_fork() -> None:
    """The threads of sessions do not survive a fork: the child loads its own, and keeps those that it cannot close."""
    global _alone, _pools
    _of_parents.append((_alone, _pools))
    _alone, _pools = _caches()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
