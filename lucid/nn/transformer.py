"""Transformer layers and stacks with torch's arguments, state keys and masks (Vaswani et al. 2017).

Boolean masks: true = not allowed. Batch comes first by default. Next to a mask, `is_causal` is torch's hint that the
mask is causal, and changes nothing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias, TypeVar

from lucid.core.graph.types import DTypeLike, TensorType, float32, spec
from lucid.core.sizes.dims import Size
from lucid.core.torch_names.argument_names import torch_names_and
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn._checks import check_positive
from lucid.nn.attention import MultiHeadAttention
from lucid.nn.cache import Cache, KeyValueCache
from lucid.nn.containers import ModuleList
from lucid.nn.encoder_decoder import EncoderDecoderCache
from lucid.nn.layers import Dropout, Linear
from lucid.nn.module import Module, scoped
from lucid.nn.normalization import LayerNorm
from lucid.ops.attention.masks import causal_mask
from lucid.ops.elementwise import where
from lucid.ops.tensor.tensor import Tensor

Activation: TypeAlias = str | Callable[[Tensor], Tensor]
M = TypeVar("M", bound=Module)

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


def _activation(where: str, activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in _ACTIVATIONS:
        raise ValueError(f'{where}: activation is {activation!r}, expected "relu", "gelu" or a function')
    return _ACTIVATIONS[activation]


class _Layer(Module):
    """The base of encoder and decoder layers: self-attention, the feed-forward network and residual connections."""

    reads_memory: ClassVar[bool] = False  # whether it also attends to the output of an encoder

    @torch_names_and("device")
    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = True,
        norm_first: bool = False,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        def attention() -> MultiHeadAttention:
            return MultiHeadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)

        self.self_attn = attention()
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.activation, self.norm_first = _activation(type(self).__name__, activation), norm_first
        if self.reads_memory:
            self.multihead_attn = attention()
            self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)

    def _add(self, x: Tensor, norm: LayerNorm, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """A residual connection around a sub-layer, with the norm before the sub-layer or after the sum."""
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and a normalisation.

    Args:
        d_model: E, the width.
        nhead: heads; they must divide E.
        dim_feedforward: the inner width of the feed-forward network.
        dropout: of attention weights, inner features and the outputs of the sub-layers.
        activation: "relu", "gelu" or a function of a tensor.
        norm_first: normalise the inputs of the sub-layers instead of the sums after them.
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(N, S, E) to (N, S, E); the masks are those of `MultiHeadAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, key_padding_mask=src_key_padding_mask, attn_mask=src_mask, is_causal=is_causal)

        return self._add(self._add(src, self.norm1, attend), self.norm2, self._feed_forward)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"src": _input(self.self_attn, "S")}


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output (the memory), and a feed-forward network.

    The arguments are those of `TransformerEncoderLayer`.
    """

    reads_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """(N, L, E) with the memory (N, S, E) to (N, L, E)."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, key_padding_mask=tgt_key_padding_mask, attn_mask=tgt_mask, is_causal=tgt_is_causal)

        def attend_memory(x: Tensor) -> Tensor:
            attention, keys = self.multihead_attn, memory_key_padding_mask
            return attention(x, memory, key_padding_mask=keys, attn_mask=memory_mask, is_causal=memory_is_causal)

        x = self._add(tgt, self.norm1, attend)
        x = self._add(x, self.norm2, attend_memory)
        return self._add(x, self.norm3, self._feed_forward)

    @scoped
    def step(
        self, tgt: Tensor, cache: EncoderDecoderCache, memory_key_padding_mask: Tensor | None = None
    ) -> tuple[Tensor, Cache | None]:
        """The vectors of new positions (N, L, E), which see the earlier ones, and the decoder's new cache."""
        present: Cache | None = None

        def attend(x: Tensor) -> Tensor:
            nonlocal present
            y, present = self.self_attn.step(x, cache.decoder)
            return y

        def attend_memory(x: Tensor) -> Tensor:
            return self.multihead_attn.attend_to(x, cache.encoder, memory_key_padding_mask)

        x = self._add(tgt, self.norm1, attend)
        x = self._add(x, self.norm2, attend_memory)
        return self._add(x, self.norm3, self._feed_forward), present

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"tgt": _input(self.self_attn, "L"), "memory": _input(self.self_attn, "S")}


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer, one after the other, followed by a norm if one is given.

    `enable_nested_tensor` and `mask_check` say how torch computes padding, and change nothing.
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        self.layers = _copies("TransformerEncoder", encoder_layer, num_layers)
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(N, S, E) to (N, S, E)."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        if self.norm is not None:
            src = self.norm(src)
        return src

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.layers[0].input_specs()


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer, one after the other, followed by a norm if one is given."""

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        self.layers = _copies("TransformerDecoder", decoder_layer, num_layers)
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """(N, L, E) with the memory (N, S, E) to (N, L, E)."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
        if self.norm is not None:
            tgt = self.norm(tgt)
        return tgt

    def cross_caches(self, memory: Tensor) -> list[KeyValueCache]:
        """The keys and values of each layer for the memory (N, S, E), computed once for all steps."""
        return [layer.multihead_attn.keys_and_values(memory) for layer in self.layers]

    @scoped
    def step(
        self,
        tgt: Tensor,
        caches: Sequence[EncoderDecoderCache],
        memory_key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Sequence[Cache | None]]:
        """The vectors of new positions (N, L, E) after the cached ones, and the decoder's new caches.

        A position does not see later ones.

        ::

            caches = [nn.EncoderDecoderCache(own, cross) for cross in decoder.cross_caches(memory)]
            vectors, present = decoder.step(tgt, caches)
        """
        present = []
        for layer, cache in zip(self.layers, caches, strict=True):
            tgt, new = layer.step(tgt, cache, memory_key_padding_mask)
            present.append(new)
        return tgt if self.norm is None else self.norm(tgt), present

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.layers[0].input_specs()


class Transformer(Module):
    """Encoder and decoder, each followed by a normalisation; without embeddings and output layer, as in torch."""

    @torch_names_and("device")
    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = True,
        norm_first: bool = False,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)

        options = (dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, dtype)
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(d_model, nhead, *options), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(d_model, nhead, *options), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """src (N, S, E) and tgt (N, L, E) to (N, L, E)."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        output: Tensor = self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)  # may be a custom one
        return output

    def input_specs(self) -> Mapping[str, TensorType]:
        decoder = dict(self.decoder.input_specs())
        return {**self.encoder.input_specs(), "tgt": decoder["tgt"]} if "tgt" in decoder else {}

    @staticmethod
    @torch_names_and("device")
    def generate_square_subsequent_mask(sz: Size, dtype: DTypeLike = float32) -> Tensor:
        """(sz, sz) numbers to add to scores: -inf where a key is after the query, else 0, like `is_causal`."""
        return where(causal_mask(sz, sz), 0.0, -math.inf).astype(dtype)


def _copies(where: str, layer: M, count: int) -> ModuleList:
    check_positive(where, num_layers=count)
    return ModuleList(copy.deepcopy(layer) for _ in range(count))


def _input(attention: MultiHeadAttention, length: str) -> TensorType:
    shape = ("N", length) if attention.batch_first else (length, "N")
    return spec(*shape, attention.embed_dim, dtype=attention.out_proj.weight.dtype)
