"""The operators of the library onnxruntime-extensions, which a session registers where a model has them."""

from __future__ import annotations

from importlib import import_module

import onnx
import onnxruntime

from lucid.core.targets.runtimes import EXTENSIONS

_DOMAINS = (EXTENSIONS, "com.microsoft.extensions")  # the library registers its operators in both


def needs_extensions(model: onnx.ModelProto) -> bool:
    """Whether a model says that it has operators of this library."""
    return any(entry.domain in _DOMAINS for entry in model.opset_import)


def extensions_path() -> str:
    """Where the library is that a session registers.

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


def register(options: onnxruntime.SessionOptions) -> None:
    """Let the sessions with these options run the operators. An options object takes them once."""
    options.register_custom_ops_library(extensions_path())
