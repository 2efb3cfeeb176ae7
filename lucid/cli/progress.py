"""The phases of a command on the terminal: the one that runs with its time, and then a line for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from lucid.phases import Advance, listening
from lucid.text import visible


def shown_on_terminal() -> AbstractContextManager[None]:
    """Inside, phases are shown on the standard error output, if it is a terminal."""
    return listening(_Phases()) if sys.stderr.isatty() else nullcontext()


class _Phases:
    """A listener of `lucid.phases`. Phases inside others are only named while they run."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._names: list[str] = []
        self._progress: Progress | None = None

    @contextmanager
    def __call__(self, name: str, total: int | None) -> Iterator[Advance]:
        self._names.append(visible(name))
        try:
            if self._progress is None:
                with self._outermost(total) as advance:
                    yield advance
            else:
                with self._described(self._progress, total) as advance:
                    yield advance
        finally:
            self._names.pop()

    @contextmanager
    def _outermost(self, total: int | None) -> Iterator[Advance]:
        start = time.monotonic()
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), _Bar(), TimeElapsedColumn()
        # What the command prints goes above the line; what a pipe reads stays as it is.
        with Progress(*columns, console=self._console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
            progress.add_task(self._names[-1], total=None)
            self._progress = progress
            try:
                with self._described(progress, total) as advance:
                    yield advance
            finally:
                self._progress = None
        took = f"{self._names[-1]:<26}{time.monotonic() - start:6.2f} s"
        self._console.print(took, style="dim", markup=False, emoji=False)

    @contextmanager
    def _described(self, progress: Progress, total: int | None) -> Iterator[Advance]:
        """The line shows these names, and a bar if there is a total; at the end what it showed before."""
        (task,) = progress.tasks
        before = task.description, task.total, task.completed
        progress.update(task.id, description=": ".join(self._names))
        task.total, task.completed = total, 0
        try:
            yield lambda done: progress.advance(task.id, done)
        finally:
            progress.update(task.id, description=before[0])
            task.total, task.completed = before[1:]


class _Bar(BarColumn):
    """A bar where the total is known."""

    def render(self, task: Task) -> ProgressBar | Text:  # type: ignore[override]  # rich renders either
        return super().render(task) if task.total else Text("")
