"""Predictors that fail, in the processes of an engine."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lucid.batch import Predictor


class Faulty:
    """Computes as a predictor does; for the first of so many rows in any process it fails.

    Args:
        predictor: computes.
        marks: a folder in which each call leaves a file.
        after: how many calls go well.
        fail: what happens then, once.
    """

    def __init__(self, predictor: Predictor, marks: Path, after: int, fail: Callable[[], None]) -> None:
        self._predictor, self._marks, self._after, self._fail = predictor, marks, after, fail
        self.plan, self.columns, self.inputs = predictor.plan, predictor.columns, predictor.inputs
        self.part_rows = predictor.part_rows

    def predict(self, rows: Any, advance: Any) -> Any:
        if len(list(self._marks.iterdir())) >= self._after and not (self._marks / "failed").exists():
            (self._marks / "failed").touch()
            self._fail()
        (self._marks / f"{os.getpid()}-{os.urandom(4).hex()}").touch()
        return self._predictor.predict(rows, advance)


def killed() -> None:
    """As by the system, for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def full() -> None:
    """The disk is full."""
    raise OSError(errno.ENOSPC, "No space left on device", "out/part.parquet")
