"""T5: encoder and decoder for text to text (Raffel et al. 2020), plain or gated (1.1, FLAN, mT5, UMT5).

::

    t5 = T5.from_pretrained("folder with config.json and model.safetensors")
    logits = t5(lucid.tensor([[363, 19, 1]]), lucid.tensor([[0]]))    # (N, L), (N, T) to (N, T, vocab_size)
    lucid.export.to_onnx(t5, path="t5.onnx")                          # any batch, any lengths

    cache = t5.empty_cache(t5.encode(source_ids))                     # token by token: the page "Key-value cache"
    logits, cache = t5.decode(lucid.tensor([[0]]), cache)

    encoder = lucid.models.load("folder of a T5EncoderModel")         # or of a whole T5, with "feature-extraction"
    states = encoder(source_ids, attention_mask)                      # (N, L) to (N, L, hidden_size)

Scores are not scaled, positions are a bias for each distance, and norms have neither mean nor bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config, Pretrained
from lucid.models.parts import decoder_heads
from lucid.models.parts import text_encoders as text
from lucid.models.parts.demonstration import answer_text
from lucid.models.parts.on_model import Head
from lucid.models.parts.sentences import PooledEncoder
from lucid.models.parts.seq2seq_layers import key_mask_of, text_to_text_specs
from lucid.nn import functional as F


@dataclass(frozen=True)
class T5Config(text.TextConfig):
    """The sizes of a model and the kind of its feed-forward networks; the defaults are those of a small model."""

    vocab_size: int = option.size("vocab_size", 32128)
    hidden_size: int = option.size("d_model", 512)
    head_dim: int = option.size("d_kv", 64)
    intermediate_size: int = option.size("d_ff", 2048)
    num_layers: int = option.layers("num_layers", 6, within="encoder.")
    num_decoder_layers: int = 6
    num_heads: int = option.size("num_heads", 8)
    num_buckets: int = option.size("relative_attention_num_buckets", 32)
    max_distance: int = option.whole("relative_attention_max_distance", 128, high=1 << 20)
    bias_in_each_layer: bool = False  # each has a position bias of its own (UMT5), not only the first
    activation: str = "relu"
    gated: bool = False
    eps: float = option.real("layer_norm_epsilon", 1e-6)
    tied: bool = True  # the output layer is the table of token vectors
    scale_outputs: bool = True  # divide the output layer's input by sqrt(hidden_size)
    decoder_start_token_id: int | None = option.whole(
        "decoder_start_token_id", absent=None, low=0
    )  # of generated texts
    eos_token_id: int = 1  # of a classifier of texts, which reads the state at their last one
    type_vocab_size: int = 0  # texts have no segments

    @classmethod
    def read(cls, options: Config, decodes: bool = True) -> Self:
        """From config.json. A stored lm_head.weight is the output layer; `decodes` says whether the decoder is used."""
        forms = {"relu": ("relu", False), "gated-gelu": ("gelu_new", True), "gated-silu": ("silu", True)}
        activation, gated = options.choose("feed_forward_proj", forms)
        options.only("dense_act_fn", activation)
        options.only("is_gated_act", gated)
        options.only("is_encoder_decoder", True, *([] if decodes else [False]))
        options.only("is_decoder", False)
        # Configs older than scale_decoder_outputs scale unless tie_word_embeddings is false; mT5 (Xue et al. 2021)
        # never does. Null counts as false for the newer option, and as no value for the older one.
        scaled = options.get("tie_word_embeddings", bool, True) and not options.is_null("scale_decoder_outputs")
        config = cls.from_rows(
            options,
            bias_in_each_layer=options.model_type == "umt5",
            activation=activation,
            gated=gated,
            tied="lm_head.weight" not in options.weights,
            scale_outputs=options.model_type != "mt5" and options.get("scale_decoder_outputs", bool, scaled),
        )
        layers = options.layers("num_decoder_layers", config.num_layers, within="decoder.")
        return replace(config, num_decoder_layers=layers)


class T5(Pretrained[T5Config], nn.EncoderDecoder):
    """T5 with its language-model head."""

    checkpoint = Checkpoint(
        family=FAMILIES["t5"],
        read=T5Config.read,
        ignored_keys=[r"EncDecAttention\.relative_attention_bias"],  # in the first files, unused
        tied_keys={f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")},
    )

    def __init__(self, config: T5Config | None = None) -> None:
        super().__init__(config := config or T5Config())
        embedding = nn.TiedEmbedding if config.tied else nn.Embedding
        self.shared = embedding(config.vocab_size, config.hidden_size)
        self.encoder = Encoder(config, config.num_layers, decoder=False)
        self.decoder = Decoder(config, config.num_decoder_layers, decoder=True)
        self.lm_head = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The logits of the token that follows each token of the decoder.

        Args:
            input_ids: (N, L) int64, the encoder's.
            decoder_input_ids: (N, T) int64, the tokens generated so far, beginning with the start token.
            attention_mask: (N, L) int64, 1 = keep, 0 = padding of the encoder's input.

        Returns:
            (N, T, vocab_size).
        """
        memory, key_mask = self.encode(input_ids, attention_mask), key_mask_of(attention_mask)
        return self.logits(self.decoder(self.shared(decoder_input_ids), memory, key_mask))

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(N, L) int64 token ids, and which are padding (0), to vectors (N, L, hidden_size)."""
        return self.encoder(self.shared(input_ids), key_mask_of(attention_mask))

    def cross_caches(self, encoder_hidden_states: Tensor) -> list[nn.KeyValueCache]:
        return self.decoder.cross_caches(encoder_hidden_states)

    def step(
        self,
        input_ids: Tensor,
        positions: Tensor,
        caches: Sequence[nn.EncoderDecoderCache],
        key_mask: Tensor | None,
    ) -> tuple[Tensor, Sequence[nn.Cache | None]]:
        return self.decoder.step(self.shared(input_ids), caches, key_mask)

    def logits(self, x: Tensor) -> Tensor:
        if self.config.scale_outputs:
            x = x * self.config.hidden_size**-0.5
        return F.linear(x, self.shared.weight) if self.lm_head is None else F.linear(x, self.lm_head.weight)

    @property
    def cache_shape(self) -> nn.CacheShape:
        c = self.config
        return nn.CacheShape(c.num_decoder_layers, c.num_heads, c.head_dim, self.shared.weight.dtype)

    @property
    def encoder_width(self) -> int:
        return self.config.hidden_size

    def input_specs(self) -> Mapping[str, TensorType]:
        return text_to_text_specs()


class Stack(nn.Module):
    """The layers of the encoder or the decoder, and a last normalisation."""

    def __init__(self, config: T5Config, layers: int, decoder: bool) -> None:
        layers_of = [self._layers(config, decoder, first=index == 0) for index in range(layers)]
        self.block: list[dict[str, list[Any]]] = [{"layer": inner} for inner in layers_of]
        self.final_layer_norm = nn.RMSNorm(config.hidden_size, config.eps)
        self.bias_in_each_layer = config.bias_in_each_layer

    def _layers(self, config: T5Config, decoder: bool, first: bool) -> list[nn.Module]:
        biased = first or config.bias_in_each_layer
        attention = SelfAttention(config, bidirectional=not decoder if biased else None)
        return [attention, *([CrossAttention(config)] if decoder else []), FeedForward(config)]

    def biases(self, x: Tensor, cache: nn.Cache | None = None) -> list[Tensor]:
        """The position bias of each layer: its own, or that of the first one."""
        past, keys = F.cache_span(cache, x.shape[1])
        owners = self.block if self.bias_in_each_layer else self.block[:1]
        modules = [block["layer"][0].SelfAttention.relative_attention_bias for block in owners]
        biases = [module(x.shape[1], keys, past) for module in modules]
        return biases if self.bias_in_each_layer else biases * len(self.block)


class Encoder(Stack):
    """Vectors (N, L, hidden_size) to vectors."""

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        for block, bias in zip(self.block, self.biases(x), strict=True):
            attend, feed_forward = block["layer"]
            x, _ = attend(x, bias, key_mask, causal=False)
            x = feed_forward(x)
        return self.final_layer_norm(x)


class Decoder(Stack):
    """Vectors (N, T, hidden_size) and the encoder's output to vectors."""

    def forward(self, x: Tensor, memory: Tensor, memory_key_mask: Tensor | None) -> Tensor:
        return self.step(x, [(None, memory)] * len(self.block), memory_key_mask)[0]

    def step(
        self,
        x: Tensor,
        layers: Sequence[tuple[nn.Cache | None, Tensor | nn.KeyValueCache]],
        memory_key_mask: Tensor | None,
    ) -> tuple[Tensor, Sequence[nn.Cache | None]]:
        """The vectors of new tokens, and the updated caches. `layers` has the cache of each layer, and the encoder's
        output or its keys and values.
        """
        biases, present = self.biases(x, layers[0][0]), []
        for block, bias, (cache, memory) in zip(self.block, biases, layers, strict=True):
            attend, attend_memory, feed_forward = block["layer"]
            x, cache = attend(x, bias, None, causal=True, cache=cache)
            x = feed_forward(attend_memory(x, memory, memory_key_mask))
            present.append(cache)
        return self.final_layer_norm(x), present

    def cross_caches(self, memory: Tensor) -> list[nn.KeyValueCache]:
        """The keys and values of each layer for the encoder's output."""
        return [block["layer"][1].EncDecAttention.keys_and_values(memory) for block in self.block]


class SelfAttention(nn.Module):
    """Self-attention after a norm, with a residual connection."""

    def __init__(self, config: T5Config, bidirectional: bool | None) -> None:
        self.SelfAttention = Attention(config, bidirectional)
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.eps)

    def forward(
        self, x: Tensor, bias: Tensor, key_mask: Tensor | None, causal: bool, cache: nn.Cache | None = None
    ) -> tuple[Tensor, nn.Cache | None]:
        y, cache = self.SelfAttention(self.layer_norm(x), bias, key_mask, causal, cache)
        return x + y, cache


class CrossAttention(nn.Module):
    """Attention to the encoder's output, or its keys and values, after a norm, with a residual and no position bias."""

    def __init__(self, config: T5Config) -> None:
        self.EncDecAttention = AttentionToMemory(config)
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.eps)

    def forward(self, x: Tensor, memory: Tensor | nn.KeyValueCache, key_mask: Tensor | None) -> Tensor:
        return x + self.EncDecAttention(self.layer_norm(x), memory, key_mask)


class FeedForward(nn.Module):
    """The feed-forward network, plain or gated, after a norm, with a residual connection."""

    def __init__(self, config: T5Config) -> None:
        names = ["wi_0", "wi_1"] if config.gated else ["wi"]
        self.DenseReluDense = {
            name: nn.Linear(config.hidden_size, config.intermediate_size, bias=False) for name in names
        }
        self.DenseReluDense["wo"] = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.eps)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        normed = self.layer_norm(x)
        first, *gated, last = self.DenseReluDense.values()
        inner = self.activation(first(normed))
        for linear in gated:
            inner = inner * linear(normed)
        return x + last(inner)


class Projections(nn.Module):
    """The four projections of an attention layer; its scores are not scaled."""

    def __init__(self, config: T5Config) -> None:
        inner, self.num_heads = config.num_heads * config.head_dim, config.num_heads
        self.q = nn.Linear(config.hidden_size, inner, bias=False)
        self.k = nn.Linear(config.hidden_size, inner, bias=False)
        self.v = nn.Linear(config.hidden_size, inner, bias=False)
        self.o = nn.Linear(inner, config.hidden_size, bias=False)


class Attention(Projections):
    """Self-attention. The first of a stack, or each, has a position bias."""

    def __init__(self, config: T5Config, bidirectional: bool | None) -> None:
        super().__init__(config)
        if bidirectional is not None:
            self.relative_attention_bias = nn.RelativePositionBias(
                config.num_heads, config.num_buckets, config.max_distance, bidirectional
            )

    def forward(
        self, x: Tensor, bias: Tensor, key_mask: Tensor | None, causal: bool, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        options = {"heads": self.num_heads, "scale": 1.0, "is_causal": causal}
        y, cache = F.cached_attention(self.q(x), self.k(x), self.v(x), cache, bias, key_mask, **options)
        return self.o(y), cache


class AttentionToMemory(Projections):
    """Attention to another sequence, or to its keys and values."""

    def forward(self, x: Tensor, memory: Tensor | nn.KeyValueCache, key_mask: Tensor | None) -> Tensor:
        q = self.q(x)
        k, v = memory if isinstance(memory, nn.KeyValueCache) else (self.k(memory), self.v(memory))
        return self.o(F.cross_attention(q, k, v, key_mask, heads=self.num_heads, scale=1.0))

    def keys_and_values(self, memory: Tensor) -> nn.KeyValueCache:
        """The keys and values of a sequence (N, S, hidden_size)."""
        return nn.KeyValueCache.of(self.k(memory), self.v(memory), self.num_heads)


# Heads ----------------------------------------------------------------------------------------------------------------

_RENAMES = ((r"^transformer\.", ""),)


class T5EncoderStates(Head[T5Config], on=T5):
    """Token ids (N, L) to the encoder's states (N, L, E)."""

    head_task, head_renames = "feature-extraction", _RENAMES
    other_heads = "lm_head|decoder|classifier|classification_head|qa_outputs|sentence_layers"
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> T5Config:
        return T5Config.read(options, decodes=False)

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = Encoder(config, config.num_layers, decoder=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.encoder(self.shared(input_ids), key_mask_of(attention_mask))

    def input_specs(self) -> Mapping[str, TensorType]:
        return text.text_specs()


class T5SentenceEncoder(PooledEncoder[T5Config], T5EncoderStates, on=T5): ...


class T5ForTokenClassification(text.TokenClassifier[T5Config], T5EncoderStates, on=T5): ...


class T5OnTexts(decoder_heads.States[T5Config]):
    """The base of heads on the decoder's states, where the decoder reads the same text, shifted by one token."""

    head_renames = _RENAMES

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        if config.decoder_start_token_id is None:
            raise ValueError(f"{type(self).__name__}: the config has no decoder_start_token_id, expected one")
        self.start = config.decoder_start_token_id
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = Encoder(config, config.num_layers, decoder=False)
        self.decoder = Decoder(config, config.num_decoder_layers, decoder=True)

    def states(self, input_ids: Tensor, attention_mask: Tensor | None, kept: int | Tensor | None = None) -> Tensor:
        start = ops.full((input_ids.shape[0], 1), self.start, dtype=lucid.int64)
        shifted, key_mask = self.shared(ops.concat([start, input_ids[:, :-1]], 1)), key_mask_of(attention_mask)
        memory = self.encoder(self.shared(input_ids), key_mask)
        return F.kept_positions(self.decoder(shifted, memory, key_mask), kept)


class T5ForSequenceClassification(decoder_heads.EndClassifier[T5Config], T5OnTexts, on=T5):
    head_names: ClassVar = dict.fromkeys(("t5", "mt5", "umt5"), ("transformer.", {}))

    @classmethod
    def new_deviation(cls, options: Config) -> float:
        return float(options.get("initializer_factor", float, 1.0)) / math.sqrt(options.size("d_model", 512))


class T5ForQuestionAnswering(decoder_heads.QuestionAnswerer[T5Config], T5OnTexts, on=T5): ...


if __name__ == "__main__":
    answer_text(T5, "t5/v1_1", 0, 1, 5, 6, 7, 1)
