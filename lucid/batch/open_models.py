"""Models that are open in this process: each folder once, however often a predictor is unpickled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from lucid.batch.folder import ExportedFolder, FolderChangedError, Stamp, exported_folder
from lucid.batch.rows import ByRow, Task, run_by_row
from lucid.batch.tasks import Choices, open_task
from lucid.core.process.threads import usable_cores
from lucid.core.words.progress import Advance
from lucid.layouts.checkpoint_files import sha256
from lucid.runtime import Session


@dataclass(frozen=True)
class Plan:
    """A folder in one state, and how to open it. It holds no weights, so its pickle is small."""

    folder: str  # the absolute path
    digest: str  # the hash of the folder's files
    threads: int  # the number of batches computed at a time; for a decoder, the threads that compute an op
    providers: tuple[str, ...]  # as for `Session`
    prepack: bool  # as for `Session`
    choices: Choices  # the options of the task
    adapter: tuple[str, str] | None = None  # the absolute path of the adapter's file, and its SHA-256


class OpenModel:
    """An open model in this process: its task, and the threads that compute batches.

    Raises:
        FolderChangedError: if the folder has changed since the plan was made.
        ValueError, OSError: as `open_task`.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._folder = _unchanged(plan)
        self._stamp = self._folder.stamp()
        threads = min(plan.threads, usable_cores())
        files = (self._folder.model, self._folder.decoder)
        self._pool = ThreadPoolExecutor(threads, "lucid-batch") if threads > 1 and not self._folder.steps else None
        options: dict[str, Any] = {
            "threads": threads if self._folder.steps else 1,
            "spinning": False,
            "prepack": plan.prepack,
            "huge_pages": self._folder.steps,
            "adapter": None if plan.adapter is None else plan.adapter[0],
        }
        session, decoder = (None if file is None else Session(file, plan.providers, **options) for file in files)
        assert session is not None
        self.task: Task = open_task(self._folder, session, plan.choices, decoder)

    def check(self) -> None:
        """Check that the folder is unchanged.

        Raises:
            FolderChangedError: if it has changed.
        """
        if _stamp(self._folder) != self._stamp:  # rewritten, perhaps with the same contents
            self._folder = _unchanged(self._plan)
            self._stamp = self._folder.stamp()

    def run(self, batches: list[list[Any]], budget: int, advance: Advance) -> list[ByRow]:
        """The results of each batch; `advance` is called with the number of rows of each."""
        run, results_of_rows = partial(run_by_row, partial(self.task.run, budget=budget)), []
        for batch, results in zip(batches, (map if self._pool is None else self._pool.map)(run, batches), strict=True):
            results_of_rows.append(results)
            advance(len(batch))
        return results_of_rows


_MOST = 4  # models in the memory of a process
_lock = Lock()
_open: dict[Plan, OpenModel] = {}


def open_model(plan: Plan) -> OpenModel:
    """The model of a plan, opened on first use in this process. Beyond `_MOST`, the least recently used is closed."""
    with _lock:
        model = _open.pop(plan, None) or OpenModel(plan)
        _open[plan] = model
        if len(_open) > _MOST:
            del _open[next(iter(_open))]
        return model


def _unchanged(plan: Plan) -> ExportedFolder:
    try:
        folder = exported_folder(plan.folder)
        digest = folder.digest()
        if plan.adapter is not None and sha256(Path(plan.adapter[0])) != plan.adapter[1]:
            raise ValueError(f"{plan.adapter[0]} has changed")
    except (OSError, ValueError) as error:
        raise FolderChangedError(f"{plan.folder}: is not what it was when the job began: {error}") from error
    if digest != plan.digest:
        raise FolderChangedError(
            f"{plan.folder}: its files have changed since the job began (their hash is {digest[:12]}, and was "
            f"{plan.digest[:12]}), so results would be those of two models; begin the job again"
        )
    return folder


def _stamp(folder: ExportedFolder) -> Stamp | None:
    try:
        return folder.stamp()
    except OSError:  # a file is gone
        return None
