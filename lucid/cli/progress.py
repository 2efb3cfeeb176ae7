"""Progress bars: for a file that is being written, and for work on layer after layer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TransferSpeedColumn

from lucid.text import visible

_PERIOD = 0.1  # seconds


@contextmanager
def layer_by_layer() -> Iterator[Callable[[str, int, int], None]]:
    """A bar that advances by layer; gives what to call with its path, its number and how many there are."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    columns = TextColumn("quantising"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda path, number, count: bar.update(task, description=visible(path), completed=number, total=count)


@contextmanager
def writing(path: Path, total: int) -> Iterator[None]:
    """Show how many bytes are written while the block writes to `path`, a file or a folder; only on a terminal.

    Both appear whole (lucid.files, lucid.folders), so what grows is a temporary one next to the target. It is watched
    from here, so the exporter does not depend on the progress bar.
    """
    if not sys.stderr.isatty():
        yield
        return
    columns = TextColumn("writing"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    done = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("writing", total=total)

        def watch() -> None:
            while not done.wait(_PERIOD):
                bar.update(task, completed=_written(path))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            bar.update(task, completed=total)


def _written(path: Path) -> int:
    found = 0
    for entry in path.parent.glob(f".{escape(path.name[:40])}*.lucid-tmp"):
        for file in [entry, *entry.glob("*")]:
            try:
                found += file.stat().st_size
            except FileNotFoundError:  # it has just been renamed
                continue
    return found
