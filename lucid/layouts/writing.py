"""Writing a folder in one of the layouts."""

from __future__ import annotations

import os
from pathlib import Path

from lucid.folders import new_folder
from lucid.layouts.genai import GENAI
from lucid.layouts.layout import Exported, Options
from lucid.nn.module import Module
from lucid.nn.parts import CacheKind

LAYOUTS = {layout.name: layout for layout in (GENAI,)}
"""The layouts by name."""


def write_folder(
    model: Module,
    checkpoint: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    layout: str,
    target: str | None = None,
    cache: CacheKind | None = None,
    capacity: int | None = None,
) -> list[Exported]:
    """Export a model to a folder from which another runtime loads it. The folder appears whole or not at all.

    Args:
        model: what to export.
        checkpoint: where its tokenizer is: the folder or GGUF file that it was loaded from, or a folder like that.
        folder: where to write; it must not exist, or be empty.
        layout: a name in `LAYOUTS`, such as "genai".
        target, cache, capacity: as `Options`; by default what suits the runtime best.

    Returns:
        The ONNX files in the folder, and what each was exported from.

    Raises:
        ValueError: for a layout that does not exist, a model that the runtime does not run, an option that it does not
            take, or a checkpoint without what it needs to know; nothing is written then.
        FileExistsError: for a folder that is not empty.
        OSError: if the tokenizer is missing or the folder cannot be written.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r} does not exist: choose one of {', '.join(LAYOUTS)}")
    with new_folder(folder) as made:
        return LAYOUTS[layout].write(model, Path(checkpoint), made, Options(target, cache, capacity))
