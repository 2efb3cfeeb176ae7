"""What sentence-transformers reads of a folder: which layers follow the encoder, and their weights."""

from __future__ import annotations

from pathlib import Path

import lucid
from lucid import Tensor
from lucid.core.graph.types import Array
from lucid.files.safetensors import SINGLE
from lucid.models.checkpoints.sentence_files import DENSE, MODULES, PREFIX, read_modules
from lucid.models.parts.sentences import PooledEncoder
from lucid.nn.module import Module


def write_sentence_layers(model: Module, checkpoint: Path, folder: Path) -> None:
    """modules.json, the config of each layer, and the weights of a Dense, which sentence-transformers computes itself.

    Raises:
        ValueError: for a model without these layers, a checkpoint without modules.json, and a quantized Dense.
        OSError: if a file cannot be read or written.
    """
    modules = read_modules(checkpoint)
    if not isinstance(model, PooledEncoder) or modules is None:
        raise ValueError(
            f"{checkpoint}: sentence-transformers takes sentence encoders, which have a {MODULES}, and cross-encoders; "
            f"got a {type(model).__name__}"
        )
    modules.write(folder)
    stored: dict[str, Tensor | Array] = {**model.state_dict(), **modules.weights}
    for layer in modules.layers:
        prefix = f"{PREFIX}.{layer.name}."
        if layer.kind == DENSE:
            weights = {name.removeprefix(prefix): array for name, array in stored.items() if name.startswith(prefix)}
            if "linear.weight" not in weights:
                raise ValueError(
                    f"{prefix}linear.weight is quantized, and sentence-transformers computes this layer itself; "
                    f'leave it as it is: --skip "{PREFIX}.*"'
                )
            lucid.save(folder / layer.name / SINGLE, weights)
