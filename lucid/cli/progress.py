"""The phases of a command on the terminal: the current one with its time, and a line for each that has ended."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from lucid.core.words.progress import Advance, listening
from lucid.core.words.safe_text import visible

_EVERY = 30.0  # seconds between two lines of a log
_SOON = 3.0  # seconds after which a log names a phase
_WIDE = 110  # columns of a terminal in which a bar has room next to numbers


def shown_on_terminal() -> AbstractContextManager[None]:
    """Inside, phases are shown on stderr if it is a terminal."""
    return listening(_Phases()) if sys.stderr.isatty() else nullcontext()


class _Phases:
    """A listener of `lucid.core.words.progress`. Phases inside others are only named while they run."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._names: list[str] = []
        self._progress: Progress | None = None

    @contextmanager
    def __call__(self, name: str, total: int | None, unit: str) -> Iterator[Advance]:
        self._names.append(visible(name))
        try:
            if self._progress is None:
                with self._outermost(total, unit) as advance:
                    yield advance
            else:
                with self._described(self._progress, total, unit) as advance:
                    yield advance
        finally:
            self._names.pop()

    @contextmanager
    def _outermost(self, total: int | None, unit: str) -> Iterator[Advance]:
        start = time.monotonic()
        name = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        bar = [_Bar()] if self._console.width >= _WIDE else []
        spinner = SpinnerColumn("line" if self._console.options.ascii_only else "dots")
        columns = spinner, name, *bar, _Speed(Column(no_wrap=True)), TimeElapsedColumn()
        # What the command prints goes above the line; what a pipe reads stays as it is.
        with Progress(*columns, console=self._console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
            progress.add_task(self._names[-1], total=None, unit="", began=start)
            self._progress = progress
            try:
                with self._described(progress, total, unit) as advance:
                    yield advance
            finally:
                self._progress = None
        took = f"{self._names[-1]:<26}{time.monotonic() - start:6.2f} s"
        self._console.print(took, style="dim", markup=False, emoji=False)

    @contextmanager
    def _described(self, progress: Progress, total: int | None, unit: str) -> Iterator[Advance]:
        """Inside, the line shows these names, and a bar if the total is known."""
        (task,) = progress.tasks
        before = task.description, task.fields["unit"], task.fields["began"], task.total, task.completed
        progress.update(task.id, description=": ".join(self._names), unit=unit, began=time.monotonic())
        task.total, task.completed = total, 0
        try:
            yield lambda done: progress.advance(task.id, done)
        finally:
            progress.update(task.id, description=before[0], unit=before[1], began=before[2])
            task.total, task.completed = before[3:]
            task.finished_time = None  # rich ends the clock with the first total that is reached


class _Bar(BarColumn):
    """A bar where the total is known."""

    def render(self, task: Task) -> ProgressBar | Text:  # type: ignore[override]  # rich renders either
        return super().render(task) if task.total else Text("")


class _Speed(ProgressColumn):
    """A column with the count, the speed, and the time left."""

    def render(self, task: Task) -> Text:
        unit = task.fields["unit"]
        if not unit or task.total is None:
            return Text("")
        return Text(so_far(task.completed, task.total, unit, time.monotonic() - task.fields["began"]), style="dim")


def so_far(done: float, total: float, unit: str, seconds: float) -> str:
    """The state of a long phase as text: 2,048 of 20,000 rows, 310 rows/s, 58 s left."""
    text = f"{done:,.0f} of {total:,.0f} {unit}"
    if not done or not seconds:
        return text
    left = round((total - done) * seconds / done)
    shown = f"{left} s" if left < 100 else str(timedelta(seconds=left))
    return f"{text}, {rate(done, seconds, unit)}, {shown} left"


def rate(done: float, seconds: float, unit: str) -> str:
    """A speed as text, in three digits or a whole number: 31.2 rows/s, 1,109 rows/s."""
    speed = done / seconds
    return f"{speed:,.0f} {unit}/s" if speed >= 100 else f"{speed:.3g} {unit}/s"


class _Lines:
    """A listener for a log: the name of each phase that takes a while, and now and then the progress of a counted
    one.
    """

    @contextmanager
    def __call__(self, name: str, total: int | None, unit: str) -> Iterator[Advance]:
        start = last = time.monotonic()
        done = 0
        named = threading.Timer(_SOON, partial(print, f"{visible(name)} ...", file=sys.stderr, flush=True))
        named.daemon = True

        def advance(more: int) -> None:
            nonlocal done, last
            done, now = done + more, time.monotonic()
            if unit and total and now - last >= _EVERY:
                last = now
                print(so_far(done, total, unit, now - start), file=sys.stderr, flush=True)

        named.start()
        try:
            yield advance
        finally:
            named.cancel()


def in_a_log() -> AbstractContextManager[None]:
    """Inside, a long job logs its progress if stderr is not a terminal."""
    return nullcontext() if sys.stderr.isatty() else listening(_Lines())
