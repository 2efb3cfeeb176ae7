"""Adapters for an exported model: a file for each, which onnxruntime and onnxruntime-genai give to a run."""

from __future__ import annotations

import os
from pathlib import Path

from lucid.files.hub import folder_name
from lucid.models.checkpoints.adapter_inputs import adapter_arrays
from lucid.models.checkpoints.pretrained import Pretrained
from lucid.nn.module import Module
from lucid.runtime.adapters import save_adapter

ENDING = ".onnx_adapter"


def write_kept_adapters(model: Module, folder: Path) -> list[Path]:
    """Write each adapter that the layers of a model take, named after its folder.

    Raises:
        ValueError: for two of one name.
        ConfigError, WeightsError, OSError: as `write_adapter`.
    """
    kept = list(model.kept_adapters) if isinstance(model, Pretrained) else []
    files = {folder / f"{folder_name(adapter)}{ENDING}": adapter for adapter in kept}
    if len(files) != len(kept):
        raise ValueError(f"two adapters would be written as one file: {', '.join(map(str, kept))}; rename a folder")
    for path, adapter in files.items():
        write_adapter(model, adapter, path)
    return list(files)


def write_adapter(model: Module, adapter: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write a LoRA adapter of PEFT as a file for an exported model: `Session.run` and onnxruntime-genai take it.

    Args:
        model: of `lucid.models.with_adapter_inputs`, as it was exported.
        adapter: the folder of the adapter.
        path: the file, usually ``NAME.onnx_adapter``.

    Raises:
        ConfigError, WeightsError: for an adapter that can only be merged, or fits no layer that takes adapters.
        OSError: if a file is missing or cannot be written.
    """
    save_adapter(path, adapter_arrays(model, Path(adapter)))
