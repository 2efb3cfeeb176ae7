"""Results as Arrow's columns, which know null where NumPy has NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lucid.batch.rows import ERROR, Column, Kind
from lucid.core.graph.types import Array
from lucid.core.words.safe_text import encodable


def result_schema(passed: pa.Schema, columns: Mapping[str, Column]) -> pa.Schema:
    """The columns that are passed on, those of results, and `error`.

    Raises:
        ValueError: for a column that is among both.
    """
    for name in (*columns, ERROR):
        if name in passed.names:
            raise ValueError(
                f"the input has a column {name!r} already, which is the name of a result; rename it, or give another "
                "name for the output (--output-column)"
            )
    results = [pa.field(name, _type(column)) for name, column in columns.items()]
    return pa.schema([*passed, *results, pa.field(ERROR, pa.string())])


def with_results(passed: pa.RecordBatch, schema: pa.Schema, results: Mapping[str, Array]) -> pa.RecordBatch:
    """Rows with their results, as `Predictor.predict` gives them; what is wrong with a row makes its results null."""
    wrong = np.array([reason is not None for reason in results[ERROR]], bool)
    made = [_array(results[field.name], field.type, wrong) for field in schema if field.name in results]
    return pa.RecordBatch.from_arrays([*passed.columns, *made], schema=schema)


def _type(column: Column) -> pa.DataType:
    if column.kind is Kind.VECTOR:
        return pa.list_(pa.float32())  # not of a fixed size: Arrow 25 cannot read the nulls of those from Parquet
    return pa.float32() if column.kind is Kind.NUMBER else pa.string()


def _array(values: Array, kind: pa.DataType, wrong: Array) -> Any:
    if pa.types.is_list(kind):
        ends = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
        return pa.ListArray.from_arrays(ends, pa.array(values.reshape(-1)), kind, mask=pa.array(wrong))
    if pa.types.is_string(kind):
        return pa.array([value if value is None else encodable(value) for value in values], kind)
    return pa.array(values, kind, mask=wrong)
