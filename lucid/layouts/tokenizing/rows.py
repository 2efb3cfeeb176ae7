"""Shared by tokenizers in a file: rows of tokens, cut to a length, with their masks; texts replaced."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.targets.runtimes import EXTENSIONS
from lucid.export import Builder
from lucid.layouts.tokenizing.reference import Reference

INT64 = 7  # onnx.TensorProto.INT64


def number(value: int) -> Array:
    """An int64 scalar."""
    return np.asarray(value, np.int64)


def vector(*values: int) -> Array:
    """An int64 vector."""
    return np.asarray(values, np.int64)


def constant(build: Builder, text: str) -> str:
    """One text, as an array of one axis."""
    return build.op("Constant", value_strings=[text])


def replaced(build: Builder, text: str, pattern: str, by: str) -> str:
    """Texts with all that an expression of RE2 finds replaced."""
    return build.op("StringRegexReplace", text, constant(build, pattern), constant(build, by), domain=EXTENSIONS)


def inputs_of_rows(
    build: Builder, ids: str, counts: str, reference: Reference, inputs: Collection[str]
) -> dict[str, str]:
    """The inputs of a model from rows of tokens.

    Args:
        build: where nodes are emitted.
        ids: (N, L) int64, whatever is after the tokens of a row.
        counts: (N) int64, how many tokens each row has; one has L.
        reference: the tokenizer.
        inputs: the names of the inputs.

    Returns:
        The ONNX values by name. A row that is too long keeps its first tokens, and then what the tokenizer adds after
        every text.
    """
    length, after = reference.length, np.asarray(reference.after, np.int64)
    last = np.concatenate([np.zeros(length - len(after), np.int64), after])
    counts = build.op("Unsqueeze", counts, vector(1))
    ids = build.op("Slice", ids, vector(0), vector(length), vector(1))
    width = build.op("Shape", ids, start=1, end=2)
    columns = build.op("Range", number(0), build.op("Squeeze", width), number(1))
    mask = build.op("Less", columns, counts)
    if len(after):
        cut = build.op("Greater", counts, number(length))
        at_end = build.op("GreaterOrEqual", columns, number(length - len(after)))
        ids = build.op("Where", build.op("And", cut, at_end), build.op("Slice", last, vector(0), width), ids)
    values = {"input_ids": build.op("Where", mask, ids, number(reference.padding))}
    if "attention_mask" in inputs:
        values["attention_mask"] = build.op("Cast", mask, to=INT64)
    if "token_type_ids" in inputs:
        values["token_type_ids"] = build.op("ConstantOfShape", build.op("Shape", ids), value=vector(0))
    return {name: value for name, value in values.items() if name in inputs}
