"""Rows of a job: the interface of a task, errors of single rows, and results as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lucid.batch.batches import BUDGET
from lucid.core.graph.types import Array
from lucid.core.words.safe_text import encodable
from lucid.generation.logits import LogitsError
from lucid.runtime.runs import IndexOutsideError

Results: TypeAlias = Sequence[Any] | Array
"""One result for each row; a `RowError` among texts for a row without."""


ERROR = "error"
"""The column that says why a row has no result."""


class RowError(ValueError):
    """Why a row has no result. The reason goes to the column `error`, and the job goes on."""


class Kind(Enum):
    """The type of a result in a column."""

    VECTOR = "vector"
    NUMBER = "number"
    TEXT = "text"
    SPARSE = "sparse"
    """The indices and values of a vector's numbers that are not 0."""
    VECTORS = "vectors"
    """A vector for each token."""


@dataclass(frozen=True)
class Column:
    """A column of results: what it holds, and how long its vectors are."""

    kind: Kind
    width: int = 0

    def array(self, results: Sequence[Any | None]) -> Array:
        """The results as an array: (N, E) float32, (N,) float32 or (N,) objects; None is NaN among numbers."""
        if self.kind not in (Kind.VECTOR, Kind.NUMBER):
            return objects(results)
        shape = (len(results), self.width) if self.kind is Kind.VECTOR else (len(results),)
        array = np.full(shape, np.nan, np.float32)
        for row, one in enumerate(results):
            if one is not None:
                array[row] = one
        return array


@dataclass(frozen=True)
class Ready:
    """A row that is ready for the model."""

    size: int  # the number of its tokens; rows of similar sizes share a batch
    data: Any  # what the task needs to put it into a batch
    truncated: bool = False  # whether the row had more tokens


class Task(Protocol):
    """The work of a folder's model on rows. Several threads may use a task at once.

    Attributes:
        columns: the columns of its results, by name.
        inputs: the number of columns that it reads.
        part_rows: the fewest and the most rows of a file of results; an interrupted job loses one file.
    """

    columns: Mapping[str, Column]
    inputs: int
    part_rows: tuple[int, int]

    def ready(self, values: Sequence[Any]) -> Ready:
        """The model's inputs for a row with these values; raises RowError."""

    def batches(self, sizes: Sequence[int], budget: int) -> list[list[int]]:
        """The batches for rows of these sizes, as indices of rows; a batch has up to `budget` tokens."""

    def run(self, batch: Sequence[Any], budget: int = BUDGET) -> dict[str, Results]:
        """The results of rows by column, in the order of the rows."""


ByRow: TypeAlias = list[dict[str, Any] | RowError]
"""The results of rows, each by column; an error for a row without."""
OF_ROWS = (IndexOutsideError, LogitsError)
"""Errors that are those of single rows."""


def run_by_row(run: Callable[[Sequence[Any]], Mapping[str, Results]], batch: Sequence[Any]) -> ByRow:
    """The results of the rows of a batch, which `Task.run` computes; an error for a row with NaN, infinity, or a token
    that the model lacks.

    A batch with an error that is one row's is computed in halves.
    """
    try:
        return _by_row(run(batch))
    except OF_ROWS as error:
        if len(batch) == 1:
            return [RowError(str(error))]
        half = len(batch) // 2
        return [*run_by_row(run, batch[:half]), *run_by_row(run, batch[half:])]


def _by_row(columns: Mapping[str, Results]) -> ByRow:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [_error_of(row) or row for row in rows]


def _error_of(row: Mapping[str, Any]) -> RowError | None:
    for result in row.values():
        if isinstance(result, RowError):
            return result
    if names := [name for name, result in row.items() if not _is_finite(result)]:
        return RowError(
            f"the model makes NaN or infinity of it in {' and '.join(names)}; leave it out, or check the weights, and "
            "the element type, which may have overflowed"
        )
    return None


def _is_finite(result: Any) -> bool:
    """Whether a result, which may be a text or a sparse vector, has neither NaN nor infinity."""
    numbers = result["values"] if isinstance(result, dict) else result
    return isinstance(numbers, str) or bool(np.isfinite(numbers).all())


def objects(values: Sequence[Any]) -> Array:
    """A one-dimensional array of objects, also of sequences."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def missing(value: Any) -> bool:
    """Whether an engine means a missing value: None, NaN or pandas' NA."""
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


def check_free(results: Sequence[str], columns: Collection[str]) -> None:
    """Refuse a column of the input that has the name of a result.

    Raises:
        ValueError: for such a column.
    """
    for name in results:
        if name in columns:
            remedy = (
                "drop or rename it; the results of an earlier job have such a column"
                if name == ERROR
                else "rename it, or give another name for the output (--output-column)"
            )
            raise ValueError(f"the input has a column {name!r} already, which is the name of a result; {remedy}")


def result_schema(passed: pa.Schema, columns: Mapping[str, Column]) -> pa.Schema:
    """The schema of the columns that are passed on, those of results, and `error`.

    Raises:
        ValueError: for a column of the input that has the name of a result.
    """
    check_free((*columns, ERROR), passed.names)
    results = [pa.field(name, _type(column)) for name, column in columns.items()]
    return pa.schema([*passed, *results, pa.field(ERROR, pa.string())])


def with_results(passed: pa.RecordBatch, schema: pa.Schema, results: Mapping[str, Array]) -> pa.RecordBatch:
    """Rows with their results, as `Predictor.predict` gives them; a row with an error has null results."""
    wrong = np.array([reason is not None for reason in results[ERROR]], bool)
    columns = [_array(results[field.name], field.type, wrong) for field in schema if field.name in results]
    return pa.RecordBatch.from_arrays([*passed.columns, *columns], schema=schema)


def _type(column: Column) -> pa.DataType:
    if column.kind is Kind.VECTOR:
        return pa.list_(pa.float32())  # not of a fixed size: Arrow 25 cannot read the nulls of those from Parquet
    if column.kind is Kind.VECTORS:
        return pa.list_(pa.list_(pa.float32()))
    if column.kind is Kind.SPARSE:
        return pa.struct({"indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32())})
    return pa.float32() if column.kind is Kind.NUMBER else pa.string()


def _array(values: Array, kind: pa.DataType, wrong: Array) -> Any:
    if pa.types.is_struct(kind):
        return pa.array(values, kind)
    if pa.types.is_list(kind) and pa.types.is_list(kind.value_type):
        return pa.array([None if rows is None else list(rows) for rows in values], kind)
    if pa.types.is_list(kind):
        ends = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
        return pa.ListArray.from_arrays(ends, pa.array(values.reshape(-1)), kind, mask=pa.array(wrong))
    if pa.types.is_string(kind):
        return pa.array([value if value is None else encodable(value) for value in values], kind)
    return pa.array(values, kind, mask=wrong)
