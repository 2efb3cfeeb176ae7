"""What needs an extra of its own."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def ray_engine() -> Any:
    """The module that runs a job on Ray Data.

    Raises:
        ModuleNotFoundError: without Ray; the message says what to install.
    """
    if find_spec("ray") is None:
        raise ModuleNotFoundError("the engine ray needs Ray Data: pip install 'lucid-onnx[batch,ray]'")
    return import_module("lucid.batch.ray_engine")
