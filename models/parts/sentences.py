"""From states of tokens to embeddings of sentences: sentence-transformers' layers (Reimers and Gurevych 2019)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import lucid
from lucid import DType, Tensor, nn, ops
from lucid.models.checkpoints.pretrained import Adapters, Auto, Config
from lucid.models.checkpoints.sentence_files import DENSE, DENSE_ACTIVATIONS, POOLING, SentenceLayer, read_modules
from lucid.models.parts.text_encoders import L, OnStates


class PooledEncoder(OnStates[L]):
    """The base class of sentence encoders, together with that of the encoder.

    It has the pooling and the layers that modules.json lists, as the field `sentence_layers` of its config; by default
    the mean of the kept tokens' states, scaled to length 1.
    """

    output_names: ClassVar[Sequence[str]] = ("sentence_embedding",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.sentence_layers = {layer.name: _built(layer) for layer in config.sentence_layers}

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.sentence_embedding(states, attention_mask)

    def sentence_embedding(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """States of tokens (N, L, E) to embeddings (N, E') that ignore padding."""
        x = states
        for layer in self.sentence_layers.values():
            x = layer(x, attention_mask) if isinstance(layer, Pooling) else layer(x)
        return x

    def states_and_embedding(self, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        """For programs that pool by themselves: the states of the tokens (N, L, E) and the embedding (N, E')."""
        states = self.encoder_states(**inputs)
        return states, self.sentence_embedding(states, inputs.get("attention_mask"))

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        dtype: DType | Auto = lucid.float32,
        *,
        dequantize: bool = False,
        ignore: Sequence[str] = (),
        adapters: Adapters = None,
    ) -> Self:
        """As for every model, with the layers that modules.json lists.

        Raises:
            ConfigError: also for a module or an option of one that is not known.
        """
        modules = read_modules(folder)
        if modules is None:
            return super().from_pretrained(folder, dtype, dequantize=dequantize, ignore=ignore, adapters=adapters)

        def read(options: Config) -> Any:
            return replace(cls.checkpoint.read(options), sentence_layers=modules.layers)

        model = cls._from_checkpoint(modules.encoder, read, dequantize, dtype, modules.weights, ignore, adapters)
        return model if dtype in (lucid.float32, "auto") else model.to(dtype)


def _built(layer: SentenceLayer) -> nn.Module:
    """The module of a layer, with new weights."""
    if layer.kind == POOLING:
        return Pooling(layer.modes)
    return Dense(layer) if layer.kind == DENSE else Normalize()


class Pooling(nn.Module):
    """The states of the kept tokens, (N, L, E), to one vector for each mode, joined: (N, E * modes)."""

    def __init__(self, modes: tuple[str, ...]) -> None:
        self.modes = modes

    def forward(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """`attention_mask` (N, L) is 1 for tokens to keep, 0 for padding on either side; None keeps all."""
        pooled = [_pooled(mode, states, attention_mask) for mode in self.modes]
        return pooled[0] if len(pooled) == 1 else ops.concat(pooled, -1)


def _pooled(mode: str, states: Tensor, mask: Tensor | None) -> Tensor:
    """(N, E) by one mode."""
    places = lucid.arange(1, states.shape[1] + 1)  # (L,)
    if mask is None:
        if mode in ("cls", "lasttoken"):
            return states[:, 0] if mode == "cls" else states[:, -1]
        if mode == "max":
            return states.amax(1)
        if mode == "mean":
            return states.mean(1)
        mask = places.unsqueeze(0) > 0
    kept = mask.astype(states.dtype).unsqueeze(-1)
    if mode == "cls":
        return _at(states, (mask != 0).astype(lucid.int32).argmax(1))
    if mode == "lasttoken":
        return _at(states * kept, ((mask != 0).astype(lucid.int32) * places.astype(lucid.int32)).argmax(1))
    if mode == "max":
        return ops.where(mask.unsqueeze(-1) != 0, states, float("-inf")).amax(1)
    if mode == "weightedmean":
        kept = kept * places.astype(states.dtype).unsqueeze(-1)
    total = ops.maximum(kept.sum(1), 1e-9)
    return (states * kept).sum(1) / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)


def _at(states: Tensor, positions: Tensor) -> Tensor:
    """(N, E): of each row the state at its position."""
    return ops.take_along(states, ops.unsqueeze(positions, (1, 2)), axis=1).squeeze(1)


class Dense(nn.Module):
    """A linear layer and its activation."""

    def __init__(self, layer: SentenceLayer) -> None:
        self.linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias)
        self.activation = DENSE_ACTIVATIONS[layer.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


class Normalize(nn.Module):
    """Each vector scaled to length 1."""

    def forward(self, x: Tensor) -> Tensor:
        return x / ops.maximum((x * x).sum(-1, keepdims=True).sqrt(), 1e-12)
