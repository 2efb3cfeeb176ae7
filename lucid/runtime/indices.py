"""Which numbers the inputs of a model may hold: those that it looks up in a table, such as token ids, have a range."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from lucid.core.graph.types import Array

_SAME_ROWS = ("Cast", "Identity", "DequantizeLinear")
"""Operators whose output has the rows of their first input."""
_LOOKUPS = ("Gather", "GatherBlockQuantized")


def table_rows(model: onnx.ModelProto) -> dict[str, int]:
    """The number of rows of the smallest table that each input indexes; inputs that index no stored table are left out.

    Args:
        model: with or without the data of its weights.
    """
    graph = model.graph
    rows = {weight.name: weight.dims[0] for weight in graph.initializer if weight.dims}
    indices = {value.name: value.name for value in graph.input if value.name not in rows}
    found: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _SAME_ROWS:
            if node.input[0] in rows:
                rows[node.output[0]] = rows[node.input[0]]
            elif node.input[0] in indices:
                indices[node.output[0]] = indices[node.input[0]]
        elif node.op_type in _LOOKUPS and node.input[0] in rows and node.input[1] in indices and _of_rows(node):
            name, count = indices[node.input[1]], rows[node.input[0]]
            found[name] = min(count, found.get(name, count))
    return found


def _of_rows(node: onnx.NodeProto) -> bool:
    return all(attribute.i == 0 for attribute in node.attribute if attribute.name in ("axis", "gather_axis"))


def outside(rows: Mapping[str, int], arrays: Mapping[str, Array]) -> str:
    """Which number of which input is no row of its table, and which are; empty if all are."""
    for name, count in rows.items():
        array = arrays.get(name)
        if array is None or array.dtype.kind not in "iu":
            continue
        wrong = (array < 0) | (array >= count)
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            return f"{name}{list(place)} is {array[place]}, expected 0 to {count - 1}"
    return ""
