"""A model as a function of columns, which Ray Data, Daft, Dask, Spark and `lucid map` call for some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Sized
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lucid.batch.batches import BUDGET
from lucid.batch.folder import exported_folder
from lucid.batch.open_models import OpenModel, Plan, open_model
from lucid.batch.rows import ERROR, Column, Ready, RowError, Task, check_free, objects
from lucid.batch.source import column_values
from lucid.batch.tasks import Choices
from lucid.core.graph.types import Array
from lucid.core.number_ranges import at_least, check_all
from lucid.core.words.progress import Advance, unheard
from lucid.layouts.checkpoint_files import sha256

_SMALL = 256 << 20  # bytes of a model that every process may have a copy of


class Predictor:
    """A function of columns that adds an exported model's result for each row: an embedding, a label, a score, a text.

    It takes columns by name and returns all of them, with the results and the column `error` added. A row without a
    result (null, empty, of another type, too long, an image that cannot be read, one of which the model makes NaN) has
    NaN or None, and `error` says why; the other rows are computed. Rows are sorted by length and computed in batches of
    `batch_tokens` tokens.

    The model is opened on first use in each process. A pickle contains the path, the hash and the options, so the
    folder must have the same path and the same contents on every machine: anything else is an error.

    Args:
        folder: what `lucid export FOLDER --for onnxruntime` wrote, or `sentence-transformers`, `optimum`,
            `transformers.js`. With `--external-data` all processes of a machine share one copy of the weights.
        input: the column of texts or images, or the two columns of a cross-encoder. An image is a path, the bytes of a
            file, or an array (H, W, 3) uint8.
        output: the column of the results; by default `embedding`, `label` (with `score`), `score` or `answer` (with
            `ended_by`).
        batch_tokens: the most tokens of a batch, padding included; an image counts one for each 16 x 16 pixels.
        threads: how many batches are computed at a time, each by one thread, at most one a core. Results do not depend
            on it.
        task: the task that the folder must be exported for; any by default.
        max_length: the most tokens of a row; longer texts are cut off. The default is the checkpoint's.
        max_characters: a longer text has no result.
        pooling: "cls" or "mean", for a model that gives a vector for each token.
        prompt: the name of a prompt of config_sentence_transformers.json to put before each text, or "" for none; the
            default is the checkpoint's.
        providers: of the `Session`.
        prepack: of the `Session`: faster by some percent, with a copy of most weights in each process; by default for
            models of less than 256 MiB. Larger ones stay in their file, which all processes of a machine share.
        adapter: a file of `lucid.layouts.write_adapter`, for a model that was exported with inputs for adapters.
        generation: for models that write text, options of `Generator.generate`, such as ``{"max_new_tokens": 64}``; for
            decoders alone also ``chat``, and ``json_schema``, ``regex`` or ``grammar``, which an answer must match.

    Raises:
        FileNotFoundError: for a folder that is not there or is not exported; the message names the command.
        TypeError, ValueError: for an option of another type or out of range.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        input: str | Sequence[str] = "text",
        output: str | None = None,
        *,
        batch_tokens: int = BUDGET,
        threads: int = 1,
        task: str | None = None,
        max_length: int | None = None,
        max_characters: int = 1_000_000,
        pooling: str | None = None,
        prompt: str | None = None,
        providers: str | Sequence[str] = "cpu",
        prepack: bool | None = None,
        adapter: str | os.PathLike[str] | None = None,
        generation: Mapping[str, Any] | None = None,
    ) -> None:
        counts = {"batch_tokens": batch_tokens, "threads": threads, "max_characters": max_characters}
        sizes = counts | {"max_length": max_length}
        check_all(sizes, dict.fromkeys(sizes, at_least(1)), "Predictor: ")
        self.inputs = (input,) if isinstance(input, str) else tuple(input)
        if len({*self.inputs}) < len(self.inputs):
            raise ValueError(f"Predictor: input is {', '.join(self.inputs)}, expected each column once")
        self.batch_tokens = batch_tokens
        names = (providers,) if isinstance(providers, str) else tuple(providers)
        chosen = Choices(output, task, max_length, max_characters, pooling, prompt, deepcopy(dict(generation or {})))
        exported = exported_folder(folder)
        packed = exported.size() < _SMALL if prepack is None else prepack
        with_hash = None if adapter is None else (os.path.abspath(adapter), sha256(Path(adapter)))
        self.plan = Plan(str(exported.path), exported.digest(), threads, names, packed, chosen, with_hash)

    def __call__(self, columns: Mapping[str, Any] | pa.Table | pa.RecordBatch) -> dict[str, Array]:
        """The columns, with the results and `error` added.

        Args:
            columns: arrays of NumPy or Arrow, or other sequences, by name, all of one length; or a table of Arrow, or a
                frame of pandas.

        Raises:
            KeyError: for a column that is missing.
            TypeError: for a single text in the place of a column.
            ValueError: for a column that has the name of a result, and for one of another length.
            FolderChangedError: if the folder has changed.
        """
        if isinstance(columns, (pa.Table, pa.RecordBatch)):
            columns = dict(zip(columns.column_names, columns.columns, strict=True))
        if missing := [name for name in self.inputs if name not in columns]:
            raise KeyError(f"there is no column {', '.join(missing)}; the columns are {', '.join(columns)}")
        check_free((*open_model(self.plan).task.columns, ERROR), columns)
        values = list(zip(*(_rows(name, columns[name]) for name in self.inputs), strict=True))
        for name, column in columns.items():
            if isinstance(column, Sized) and len(column) != len(values):
                raise ValueError(
                    f"the column {name} has {len(column)} rows, and {self.inputs[0]} has {len(values)}; give as many"
                )
        return {**columns, **self.predict(values)}

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns of results by name; `error`, which is text, is added to them."""
        return self._task.columns

    @property
    def part_rows(self) -> tuple[int, int]:
        """The fewest and the most rows of a file of results."""
        return self._task.part_rows

    @property
    def _task(self) -> Task:
        """The task, opened on the CPU: the process that plans a job may have no other device."""
        on_cpu = self.plan.providers == ("cpu",)
        return open_model(self.plan if on_cpu else replace(self.plan, providers=("cpu",), prepack=False)).task

    def open(self) -> OpenModel:
        """The model, which is opened in this process once.

        Raises:
            ValueError: for more or fewer columns than the model reads.
            FolderChangedError: if the folder has changed.
            ProviderError: for a provider that does not exist or does not run the model.
        """
        model = open_model(self.plan)
        model.check()
        if len(self.inputs) != model.task.inputs:
            one = model.task.inputs == 1
            raise ValueError(
                f"{self.plan.folder}: its model reads {'one column' if one else f'{model.task.inputs} columns'}, got "
                f"{len(self.inputs)}: {', '.join(self.inputs)}; name {'one' if one else 'each'} (--column)"
            )
        return model

    def predict(self, rows: Sequence[Sequence[Any] | RowError], advance: Advance = unheard) -> dict[str, Array]:
        """The results and `error` for rows; a row is its values, or the reason why it has none.

        `advance` is called after each batch, with its number of rows.

        Raises:
            ValueError, FolderChangedError, ProviderError: as `open`.
        """
        model = self.open()
        ready: list[tuple[int, Ready]] = []
        reasons: list[str | None] = [None] * len(rows)
        for place, row in enumerate(rows):
            try:
                if isinstance(row, RowError):
                    raise row
                ready.append((place, model.task.ready(row)))
            except RowError as error:
                reasons[place] = str(error)
        chosen = model.task.batches([one.size for _, one in ready], self.batch_tokens)
        advance(len(rows) - len(ready))
        batches = [[ready[each][1].data for each in batch] for batch in chosen]
        by_batch = model.run(batches, self.batch_tokens, advance)
        results: dict[str, list[Any]] = {name: [None] * len(rows) for name in model.task.columns}
        for batch, computed in zip(chosen, by_batch, strict=True):
            for each, result in zip(batch, computed, strict=True):
                place = ready[each][0]
                if isinstance(result, RowError):
                    reasons[place] = str(result)
                else:
                    for name, value in result.items():
                        results[name][place] = value
        columns = {name: column.array(results[name]) for name, column in model.task.columns.items()}
        return {**columns, ERROR: objects(reasons)}


def _rows(name: str, column: Any) -> list[Any]:
    """The values of a column of any library whose columns give values of Python, or of NumPy."""
    if isinstance(column, (str, bytes)):
        raise TypeError(f"the column {name} is {type(column).__name__}, expected a value for each row; give a list")
    return column_values(column) if isinstance(column, (pa.Array, pa.ChunkedArray)) else list(column)
