"""What an exported model says about how it is to be run."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from lucid.known_runtimes import ACCURACY_LEVEL
from lucid.runtime.skeleton import WireError, skeleton

_LEVEL = "session.qdq_matmulnbits_accuracy_level"  # onnxruntime's config key


def config_of(model: object) -> dict[str, str]:
    """The config entries of onnxruntime that a model asks for; none if it cannot be read, which loading it tells.

    Standard products with weights in few bits do not say how exact they are, and onnxruntime's default rounds their
    inputs to 8 bits.
    """
    told = {entry.key: entry.value for entry in _read(model).metadata_props}
    level = told.get(ACCURACY_LEVEL)
    return {_LEVEL: level} if level in ("0", "4") else {}


def _read(model: object) -> onnx.ModelProto:
    """The model without its large weights."""
    if isinstance(model, onnx.ModelProto):
        return model
    found = onnx.ModelProto()
    with suppress(OSError, WireError, DecodeError):
        if isinstance(model, bytes):
            found.ParseFromString(skeleton(model)[0])
        elif isinstance(model, (str, os.PathLike)) and Path(model).is_file() and os.path.getsize(model):
            with Path(model).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found.ParseFromString(skeleton(data)[0])
    return found
