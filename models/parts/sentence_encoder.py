"""An encoder with the layers of sentence-transformers on top, as its checkpoint lists them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import lucid
from lucid import DType, Tensor
from lucid.models.checkpoints.pretrained import Auto, C, Config, Pretrained
from lucid.models.checkpoints.sentence_files import read_modules
from lucid.models.parts.sentence_layers import Pooling


class PooledEncoder(Pretrained[C]):
    """The base, beside that of the encoder, of one that gives sentence embeddings.

    Its config has a field `sentence_layers`, which is read from modules.json where the checkpoint has one.
    """

    output_names: ClassVar[Sequence[str]] = ("sentence_embedding",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.sentence_layers = {layer.name: layer.build() for layer in config.sentence_layers}

    def sentence_embedding(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """States of tokens (N, L, E) to sentence embeddings (N, E'), of which padding is no part."""
        x = states
        for layer in self.sentence_layers.values():
            x = layer(x, attention_mask) if isinstance(layer, Pooling) else layer(x)
        return x

    def states_and_embedding(self, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        """For programs that pool by themselves: the states of the tokens (N, L, E) and the embedding (N, E')."""
        states = super().forward(**inputs)
        return states, self.sentence_embedding(states, inputs.get("attention_mask"))

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        dtype: DType | Auto = lucid.float32,
        *,
        dequantize: bool = False,
        ignore: Sequence[str] = (),
    ) -> Self:
        """As for every model, with the layers that modules.json lists; without one, the mean scaled to length 1.

        Raises:
            ConfigError: also for a module or an option of one that is not known.
        """
        modules = read_modules(folder)
        if modules is None:
            return super().from_pretrained(folder, dtype, dequantize=dequantize, ignore=ignore)

        def read(options: Config) -> Any:
            return replace(cls.checkpoint.read(options), sentence_layers=modules.layers)

        model = cls._from_checkpoint(modules.encoder, read, dequantize, dtype, modules.weights, ignore)
        return model if dtype in (lucid.float32, "auto") else model.to(dtype)
