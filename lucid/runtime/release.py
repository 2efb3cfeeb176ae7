"""The release of onnxruntime that is installed."""

from __future__ import annotations

import onnxruntime


def installed() -> str:
    """Its first two numbers, such as "1.31", as `lucid.export.Target` takes them."""
    return ".".join(onnxruntime.__version__.split(".")[:2])
