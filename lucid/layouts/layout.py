"""What a layout is: a name, the runtime that it is for, and the function that fills a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lucid.nn.module import Module
from lucid.nn.parts import CacheKind, ModelPart


@dataclass(frozen=True)
class Options:
    """What may be chosen about the model of a folder; None for what suits the runtime best.

    Args:
        target: a target of `to_onnx`.
        cache: the kind of the cache of a decoder.
        capacity: how many positions a text may have, prompt and answer together, unless the caller asks for another
            number; a fixed cache has room for as many.
    """

    target: str | None = None
    cache: CacheKind | None = None
    capacity: int | None = None


@dataclass(frozen=True)
class Exported:
    """An ONNX file of a folder: its name, and what was exported to it."""

    file: str
    part: ModelPart


@dataclass(frozen=True)
class Layout:
    """How a folder looks from which a runtime loads a model.

    Args:
        name: what `--for` and `write_folder` call it.
        about: the runtime.
        write: fills an empty folder, and returns the ONNX files in it. Its arguments are the model, the checkpoint that
            has its tokenizer, the folder, and the options. Its errors are those of `write_folder`.
    """

    name: str
    about: str
    write: Callable[[Module, Path, Path, Options], list[Exported]]
