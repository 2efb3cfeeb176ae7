"""BART (Lewis et al. 2019), Marian (Junczys-Dowmunt et al. 2018), mBART (Liu et al. 2020), M2M-100 (Fan et al. 2020).

One encoder and decoder for text to text, and its variations: Marian has sines and cosines as positions, mBART norms
before attention instead of after; M2M-100 and NLLB (NLLB Team 2022) have both, and count positions without padding.

::

    bart = Bart.from_pretrained("folder with config.json and model.safetensors")
    logits = bart(lucid.tensor([[0, 363, 2]]), lucid.tensor([[2, 0]]))   # (N, L), (N, T) to (N, T, vocab_size)
    lucid.export.to_onnx(bart, path="bart.onnx")                         # any batch, any lengths

    cache = bart.empty_cache(bart.encode(source_ids))                    # token by token: the page "Key-value cache"
    logits, cache = bart.decode(lucid.tensor([[2]]), cache)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import LanguageModel
from lucid.models.parts.demonstration import answer_text
from lucid.models.parts.on_model import Head
from lucid.models.parts.options import tied_output
from lucid.models.parts.seq2seq_layers import (
    AloneLayer,
    DecoderLayer,
    EncoderLayer,
    StackConfig,
    Step,
    TwoStacks,
    key_mask_of,
    text_to_text_specs,
)
from lucid.nn import functional as F

Positions: TypeAlias = "lucid.Size | Tensor"
"""A number of tokens, from position 0 on, or the position of each."""


@dataclass(frozen=True)
class BartConfig(option.OptionTable):
    """The sizes of both stacks, and which of the family's features a model has."""

    encoder: StackConfig
    decoder: StackConfig
    vocab_size: int = option.size("vocab_size")
    max_positions: int = option.size("max_position_embeddings")
    learned_positions: bool = True  # a table of weights (BART, mBART); else sines and cosines (Marian, M2M-100)
    counted_padding: int | None = None  # if given, the encoder counts only ids that are not this one (M2M-100)
    normed_embeddings: bool = True  # a norm follows the embeddings (BART, mBART)
    scaled_embeddings: bool = False  # vectors of tokens are multiplied by the square root of their width
    output_bias: bool = True  # logits have one: every family but M2M-100
    tied: bool = True  # the output layer is the table of token vectors
    decoder_start_token_id: int | None = None  # what generated texts begin with
    last_first: int | None = None  # of a classifier whose decoder starts with the last id that is not this one (mBART)
    eos_token_id: int = 2  # of a classifier of texts, which reads the state at their last one
    num_labels: int = 0

    @property
    def hidden_size(self) -> int:
        """The width of both stacks, for heads."""
        return self.decoder.hidden_size

    @classmethod
    def read(cls, options: Config, alone: bool = False) -> Self:
        """From config.json; the model type decides what the families do differently. With `alone`, the config of a
        decoder without its encoder.
        """
        kind = options.model_type
        options.only("is_encoder_decoder", True, *((False,) if alone else ()))
        options.only("is_decoder", False, *((True,) if alone else ()))
        if kind == "marian":  # a decoder with a vocabulary and vectors of its own
            options.only("share_encoder_decoder_embeddings", True)
            options.only("decoder_vocab_size", options.size("vocab_size"))
        norm_first, learned = kind in ("mbart", "m2m_100"), kind in ("bart", "mbart")
        if not learned:  # half of the features are sines, half cosines, of a table that is computed
            if options.size("d_model") % 2 or options.size("d_model") < 4:
                raise options.wrong("d_model", "expected an even number from 4 on, for sines and cosines")
            options.whole("max_position_embeddings", high=1 << 14)
        start = options.whole("decoder_start_token_id", 2 if kind in ("bart", "m2m_100") else None, low=0)
        padding = options.whole("pad_token_id", low=0) if kind == "m2m_100" else None
        if padding is not None and padding == start:
            raise options.wrong(
                "pad_token_id", "expected another token than decoder_start_token_id, which has a position"
            )
        return cls.from_rows(
            options,
            encoder=StackConfig.read(options, "encoder", norm_first=norm_first),
            decoder=StackConfig.read(options, "decoder", norm_first=norm_first),
            learned_positions=learned,
            counted_padding=padding,
            normed_embeddings=learned,
            scaled_embeddings=options.get("scale_embedding", bool, kind == "m2m_100"),
            output_bias="final_logits_bias" in options.weights,
            tied=tied_output(options, table=r"(?:model\.)?shared\.weight"),
            decoder_start_token_id=start,
        )

    @classmethod
    def read_alone(cls, options: Config) -> Self:
        """The same for a decoder that continues texts, which M2M-100 does not have."""
        if options.model_type == "m2m_100":
            raise options.wrong("model_type", "supported for text-generation: bart, marian, mbart")
        return cls.read(options, alone=True)

    @classmethod
    def read_on_texts(cls, options: Config) -> Self:
        """The same for heads on texts: mBART's decoder starts with the last token of each, its language."""
        if options.model_type not in ("bart", "mbart"):
            raise options.wrong("model_type", "supported for text-classification and question-answering: bart, mbart")
        config, padding = cls.read(options), options.whole("pad_token_id", 1, low=0)
        return replace(config, last_first=padding) if options.model_type == "mbart" else config


class Bart(TwoStacks[BartConfig]):
    """Source and target token ids to the logits of the token that follows each of the target."""

    checkpoint = Checkpoint(
        family=FAMILIES["bart"],
        read=BartConfig.read,
        renames=[(r"^(?!model\.|lm_head\.|final_logits_bias$|classification_head\.|qa_outputs\.)", "model.")],
        # Sines, computed here; heads.
        ignored_keys=[r"embed_positions\.weights?$", r"^(classification_head|qa_outputs)\.|^final_logits_bias$"],
        tied_keys={
            "model.encoder.embed_tokens.weight": "model.shared.weight",
            "model.decoder.embed_tokens.weight": "model.shared.weight",
            "lm_head.weight": "model.shared.weight",
        },
    )
    model: EncoderDecoder

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.model = EncoderDecoder(config)
        width = config.decoder.hidden_size
        self.lm_head = None if config.tied else nn.Linear(width, config.vocab_size, bias=False)
        self.final_logits_bias = nn.init.new_parameter(1, config.vocab_size) if config.output_bias else None

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The logits of the token that follows each token of the decoder.

        Args:
            input_ids: (N, L) int64, the encoder's.
            decoder_input_ids: (N, T) int64, the tokens generated so far, beginning with the start token.
            attention_mask: (N, L) int64, 1 = keep, 0 = padding of the encoder's input.

        Returns:
            (N, T, vocab_size).
        """
        return self.logits(self.model(input_ids, decoder_input_ids, attention_mask)[0])

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(N, L) int64 token ids, and which are padding (0), to vectors (N, L, hidden_size)."""
        return self.model.encode(input_ids, attention_mask)

    def step(
        self,
        input_ids: Tensor,
        positions: Tensor,
        caches: Sequence[nn.EncoderDecoderCache],
        key_mask: Tensor | None,
    ) -> Step:
        return self.model.step(input_ids, positions, caches, key_mask)

    def logits(self, x: Tensor) -> Tensor:
        logits = F.linear(x, self.table) if self.lm_head is None else self.lm_head(x)
        return logits if self.final_logits_bias is None else logits + self.final_logits_bias

    @property
    def table(self) -> Tensor:
        return self.model.shared.weight

    def input_specs(self) -> Mapping[str, TensorType]:
        return text_to_text_specs()


class BartStates(Head[BartConfig], on=Bart):
    """Source ids (N, L) and target ids (N, T) to the states of the decoder, (N, T, E), and of the encoder."""

    head_task, other_heads = "feature-extraction", "lm_head"
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state", "encoder_last_hidden_state")

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.model = EncoderDecoder(config)

    def forward(
        self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.model(input_ids, decoder_input_ids, attention_mask)

    def input_specs(self) -> Mapping[str, TensorType]:
        return text_to_text_specs()


class BartOnTexts(decoder_heads.States[BartConfig]):
    """The base of heads on the decoder's states, where the decoder reads the same text, shifted by one token."""

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> BartConfig:
        return BartConfig.read_on_texts(options)

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.model, self.start = EncoderDecoder(config), config.decoder_start_token_id
        if self.start is None and config.last_first is None:
            raise ValueError(f"{type(self).__name__}: the config has no decoder_start_token_id, expected one")

    def states(self, input_ids: Tensor, attention_mask: Tensor | None, kept: int | Tensor | None = None) -> Tensor:
        shifted = ops.concat([self.first(input_ids), input_ids[:, :-1]], 1)
        return F.kept_positions(self.model(input_ids, shifted, attention_mask)[0], kept)

    def first(self, input_ids: Tensor) -> Tensor:
        """The first token of the decoder, (N, 1)."""
        padding = self.config.last_first
        if padding is None:
            assert self.start is not None
            return ops.full((input_ids.shape[0], 1), self.start, dtype=lucid.int64)
        kept = (input_ids != padding).astype(lucid.int64)
        return ops.take_along(input_ids, kept.sum(1, keepdims=True) - 1, axis=1)


class BartForSequenceClassification(decoder_heads.EndClassifier[BartConfig], BartOnTexts, on=Bart):
    head_names: ClassVar = dict.fromkeys(("bart", "mbart"), ("model.", {}))

    @classmethod
    def new_deviation(cls, options: Config) -> float:
        return float(options.options.get("init_std") or 0.02)


class BartForQuestionAnswering(decoder_heads.QuestionAnswerer[BartConfig], BartOnTexts, on=Bart): ...


class BartForCausalLM(LanguageModel[BartConfig], Head[BartConfig], on=Bart):
    """The decoder without its encoder: token ids to the logits of the token that follows each."""

    head_task, other_heads = "text-generation", r"model\.encoder|.*\.encoder_attn\w*"

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> BartConfig:
        return BartConfig.read_alone(options)

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.model, width = DecoderAlone(config), config.decoder.hidden_size
        self.lm_head = None if config.tied else nn.Linear(width, config.vocab_size, bias=False)

    def decode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        past_key_values: Sequence[nn.Cache] | None,
    ) -> tuple[Tensor, list[nn.Cache]]:
        caches = F.layer_caches(past_key_values, position_ids, len(self.model.decoder.layers))
        one_shot = position_ids is None and past_key_values is None
        positions = input_ids.shape[1] if one_shot else F.cache_positions(input_ids, position_ids, caches)
        x, present = self.model(input_ids, positions, caches, F.cache_key_mask(attention_mask, caches))
        return x, F.present_caches(past_key_values, present)

    @property
    def table(self) -> Tensor:
        return self.model.shared.weight

    @property
    def cache_shape(self) -> nn.CacheShape:
        return self.config.decoder.cache_shape(self.table.dtype)


class Embedded(nn.Module):
    """The token embeddings, scaled in some models."""

    def __init__(self, config: BartConfig) -> None:
        width = config.encoder.hidden_size
        self.shared = (nn.TiedEmbedding if config.tied else nn.Embedding)(config.vocab_size, width)
        self.scale = math.sqrt(width) if config.scaled_embeddings else 1.0

    def embed(self, input_ids: Tensor) -> Tensor:
        """The vectors of tokens."""
        x = self.shared(input_ids)
        return x if self.scale == 1 else x * self.scale


class DecoderAlone(Embedded):
    """The decoder without its encoder: (N, L) token ids to (N, L, hidden_size), and the caches of the layers."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.decoder = Decoder(config, computed_positions(config), AloneLayer)

    def forward(
        self, input_ids: Tensor, positions: Positions, caches: Sequence[nn.Cache | None], key_mask: Tensor | None
    ) -> Step:
        return self.decoder(self.embed(input_ids), positions, [(cache, None) for cache in caches], key_mask)


class EncoderDecoder(Embedded):
    """Encoder and decoder, which share the vectors of tokens, without the output layer."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        computed = computed_positions(config)
        self.encoder, self.decoder = Encoder(config, computed), Decoder(config, computed)
        self.counted_padding = config.counted_padding

    def forward(
        self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The decoder's states (N, T, hidden_size) and the encoder's (N, L, hidden_size)."""
        memory, key_mask = self.encode(input_ids, attention_mask), key_mask_of(attention_mask)
        layers = [(None, memory)] * len(self.decoder.layers)
        return self.decoder(self.embed(decoder_input_ids), decoder_input_ids.shape[1], layers, key_mask)[0], memory

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """(N, L) to (N, L, hidden_size)."""
        return self.encoder(self.embed(input_ids), self.places(input_ids), key_mask_of(attention_mask))

    def step(
        self,
        input_ids: Tensor,
        positions: Tensor,
        caches: Sequence[nn.EncoderDecoderCache],
        key_mask: Tensor | None,
    ) -> Step:
        """The decoder's vectors for new tokens at these positions, and the caches of the layers with them."""
        return self.decoder(self.embed(input_ids), positions, caches, key_mask)

    def places(self, input_ids: Tensor) -> Positions:
        """The positions of the encoder's tokens: a length, or (N, L) with -1 for padding that is not counted."""
        if self.counted_padding is None:
            return input_ids.shape[1]
        kept = (input_ids != self.counted_padding).astype(lucid.int64)
        return ops.cumsum(kept, axis=1) * kept - 1


class Stack(nn.Module):
    """The base of both stacks: positions, learned if none are given, and norms around the layers."""

    def __init__(self, config: BartConfig, stack: StackConfig, positions: nn.Module | None) -> None:
        width = stack.hidden_size
        if positions is None:  # of whose table the first two rows are not used
            positions = nn.LearnedPositions(config.max_positions, width, offset=2)
        self.embed_positions = positions
        self.layernorm_embedding = nn.LayerNorm(width) if config.normed_embeddings else None
        self.layer_norm = nn.LayerNorm(width) if stack.norm_first else None

    def embedded(self, x: Tensor, positions: Positions) -> Tensor:
        """The input of the first layer; positions are integers (..., L), or a length."""
        x = x + self.embed_positions(positions).astype(x.dtype)  # computed ones are float32 in any model
        return x if self.layernorm_embedding is None else self.layernorm_embedding(x)

    def normed(self, x: Tensor) -> Tensor:
        """The output of the stack, from the output of its last layer."""
        return x if self.layer_norm is None else self.layer_norm(x)


class Encoder(Stack):
    """The encoder's layers."""

    def __init__(self, config: BartConfig, positions: nn.Module | None) -> None:
        super().__init__(config, config.encoder, positions)
        self.layers = [EncoderLayer(config.encoder) for _ in range(config.encoder.num_layers)]

    def forward(self, x: Tensor, positions: Positions, key_mask: Tensor | None) -> Tensor:
        return self.normed(self.hidden_states(x, positions, key_mask)[-1])

    def hidden_states(self, x: Tensor, positions: Positions, key_mask: Tensor | None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer."""
        states = [self.embedded(x, positions)]
        for layer in self.layers:
            states.append(layer(states[-1], key_mask))
        return states


class Decoder(Stack):
    """The decoder's layers."""

    def __init__(
        self, config: BartConfig, positions: nn.Module | None, layer: type[DecoderLayer | AloneLayer] = DecoderLayer
    ) -> None:
        super().__init__(config, config.decoder, positions)
        self.layers = [layer(config.decoder) for _ in range(config.decoder.num_layers)]

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        layers: Sequence[tuple[nn.Cache | None, Any]],
        key_mask: Tensor | None,
    ) -> Step:
        """The vectors of new tokens, and the updated caches. `layers` has the cache of each layer, and the encoder's
        output or its keys and values; `key_mask` is the encoder's, or, in a decoder alone, its own.
        """
        x, present = self.embedded(x, positions), []
        for layer, (past, source) in zip(self.layers, layers, strict=True):
            x, cache = layer(x, past, source, key_mask)
            present.append(cache)
        return self.normed(x), present


def computed_positions(config: BartConfig) -> SinesAndCosines | None:
    """Positions that are computed; None for a model with learned ones."""
    return None if config.learned_positions else SinesAndCosines(config, config.encoder.hidden_size)


class SinesAndCosines(nn.Module):
    """Positions as sines, then cosines (Vaswani et al. 2017, section 3.5, in halves). They are computed, not learned.

    Where padding has no position, its number is -1 and its row zero.
    """

    def __init__(self, config: BartConfig, width: int) -> None:
        self.held, self.width, self.padding = config.max_positions, width, config.counted_padding
        self.offset = 0 if config.counted_padding is None else 1

    @cached_property
    def _table(self) -> Tensor:
        """Made on first use, when the weights have confirmed the sizes of an untrusted config."""
        width, padding = self.width, self.padding
        places, half = np.arange(self.held), np.arange(width // 2)
        if padding is None:
            angles = places[:, None] * 10000.0 ** (-2 * half / width)
        else:  # in float32 and from padding + 1 on, as the models were trained
            steps = half.astype(np.float32) * np.float32(-math.log(10000) / (width // 2 - 1))
            frequencies = np.exp(steps.astype(np.float64)).astype(np.float32)
            angles = ((places + padding + 1).astype(np.float32)[:, None] * frequencies).astype(np.float64)
        rows = np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)
        return Tensor(np.concatenate([np.zeros((self.offset, width), np.float32), rows]))

    def forward(self, positions: Positions) -> Tensor:
        """(..., L) integers, or a length L, to (..., L, width)."""
        length = positions.shape[-1] if isinstance(positions, Tensor) else positions
        if isinstance(length, int) and length > self.held:
            raise ValueError(
                f"Bart: the input has {length} tokens, the model {self.held} positions; shorten the input, or raise "
                "max_position_embeddings of config.json, as positions are computed"
            )
        if isinstance(positions, Tensor):
            return ops.take(self._table, positions + self.offset if self.offset else positions)
        return self._table[self.offset : positions + self.offset]


if __name__ == "__main__":
    answer_text(Bart, "bart/base", 2, 2, 0, 5, 6, 7, 2)
