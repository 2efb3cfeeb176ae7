"""What decoders with rotary positions have in common: token ids, through layers with caches, to logits.

A model derives from both classes, says what its layers are, and overrides what differs: the scale of its embeddings,
the angles of a layer, what is done with the logits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from lucid import DType, Tensor, nn
from lucid.models.checkpoints.pretrained import Pretrained
from lucid.nn import functional as F

PREFIXED = [
    (r"^transformer\.", "model."),  # what some heads call their decoder
    (r"^(?!model\.|lm_head\.|score\.|qa_outputs\.)", "model."),  # checkpoints of the decoder only
]
"""The `renames` of a checkpoint whose decoder is called model."""

Angles: TypeAlias = tuple[Tensor, Tensor]
"""The cosines and sines of the positions."""


class Heads(Protocol):
    """What a config tells about the cache."""

    @property
    def num_kv_heads(self) -> int: ...

    @property
    def head_dim(self) -> int: ...


C = TypeVar("C", bound=Heads)


class RotaryDecoder(nn.Module):
    """A model without its output layer: (N, L) token ids to the list of (N, L, hidden_size) between the layers.

    If a cache is given, the cache of each layer too.

    Attributes:
        embed_tokens: the table.
        layers: each takes a state, its angles, the key mask and its cache, and gives a state and its cache.
        norm: that of the last state, which the output layer reads.
    """

    embed_tokens: nn.Embedding
    layers: Sequence[nn.Module]
    norm: nn.Module

    def embedded(self, input_ids: Tensor) -> Tensor:
        """The input of the first layer."""
        return self.embed_tokens(input_ids)

    @abstractmethod
    def angles(self, positions: Tensor, dtype: DType) -> Sequence[Angles]:
        """The angles of each layer, in an element type."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[nn.Cache] | None = None,
    ) -> tuple[list[Tensor], list[nn.Cache]]:
        caches = F.layer_caches(past_key_values, position_ids, len(self.layers))
        key_mask = F.cache_key_mask(attention_mask, caches)
        states, present = [self.embedded(input_ids)], []
        angles = self.angles(F.cache_positions(input_ids, position_ids, caches), states[0].dtype)
        for layer, turns, cache in zip(self.layers, angles, caches, strict=True):
            state, cache = layer(states[-1], turns, key_mask, cache)
            states.append(state)
            present.append(cache)
        return states, F.present_caches(past_key_values, present)


def angles_of(rope: nn.RotaryEmbedding, positions: Tensor, dtype: DType) -> Angles:
    """Cosines and sines in an element type: that of the weights, also after to(...)."""
    cos, sin = rope(positions)
    return cos.astype(dtype), sin.astype(dtype)


class CausalLM(Pretrained[C], nn.CausalDecoder):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.o_proj.weight`` and so on.
    """

    takes_logits_to_keep = True
    model: RotaryDecoder
    lm_head: nn.Linear | None  # None: the table of the embeddings

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[nn.Cache] | None = None,
        logits_to_keep: int | Tensor | None = None,
    ) -> Tensor | tuple[Tensor, list[nn.Cache]]:
        """Logits (N, L, vocab_size); with a cache also the cache of all P + L positions.

        Args:
            input_ids: (N, L) int64, the new tokens.
            attention_mask: (N, P + L) int64, 0 where a token is padding.
            position_ids: (N, L) int64; by default they continue after the cache, or start at 0 in the first column.
            past_key_values: the cache of P earlier positions; see `nn.CausalDecoder`.
            logits_to_keep: how many of the last positions get logits, or (N,) int64, the one position of each row that
                does; all by default.
        """
        states, present = self.model(input_ids, attention_mask, position_ids, past_key_values)
        logits = self.logits(self.model.norm(F.kept_positions(states[-1], logits_to_keep)))
        return logits if past_key_values is None else (logits, present)

    def logits(self, x: Tensor) -> Tensor:
        """The output layer."""
        return F.linear(x, self.model.embed_tokens.weight) if self.lm_head is None else self.lm_head(x)

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, L, hidden_size) each."""
        states: list[Tensor] = self.model(input_ids, attention_mask)[0]
        return states

    @property
    def cache_shape(self) -> nn.CacheShape:
        c, table = self.config, self.model.embed_tokens.weight
        return nn.CacheShape(len(self.model.layers), c.num_kv_heads, c.head_dim, table.dtype)
