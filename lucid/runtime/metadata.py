"""What an exported model says about how it is to be run."""

from __future__ import annotations

import json
from contextlib import suppress

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from lucid.core.graph.types import is_whole
from lucid.core.targets.runtimes import ACCURACY_LEVEL, SIZE_LIMITS
from lucid.runtime.skeleton import WireError, skeleton

_LEVEL = "session.qdq_matmulnbits_accuracy_level"  # onnxruntime's config key


def config_of(model: onnx.ModelProto) -> dict[str, str]:
    """The config entries of onnxruntime that a model asks for; its large data is not read.

    Standard products with quantized weights do not say how exact they are, and onnxruntime's default rounds their
    inputs to 8 bits.
    """
    told = {entry.key: entry.value for entry in model.metadata_props}
    level = told.get(ACCURACY_LEVEL)
    return {_LEVEL: level} if level in ("0", "4") else {}


def limits_of(model: onnx.ModelProto) -> dict[str, int]:
    """The largest values of symbolic sizes that a model tells; none of what is not well-formed."""
    told = next((entry.value for entry in model.metadata_props if entry.key == SIZE_LIMITS), "{}")
    try:
        found = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: limit for name, limit in pairs if is_whole(limit) and limit > 0}


def without_data(model: bytes) -> onnx.ModelProto:
    """A serialized model without its large data; an empty one if it cannot be read, which onnxruntime will tell."""
    found = onnx.ModelProto()
    with suppress(WireError, DecodeError):
        found.ParseFromString(skeleton(model)[0])
    return found
