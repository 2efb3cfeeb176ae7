"""Files of adapters, `.onnx_adapter`: arrays by the names of inputs, which onnxruntime gives to a run by itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import onnxruntime

from lucid.core.graph.types import Array
from lucid.core.words.safe_text import listed
from lucid.files.atomic import write_atomically
from lucid.files.utf8_paths import utf8_path
from lucid.runtime.model_file import ModelError
from lucid.runtime.ort_values import numpy_of, ort_value
from lucid.runtime.runs import quiet

_VERSION = 1  # of adapter and model, which onnxruntime stores and does not compare


def save_adapter(path: str | os.PathLike[str], arrays: Mapping[str, Array]) -> None:
    """Write a file of arrays by the names of the inputs that they are for. It appears whole or not at all.

    Raises:
        OSError: if it cannot be written.
    """
    written = onnxruntime.AdapterFormat()
    written.set_adapter_version(_VERSION)
    written.set_model_version(_VERSION)
    written.set_parameters({name: ort_value(array) for name, array in arrays.items()})
    with tempfile.TemporaryDirectory(prefix="lucid-") as folder:
        copy = Path(folder) / "made.onnx_adapter"
        written.export_adapter(str(copy))
        with write_atomically(path) as file:
            file.write(copy.read_bytes())


class _Read(NamedTuple):
    """An adapter as onnxruntime has it, and its arrays by the names of inputs."""

    adapter: onnxruntime.LoraAdapter
    values: Mapping[str, Any]


class Adapters:
    """The files of adapters that a session has read, each once until it changes.

    Args:
        known: the inputs that they may give.
    """

    def __init__(self, known: Container[str]) -> None:
        self._known = known
        self._read: dict[tuple[str, int, int], _Read] = {}

    def options(self, path: str | os.PathLike[str] | None) -> onnxruntime.RunOptions:
        """The options of a run, with an adapter if there is a path.

        Raises:
            ModelError: for a file that holds no adapter, or one with other inputs than those known.
            OSError: if the file cannot be read.
        """
        options = quiet()
        if path is not None:
            options.add_active_adapter(self._of(path).adapter)
        return options

    def values(self, path: str | os.PathLike[str] | None) -> Mapping[str, Any]:
        """OrtValues by the names of inputs, for a run that is bound to memory; see `options`."""
        return {} if path is None else self._of(path).values

    def _of(self, path: str | os.PathLike[str]) -> _Read:
        status = os.stat(path)
        key = os.path.abspath(path), status.st_mtime_ns, status.st_size
        if key not in self._read:
            self._read[key] = _read(Path(path), self._known)
        return self._read[key]


def _read(path: Path, known: Container[str]) -> _Read:
    adapter = onnxruntime.LoraAdapter()
    try:
        values = onnxruntime.AdapterFormat.read_adapter(utf8_path(path)).get_parameters()
        adapter.Load(utf8_path(path))
    except RuntimeError as error:  # whose text is of onnxruntime's source
        raise ModelError(f"{path}: expected a file of an adapter, as lucid.layouts.write_adapter writes it") from error
    strange = [name for name in values if name not in known]
    if strange:
        raise ModelError(
            f"{path}: has {listed(sorted(strange))}, which the model does not take; write the adapter for this model"
        )
    return _Read(adapter, {name: ort_value(numpy_of(value).copy()) for name, value in values.items()})
