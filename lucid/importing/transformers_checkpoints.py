"""From a folder that transformers reads to a module: called once, a decoder, or an encoder-decoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lucid.core.graph.types import TensorType
from lucid.core.words.safe_text import listed
from lucid.importing import exporting
from lucid.importing.torch_import import TorchImportError
from lucid.importing.transformers_classes import SPEECH, TEXT_TO_TEXT, TEXTS, Checkpoint, quiet, read
from lucid.importing.transformers_encoder_decoders import TorchEncoderDecoder
from lucid.importing.transformers_modules import FromTransformers, TorchDecoder, TorchModel


@exporting.quiet()
def imported_checkpoint(
    folder: Path,
    task: str | None,
    architecture: str | None,
    trust_remote_code: bool,
    inputs: Mapping[str, TensorType],
) -> FromTransformers:
    """The module that `from_transformers` returns."""
    checkpoint = read(folder, task, architecture, trust_remote_code)
    imported = _module(checkpoint)
    with quiet():
        imported.take(checkpoint, inputs)
    lacking = sorted(imported.keys_read & set(checkpoint.missing))
    if lacking:
        raise TorchImportError(
            f"{folder}: has no weights {listed(lacking, 3)}, which {checkpoint.class_name} needs; give the "
            "task or the architecture of the checkpoint"
        )
    return imported


def _module(checkpoint: Checkpoint) -> FromTransformers:
    """A module of the kind that a checkpoint is, still empty."""
    if checkpoint.task == TEXTS:
        return TorchDecoder(checkpoint)
    if checkpoint.task == TEXT_TO_TEXT or (checkpoint.task == SPEECH and checkpoint.model.config.is_encoder_decoder):
        return TorchEncoderDecoder(checkpoint)
    return TorchModel(checkpoint)
