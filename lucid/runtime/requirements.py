"""How a model must be run, as the model itself says: config entries, limits of sizes and ids, extension operators."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from lucid.core.graph.types import Array
from lucid.core.number_ranges import is_whole
from lucid.core.sizes.bounds import Bound
from lucid.core.sizes.dims import dim
from lucid.core.targets.runtimes import ACCURACY_LEVEL, EXTENSIONS, SIZE_BOUNDS, SIZE_LIMITS
from lucid.runtime.skeleton import WireError, skeleton

_LEVEL = "session.qdq_matmulnbits_accuracy_level"  # onnxruntime's config key


def config_of(model: onnx.ModelProto) -> dict[str, str]:
    """The config entries of onnxruntime that a model asks for; its large data is not read.

    Standard products with quantized weights do not say how exact they are, and onnxruntime's default rounds their
    inputs to 8 bits.
    """
    level = next((entry.value for entry in model.metadata_props if entry.key == ACCURACY_LEVEL), None)
    return {_LEVEL: level} if level in ("0", "4") else {}


class Limits(NamedTuple):
    """The values that symbolic sizes may have."""

    explaining: Mapping[str, int]  # how far the tables of the model reach, by name: they explain why a run failed
    # Bounds of sizes and their sums: outside of them a run is refused, since the model may compute something else
    # without failing.
    refusing: Sequence[Bound]


def limits_of(model: onnx.ModelProto) -> Limits:
    """The largest values of sizes from the model's metadata; malformed entries are left out."""
    bounds = list[Bound]()
    for text, limits in _by_name(model, SIZE_BOUNDS).items():
        with suppress(ValueError):
            match limits:
                case [int(least), int() | None as most] if (most is None or most > 0) and least >= 0:
                    bounds.append(Bound(dim(text), least, most))
    largest = {name: limit for name, limit in _by_name(model, SIZE_LIMITS).items() if is_whole(limit) and limit > 0}
    return Limits(largest, bounds)


def _by_name(model: onnx.ModelProto, key: str) -> dict[str, Any]:
    """The metadata under a key; nothing if it is malformed."""
    text = next((entry.value for entry in model.metadata_props if entry.key == key), "{}")
    try:
        limits = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return limits if isinstance(limits, dict) else {}


def without_data(model: bytes) -> onnx.ModelProto:
    """A serialized model without its large data; an empty one if it cannot be read: onnxruntime's error says more."""
    result = onnx.ModelProto()
    with suppress(WireError, DecodeError):
        result.ParseFromString(skeleton(model)[0])
    return result


_DOMAINS = (EXTENSIONS, "com.microsoft.extensions")  # the library registers its operators in both


def needs_extensions(model: onnx.ModelProto) -> bool:
    """Whether a model has operators of the library onnxruntime-extensions."""
    return any(entry.domain in _DOMAINS for entry in model.opset_import)


def webgpu_plugin_path() -> str:
    """The path of onnxruntime's plugin for WebGPU, which must be installed."""
    path: str = import_module("onnxruntime_ep_webgpu").get_library_path()
    return path


def extensions_path() -> str:
    """The path of the library onnxruntime-extensions, which a session registers.

    Raises:
        ModuleNotFoundError: if it is not installed; the message says how to install it.
    """
    try:
        path: str = import_module("onnxruntime_extensions").get_library_path()
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the model has operators of onnxruntime-extensions (domain {EXTENSIONS}), but {error.name} is not "
            "installed: pip install 'lucid-onnx[extensions]'"
        ) from error
    return path


_SAME_ROWS = ("Cast", "Identity", "DequantizeLinear")
"""Operators whose output has the rows of their first input."""
_LOOKUPS = ("Gather", "GatherBlockQuantized")


def table_rows(model: onnx.ModelProto) -> dict[str, int]:
    """The number of rows of the smallest table that each input indexes, stored or an input itself, as weights of a
    training step are; inputs that index no table are left out.

    Args:
        model: with or without the data of its weights.
    """
    graph = model.graph
    rows = {weight.name: weight.dims[0] for weight in graph.initializer if weight.dims}
    for value in graph.input:
        tensor = value.type.tensor_type
        if tensor.elem_type == onnx.TensorProto.FLOAT and tensor.shape.dim and tensor.shape.dim[0].dim_value:
            rows[value.name] = tensor.shape.dim[0].dim_value
    indices = {value.name: value.name for value in graph.input if value.name not in rows}
    fewest: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _SAME_ROWS:
            if node.input[0] in rows:
                rows[node.output[0]] = rows[node.input[0]]
            elif node.input[0] in indices:
                indices[node.output[0]] = indices[node.input[0]]
        elif node.op_type in _LOOKUPS and node.input[0] in rows and node.input[1] in indices and _of_rows(node):
            name, count = indices[node.input[1]], rows[node.input[0]]
            fewest[name] = min(count, fewest.get(name, count))
    return fewest


def _of_rows(node: onnx.NodeProto) -> bool:
    return all(attribute.i == 0 for attribute in node.attribute if attribute.name in ("axis", "gather_axis"))


def outside(rows: Mapping[str, int], arrays: Mapping[str, Array]) -> str:
    """The first number of an input that its table has no row for, with the range of rows; empty if all have one."""
    for name, count in rows.items():
        array = arrays.get(name)
        if array is None or array.dtype.kind not in "iu":
            continue
        wrong = (array < 0) | (array >= count)
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            return f"{name}{list(place)} is {array[place]}, expected 0 to {count - 1}"
    return ""
