"""The model of a server: its session, and what its task makes of text."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lucid.batch.folder import ExportedFolder, exported_folder
from lucid.batch.rows import ByRow, Ready, RowError, Task, run_by_row
from lucid.batch.tasks import Choices, check_choices, open_task, task_name
from lucid.batch.texts import CHARACTERS
from lucid.generation.chat.language_model import LanguageModel
from lucid.generation.chat.tokenizer_files import load_tokenizer
from lucid.runtime import Session
from lucid.runtime.model_file import check_model_file
from lucid.runtime.requirements import table_rows
from lucid.serving.batcher import Batcher
from lucid.serving.guard import Limits, Metrics
from lucid.serving.responses import UNPROCESSABLE, RequestError

MOST_ANSWERS = 16
IMAGE = "image"
"""The input of a model for images."""


def servable(folder: str | os.PathLike[str]) -> ExportedFolder:
    """The files of a folder whose model can be served.

    Raises:
        FileNotFoundError: for a folder that is not there or is not exported; the message names the command.
        ValueError: for an encoder with a decoder.
    """
    exported = exported_folder(folder)
    if exported.decoder is not None:
        raise ValueError(
            f"{exported.path}: has an encoder and a decoder, which are not served; lucid map runs them over rows"
        )
    return exported


class ServedModel:
    """The model of a folder, open.

    Args:
        exported: what `lucid export FOLDER --for onnxruntime` wrote.
        session: runs the model.
        choices: of its task.
        limits: of a request.
        metrics: count batches and tokens.
        name: what clients call the model; by default the folder's name.
        batch_tokens: the most tokens of a batch.
        slots, queue: how many answers are written at once, and how many more wait.

    Attributes:
        task: what it is for; see `lucid.batch.tasks.OUTPUTS`.
        language: of a decoder, what writes answers.
        most_answers: how many answers a request may ask for.
        fields: the inputs that the task turns into rows; none for a decoder.
        table_rows: by inputs of the model that index a table, such as token ids, how many rows the table has.

    Raises:
        ValueError: for a model of a task that is not served, or an option that its task does not have.
    """

    def __init__(
        self,
        exported: ExportedFolder,
        session: Session,
        choices: Choices,
        limits: Limits,
        metrics: Metrics,
        name: str | None,
        batch_tokens: int,
        slots: int,
        queue: int,
    ) -> None:
        self.session, self.limits, self.metrics = session, limits, metrics
        self.name = name or exported.path.name
        self.created = int(exported.model.stat().st_mtime)
        self.table_rows = table_rows(check_model_file(exported.model))
        self.task = task_name(self.session, str(exported.path))
        self.thread = ThreadPoolExecutor(1, "lucid-serving")  # one run at a time, over all threads of the session
        self.writers = ThreadPoolExecutor(slots + queue, "lucid-writing")  # one for each answer
        self.most_answers = min(MOST_ANSWERS, slots + queue)
        self.language: LanguageModel | None = None
        self.rows: Task | None = None
        if self.task == "text-generation":
            check_choices(choices, self.task, str(exported.path))
            self.language = LanguageModel(self.session, load_tokenizer(exported.path), slots=slots, queue=queue)
        else:
            self.rows = open_task(exported, self.session, choices)
        self.fields: tuple[str, ...] = () if self.rows is None else ("text", "pair")[: self.rows.inputs]
        if self.task.startswith(f"{IMAGE}-"):
            self.fields = (IMAGE,)
        self._batcher = Batcher(self._run, self.thread, batch_tokens, metrics.rows.observe)

    async def results(self, values: Sequence[Sequence[Any]], field: str) -> tuple[list[dict[str, Any]], int]:
        """The results of rows by column, and how many tokens the rows have.

        Raises:
            RequestError: for a row that has no result, or more tokens than a request may have.
        """
        ready, tokens = await asyncio.to_thread(self._ready, values, field)
        self.metrics.tokens.labels("read").inc(tokens)
        rows = await self._batcher.results(ready)
        for place, row in enumerate(rows):
            if isinstance(row, RowError):
                raise RequestError(f"{field}[{place}]: {row}", field, UNPROCESSABLE)
        return rows, tokens

    def count_answers(self) -> None:
        """Update the numbers of answers that are written and that wait; call it whenever they may have changed."""
        if self.language is not None:
            self.metrics.busy.set(self.language.active)
            self.metrics.waiting.set(self.language.waiting)

    def check_tokens(self, count: int, field: str) -> None:
        """Refuse a request of more tokens than one may have."""
        if count > self.limits.tokens:
            raise RequestError(
                f"{field}: the request takes {count} tokens or more, at most {self.limits.tokens} are served; send "
                "less at a time",
                field,
            )

    def check_answers(self, count: int, field: str) -> None:
        """Refuse a request for more answers than one may ask for."""
        if count > self.most_answers:
            raise RequestError(
                f"{field}: the request asks for {count} answers, at most {self.most_answers} are written at a time; "
                "ask for fewer",
                field,
            )

    def check_characters(self, count: int, field: str) -> None:
        """Refuse a text that is too long before tokens are made of it."""
        positions = None if self.language is None else self.language.max_positions
        tokens = self.limits.tokens if positions is None else min(positions, self.limits.tokens)
        if count > CHARACTERS * tokens:
            raise RequestError(
                f"{field}: the text has {count} characters, at most {CHARACTERS * tokens} are read: {CHARACTERS} for "
                f"each of the {tokens} tokens that are served; send less at a time",
                field.partition("[")[0],
            )

    def _ready(self, values: Sequence[Sequence[Any]], field: str) -> tuple[list[Ready], int]:
        """The rows, and how many tokens they have; reading stops at the limit."""
        assert self.rows is not None
        prepared: list[Ready] = []
        tokens = 0
        for place, row in enumerate(values):
            for value in row:
                if isinstance(value, str):
                    self.check_characters(len(value), f"{field}[{place}]")
            try:
                prepared.append(self.rows.ready(row))
            except RowError as error:
                raise RequestError(f"{field}[{place}]: {error}", field) from error
            tokens += prepared[-1].size
            self.check_tokens(tokens, field)
        return prepared, tokens

    def _run(self, batch: Sequence[Any]) -> ByRow:
        assert self.rows is not None
        return run_by_row(self.rows.run, batch)
