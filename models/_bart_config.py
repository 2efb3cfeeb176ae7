"""The options of the checkpoints of BART, Marian, mBART and M2M-100."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from lucid.models.checkpoints.config import Config
from lucid.models.parts.seq2seq_layers import StackConfig


@dataclass(frozen=True)
class BartConfig:
    """The sizes of both stacks, and which of the family's features a model has."""

    encoder: StackConfig
    decoder: StackConfig
    vocab_size: int
    max_positions: int
    learned_positions: bool = True  # a table of weights (BART, mBART); else sines and cosines (Marian, M2M-100)
    counted_padding: int | None = None  # if given, the encoder counts only ids that are not this one (M2M-100)
    normed_embeddings: bool = True  # a norm follows the embeddings (BART, mBART)
    scaled_embeddings: bool = False  # vectors of tokens are multiplied by the square root of their width
    output_bias: bool = True  # logits have one: every family but M2M-100
    decoder_start_token_id: int | None = None  # what generated texts begin with
    last_first: int | None = None  # of a classifier whose decoder starts with the last id that is not this one (mBART)
    eos_token_id: int = 2  # of a classifier of texts, which reads the state at their last one
    num_labels: int = 0

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json; what the families differ in is told by the model type."""
        kind = options.model_type
        options.only("is_encoder_decoder", True)
        options.only("is_decoder", False)
        vocabulary = options.size("vocab_size")
        if kind == "marian":  # a decoder with a vocabulary and vectors of its own
            options.only("share_encoder_decoder_embeddings", True)
            options.only("decoder_vocab_size", vocabulary)
        options.only("tie_word_embeddings", True)
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
        return cls(
            encoder=StackConfig.read(options, "encoder", norm_first=norm_first),
            decoder=StackConfig.read(options, "decoder", norm_first=norm_first),
            vocab_size=vocabulary,
            max_positions=options.size("max_position_embeddings"),
            learned_positions=learned,
            counted_padding=padding,
            normed_embeddings=learned,
            scaled_embeddings=options.get("scale_embedding", bool, kind == "m2m_100"),
            output_bias="final_logits_bias" in options.weights,
            decoder_start_token_id=start,
            eos_token_id=options.whole("eos_token_id", low=0),
        )

    @classmethod
    def read_classifier(cls, options: Config) -> Self:
        """The same for a classifier of texts: mBART's decoder starts with the last token of each, its language."""
        if options.model_type not in ("bart", "mbart"):
            raise options.wrong("model_type", "supported for text-classification: bart, mbart")
        config, padding = cls.read(options), options.whole("pad_token_id", 1, low=0)
        return replace(config, last_first=padding) if options.model_type == "mbart" else config
