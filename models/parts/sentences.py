"""sentence-transformers' layers: from states of tokens to a vector, a sparse vector, or a vector for each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import lucid
from lucid import Tensor, nn, ops
from lucid.models.checkpoints.config import Array
from lucid.models.checkpoints.pretrained import Config, Source
from lucid.models.checkpoints.sentence_files import DENSE, DENSE_ACTIVATIONS, MASK, POOLING, SentenceLayer, read_modules
from lucid.models.parts.on_model import Head
from lucid.models.parts.text_encoders import L, OnStates


class OfModules(Head[L]):
    """A model with the layers that modules.json lists after it, as the field `sentence_layers` of its config."""

    @classmethod
    def source(cls, folder: Path) -> Source:
        encoder, modules = super().source(folder), read_modules(folder)
        if modules is None:
            return encoder

        def read(options: Config) -> Any:
            return replace(encoder.read(options), sentence_layers=modules.layers)

        return Source(modules.encoder, read, modules.weights | cls.weights_beside(folder))

    @classmethod
    def weights_beside(cls, folder: Path) -> dict[str, Array]:
        """Weights that have files of their own next to the checkpoint, by their names in the model."""
        return {}


class PooledEncoder(OfModules[L], OnStates[L]):
    """The base class of sentence encoders, together with that of the encoder.

    It has the pooling and the layers that modules.json lists, as the field `sentence_layers` of its config; by default
    the mean of the kept tokens' states, of a decoder the state of the last one, scaled to length 1.
    """

    head_task = "sentence-similarity"
    output_names: ClassVar[Sequence[str]] = ("sentence_embedding",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.sentence_layers = build_layers(config.sentence_layers)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.sentence_embedding(states, attention_mask)

    def sentence_embedding(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """States of tokens (N, L, E) to embeddings (N, E') that ignore padding."""
        x = states
        for layer in self.sentence_layers.values():
            x = layer(x, attention_mask) if isinstance(layer, Pooling) else layer(x)
        return x

    def states_and_embedding(self, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The states of the tokens (N, L, E) and the embedding (N, E'), for programs that pool themselves."""
        states = self.encoder_states(**inputs)
        return states, self.sentence_embedding(states, inputs.get("attention_mask"))


def build_layers(layers: Sequence[SentenceLayer]) -> dict[str, nn.Module]:
    """The modules of layers by their names, with new weights."""
    return {layer.name: _built(layer) for layer in layers}


def _built(layer: SentenceLayer) -> nn.Module:
    if layer.kind == POOLING:
        return Pooling(layer.modes)
    return Dense(layer) if layer.kind == DENSE else Normalize()


class HybridEncoder(PooledEncoder[L]):
    """The base, before an encoder, of BGE-M3 (Chen et al. 2024): texts to one vector, and a weight and a vector per
    token.

    A weight says how much the text is about the token; the first token has no vector.
    """

    head_task = "hybrid-encoding"
    output_names: ClassVar[Sequence[str]] = ("sentence_embedding", "token_weights", "token_embeddings")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.sparse_linear = nn.Linear(config.hidden_size, 1)
        self.colbert_linear = nn.Linear(config.hidden_size, config.hidden_size)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Any:
        """(N, L, E) to (N, E), (N, L) and (N, L - 1, E), of length 1 where a token is kept, else 0."""
        weights, vectors = (
            self.sparse_linear(states).relu().squeeze(-1),
            Normalize()(self.colbert_linear(states[:, 1:])),
        )
        if attention_mask is not None:
            kept = (attention_mask != 0).astype(states.dtype)
            weights, vectors = weights * kept, vectors * kept[:, 1:].unsqueeze(-1)
        return self.sentence_embedding(states, attention_mask), weights, vectors

    @classmethod
    def weights_beside(cls, folder: Path) -> dict[str, Array]:
        heads = ("sparse_linear", "colbert_linear")
        return {f"{head}.{key}": array for head in heads for key, array in lucid.load(folder / f"{head}.pt").items()}


class SparseEncoder(OfModules[L], OnStates[L]):
    """The base, before a `MaskedLM`, of SPLADE (Formal et al. 2021): texts to a weight for each token of the
    vocabulary.

    The weight of a token is the maximum or the sum of log(1 + relu(logit)) over all positions.
    """

    head_task = "sparse-encoding"
    output_names: ClassVar[Sequence[str]] = ("sentence_embedding",)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """From the states (N, L, E) to the weights (N, vocab_size)."""
        config: Any = self.config
        layer, logits = config.sentence_layers[0], super().predict(states, attention_mask)  # type: ignore[safe-super]
        if attention_mask is not None:
            logits = logits * attention_mask.astype(logits.dtype).unsqueeze(-1)
        weights = (logits.relu() + 1).log()
        if layer.activation == "log1p_relu":
            weights = (weights + 1).log()
        pooled: Tensor = weights.sum(1) if layer.modes == ("sum",) else weights.amax(1)
        return pooled


class MultiVectorEncoder(OfModules[L], OnStates[L]):
    """The base, before an encoder, of ColBERT (Khattab and Zaharia 2020): texts to a vector for each token.

    Queries take the vectors of all their tokens, documents those that `document_mask` keeps: without padding and
    punctuation. A query and a document match by the sum, over the query, of the largest products.
    """

    head_task = "multi-vector-encoding"
    output_names: ClassVar[Sequence[str]] = ("token_embeddings", "document_mask")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.sentence_layers = {layer.name: Dense(layer) for layer in config.sentence_layers if layer.kind == DENSE}
        self.skipped = next((layer.tokens for layer in config.sentence_layers if layer.kind == MASK), ())

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Any:
        """(N, L) to the vectors of length 1, (N, L, E'), and which are a document's, (N, L) int64."""
        x = super().forward(input_ids, attention_mask, token_type_ids)
        kept = input_ids == input_ids if attention_mask is None else attention_mask != 0
        for token in self.skipped:
            kept = kept & (input_ids != token)
        return x, kept.astype(lucid.int64)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        for dense in self.sentence_layers.values():
            states = dense(states)
        return Normalize()(states)


class Pooling(nn.Module):
    """The states of the kept tokens, (N, L, E), to one vector for each mode, joined: (N, E * modes)."""

    def __init__(self, modes: tuple[str, ...]) -> None:
        self.modes = modes

    def forward(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """`attention_mask` (N, L) is 1 for tokens to keep, 0 for padding on either side; None keeps all.

        A row that keeps no token gives zeros, by cls the state of its first position.
        """
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
        shown = mask.unsqueeze(-1) != 0
        return ops.where(shown.any(1), ops.where(shown, states, float("-inf")).amax(1), 0.0)
    if mode == "weightedmean":  # by the place in the text, wherever it begins
        begins = (mask != 0).astype(lucid.int32).argmax(1, keepdims=True)
        kept = kept * (places - begins).astype(states.dtype).unsqueeze(-1)
    total = ops.maximum(kept.sum(1), 1)  # which is less in a row without tokens alone
    return (states * kept).sum(1) / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)


def _at(states: Tensor, positions: Tensor) -> Tensor:
    """(N, E): the state at one position of each row."""
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
        least = max(1e-12, lucid.finfo(x.dtype).tiny)  # float16 rounds 1e-12 to 0
        return x / ops.clip((x * x).sum(-1, keepdims=True).sqrt(), least)
