"""Layers shared by BART, Whisper and similar models: an encoder and a decoder that attends to it.

The original transformer (Vaswani et al. 2017), with norms before or after attention and feed-forward network.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import lucid
from lucid import DType, Tensor, TensorType, nn
from lucid.models.checkpoints.config import ACTIVATIONS, Config
from lucid.models.checkpoints.pretrained import Pretrained
from lucid.models.parts.projected_attention import Projections
from lucid.nn import functional as F

Step: TypeAlias = tuple[Tensor, Sequence[nn.Cache | None]]
"""The decoder's vectors for new tokens, and the cache of each layer with them."""


@dataclass(frozen=True)
class StackConfig:
    """The sizes of the encoder's or the decoder's layers."""

    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    activation: str = "gelu"
    key_bias: bool = True  # without, a bias of keys would shift all scores of a query equally (Whisper)
    norm_first: bool = True  # norms are before attention and feed-forward network, else after the sum with their input

    @classmethod
    def read(cls, options: Config, side: str, **flags: bool) -> Self:
        """From the options that begin with "encoder" or "decoder"; the caller gives the rest."""
        width = options.size("d_model")
        return cls(
            hidden_size=width,
            num_layers=options.layers(f"{side}_layers", within=f"{side}."),
            num_heads=options.heads(f"{side}_attention_heads", width),
            intermediate_size=options.size(f"{side}_ffn_dim"),
            activation=options.activation("activation_function"),
            **flags,
        )

    @property
    def attention(self) -> tuple[int, int, bool]:
        """The arguments of `Projections`."""
        return self.hidden_size, self.num_heads, self.key_bias

    def cache_shape(self, dtype: DType) -> nn.CacheShape:
        """The shape of the keys and values of self-attention."""
        return nn.CacheShape(self.num_layers, self.num_heads, self.hidden_size // self.num_heads, dtype)


def key_mask_of(attention_mask: Tensor | None) -> Tensor | None:
    """Which keys may be attended to, from a mask (N, S) that is 0 for padding."""
    return None if attention_mask is None else attention_mask.astype(lucid.bool_)


def text_to_text_specs() -> dict[str, TensorType]:
    """The inputs of a model of text to text: ids of the source and which to keep (N, L), ids of the target (N, T)."""
    source, target = (lucid.spec("N", length, dtype=lucid.int64) for length in "LT")
    return {"input_ids": source, "decoder_input_ids": target, "attention_mask": source}


class Stacks(Protocol):
    """A config of two stacks."""

    @property
    def encoder(self) -> StackConfig: ...

    @property
    def decoder(self) -> StackConfig: ...


C = TypeVar("C", bound=Stacks)


class TwoStacks(Pretrained[C], nn.EncoderDecoder):
    """A model of an encoder and a decoder, the parts `encoder` and `decoder` of its `model`."""

    model: Any  # which a model declares

    @property
    @abstractmethod
    def table(self) -> Tensor:
        """The vectors of all tokens, (vocab_size, hidden_size)."""

    def cross_caches(self, encoder_hidden_states: Tensor) -> list[nn.KeyValueCache]:
        return [layer.encoder_attn.keys_and_values(encoder_hidden_states) for layer in self.model.decoder.layers]

    @property
    def cache_shape(self) -> nn.CacheShape:
        return self.config.decoder.cache_shape(self.table.dtype)

    @property
    def encoder_width(self) -> int:
        return self.config.encoder.hidden_size


class Layer(nn.Module):
    """Self-attention and two linear layers, each with its norm and a residual connection."""

    def __init__(self, stack: StackConfig) -> None:
        self.self_attn, self.self_attn_layer_norm = SelfAttention(*stack.attention), nn.LayerNorm(stack.hidden_size)
        self.fc1, self.fc2 = (
            nn.Linear(stack.hidden_size, stack.intermediate_size),
            nn.Linear(stack.intermediate_size, stack.hidden_size),
        )
        self.final_layer_norm = nn.LayerNorm(stack.hidden_size)
        self.activation = ACTIVATIONS[stack.activation]
        self.norm_first = stack.norm_first

    def before(self, norm: nn.LayerNorm, x: Tensor) -> Tensor:
        """The input of attention or of the linear layers."""
        return norm(x) if self.norm_first else x

    def after(self, norm: nn.LayerNorm, x: Tensor) -> Tensor:
        """The sum with the residual, normalised if norms come last."""
        return x if self.norm_first else norm(x)

    def attend(
        self, x: Tensor, cache: nn.Cache | None, is_causal: bool, key_mask: Tensor | None = None
    ) -> tuple[Tensor, nn.Cache | None]:
        """The self-attention."""
        norm = self.self_attn_layer_norm
        y, cache = self.self_attn(self.before(norm, x), cache, is_causal, key_mask)
        return self.after(norm, x + y), cache

    def feed_forward(self, x: Tensor) -> Tensor:
        """The linear layers."""
        norm = self.final_layer_norm
        return self.after(norm, x + self.fc2(self.activation(self.fc1(self.before(norm, x)))))


class EncoderLayer(Layer):
    """A layer in which each position sees all that `key_mask` (N, S) does not hide."""

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> Tensor:
        return self.feed_forward(self.attend(x, None, is_causal=False, key_mask=key_mask)[0])


class DecoderLayer(Layer):
    """A layer with causal self-attention, followed by attention to the encoder's output or its keys and values."""

    def __init__(self, stack: StackConfig) -> None:
        super().__init__(stack)
        self.encoder_attn = CrossAttention(*stack.attention)
        self.encoder_attn_layer_norm = nn.LayerNorm(stack.hidden_size)

    def forward(
        self,
        x: Tensor,
        cache: nn.Cache | None,
        source: Tensor | nn.KeyValueCache,
        source_key_mask: Tensor | None = None,
    ) -> tuple[Tensor, nn.Cache | None]:
        x, cache = self.attend(x, cache, is_causal=True)
        norm = self.encoder_attn_layer_norm
        x = self.after(norm, x + self.encoder_attn(self.before(norm, x), source, source_key_mask))
        return self.feed_forward(x), cache


class AloneLayer(Layer):
    """The layer of a decoder without an encoder: causal self-attention to what `key_mask` (N, S) does not hide."""

    def forward(
        self, x: Tensor, cache: nn.Cache | None, source: None = None, key_mask: Tensor | None = None
    ) -> tuple[Tensor, nn.Cache | None]:
        x, cache = self.attend(x, cache, is_causal=True, key_mask=key_mask)
        return self.feed_forward(x), cache


class SelfAttention(Projections):
    """Attention to the same sequence."""

    def forward(
        self, x: Tensor, cache: nn.Cache | None, is_causal: bool, key_mask: Tensor | None
    ) -> tuple[Tensor, nn.Cache | None]:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        y, cache = F.cached_attention(q, k, v, cache, None, key_mask, heads=self.num_heads, is_causal=is_causal)
        return self.out_proj(y), cache


class CrossAttention(Projections):
    """Attention to another sequence, or to its keys and values."""

    def forward(self, x: Tensor, source: Tensor | nn.KeyValueCache, key_mask: Tensor | None) -> Tensor:
        q = self.q_proj(x)
        k, v = source if isinstance(source, nn.KeyValueCache) else (self.k_proj(source), self.v_proj(source))
        return self.out_proj(F.cross_attention(q, k, v, key_mask, heads=self.num_heads))

    def keys_and_values(self, source: Tensor) -> nn.KeyValueCache:
        """The keys and values of a sequence (N, S, hidden_size)."""
        return nn.KeyValueCache.of(self.k_proj(source), self.v_proj(source), self.num_heads)
