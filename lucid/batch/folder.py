"""A folder that `lucid export FOLDER --for ...` wrote: its model, and a hash of everything that results depend on."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lucid.core.words.suggestions import or_check
from lucid.generation.models import CACHE, ENCODER, STATE
from lucid.layouts.checkpoint_files import CONFIG, OTHER_FILES, PROMPTS, onnx_files, sha256
from lucid.runtime.model_file import check_model_file, external_files

Stamp: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""The name, size, time of change and inode of each file; equal stamps mean unchanged contents."""

_MODEL = "model.onnx"
_DECODER = "decoder_model_merged"


class FolderChangedError(RuntimeError):
    """The folder has changed since the job began, so results would come from two models."""


@dataclass(frozen=True)
class ExportedFolder:
    """The files of an exported folder."""

    path: Path  # the folder
    model: Path  # its ONNX file, or that of the encoder
    files: tuple[Path, ...]  # all files that results depend on: the model, its weights, configs, the tokenizer
    decoder: Path | None = None  # the file of the decoder that belongs to an encoder
    steps: bool = False  # whether the model is a decoder, which has a cache

    def digest(self) -> str:
        """The SHA-256 of the names and contents of the files."""
        digest = hashlib.sha256()
        for path in self.files:
            digest.update(f"{path.relative_to(self.path).as_posix()}\0{sha256(path)}\n".encode())
        return digest.hexdigest()

    def size(self) -> int:
        """The bytes of the files."""
        return sum(path.stat().st_size for path in self.files)

    def stamp(self) -> Stamp:
        """A record of the files that changes when one is touched; made without reading them.

        Raises:
            OSError: if a file is missing.
        """
        statuses = [(path, os.stat(path)) for path in self.files]
        return tuple((str(path), status.st_size, status.st_mtime_ns, status.st_ino) for path, status in statuses)


def exported_folder(source: str | os.PathLike[str]) -> ExportedFolder:
    """The files of a folder in the layout of onnxruntime, optimum, sentence-transformers or transformers.js.

    Raises:
        FileNotFoundError: if the folder or a model in it is missing; the message names the command that exports one.
        NotADirectoryError: for a file, such as one ONNX file.
        ValueError: for several models, an encoder without a merged decoder, or a file that is not a model.
    """
    path = Path(os.path.abspath(source))
    if path.is_file():
        raise NotADirectoryError(
            f"{os.fspath(source)!r} is a file, expected the folder of a model with its config and tokenizer, as "
            "lucid export CHECKPOINT --for onnxruntime writes it"
        )
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {os.fspath(source)!r}{or_check(source)}")
    model, decoder = _models_in(path)
    models = (model,) if decoder is None else (model, decoder)
    read = {file: check_model_file(file) for file in models}
    beside = sorted({file.parent / place for file, one in read.items() for place in external_files(one)})
    steps = any(CACHE.fullmatch(value.name) or STATE.fullmatch(value.name) for value in read[model].graph.input)
    others = [path / name for name in (CONFIG, *OTHER_FILES, PROMPTS)]
    files = (*models, *beside, *(one for one in others if one.is_file()))
    return ExportedFolder(path, model, files, decoder, steps)


def _models_in(folder: Path) -> tuple[Path, Path | None]:
    """The model, or the encoder and the decoder."""
    files = onnx_files(folder)
    if not files:
        raise FileNotFoundError(
            f"{folder}: has no ONNX file, so it is no exported model; write one: "
            f"lucid export {folder} --for onnxruntime --external-data"
        )
    if encoders := [file for file in files if file.name.startswith(ENCODER)]:
        pairs = [(file, file.with_name(file.name.replace(ENCODER, _DECODER, 1))) for file in encoders]
        whole = [(encoder, decoder) for encoder, decoder in pairs if decoder.is_file()]
        if len(whole) != 1:
            raise ValueError(
                f"{folder}: has {len(whole)} pairs of {ENCODER} and {_DECODER}, expected one; got "
                f"{', '.join(file.name for file in files)}"
            )
        return whole[0]
    named = [file for file in files if file.name == _MODEL] or files
    if len(named) > 1:
        raise ValueError(
            f"{folder}: has {len(named)} ONNX files, expected one: {', '.join(file.name for file in named)}"
        )
    return named[0], None
