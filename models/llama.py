"""The Llama family: decoders with rotary positions, RMS norms and gated feed-forward layers.

Llama 2 and 3 (Touvron et al. 2023, Dubey et al. 2024), Mistral (Jiang et al. 2023) with its sliding window, Qwen2 (Yang
et al. 2024) with biases on queries, keys and values, Qwen3 (2025) with norms on the heads of queries and keys, SmolLM3
(2025) with layers without positions, Granite (2024) with multipliers, Helium (2025), which rotates neighbours, OLMo 2
(2024) with norms after attention and feed-forward layer instead of before, and on all queries and keys.

::

    llama = Llama.from_pretrained("folder with config.json and model.safetensors")
    logits = llama(lucid.tensor([[1, 15043, 3186]]))                  # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(llama, path="llama.onnx")                    # any batch, any length
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from lucid.models.checkpoints.families import FAMILIES, MODEL_TYPES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import PREFIXED, TIED, C, CausalLM, DecoderConfig
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.options import FULL, SLIDING, check_pairs, layer_types, rope
from lucid.models.parts.sentences import PooledEncoder


@dataclass(frozen=True)
class LlamaConfig(DecoderConfig):
    """The sizes of a model, and which of the family's features it has."""

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        declared = MODEL_TYPES[options.model_type]
        rules = declared.options
        width, heads = options.size("hidden_size"), options.size("num_attention_heads")
        kv_heads = options.heads("num_key_value_heads", heads) if options.is_known("num_key_value_heads") else heads
        head_dim = options.size("head_dim") if options.is_known("head_dim") else None
        if head_dim is None:
            head_dim = width // options.heads("num_attention_heads", width)
        check_pairs(options, head_dim)
        theta, scaling = rope(options)
        layers = options.layers("num_hidden_layers")
        rotated = _rotated(options, layers) if rules.unrotated else ()
        config = cls.from_rows(
            options,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            windows=_windows(options, layers, rotated, rules.windows),
            rope_theta=theta,
            rope_scaling=scaling,
            parts=declared.parts,
            qkv_bias=_flag(options, rules.qkv_bias),
            o_bias=_flag(options, rules.o_bias),
            mlp_bias=_flag(options, rules.mlp_bias),
            rotated=rotated,
        )
        return _multiplied(config, options) if rules.multipliers else config


class Llama(CausalLM[LlamaConfig]):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.q_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["llama"],
        read=LlamaConfig.read,
        renames=PREFIXED,
        ignored_keys=[r"rotary_emb\.inv_freq$"],  # stored by older versions; computed here
        tied_keys=TIED,
    )


class LlamaStates(decoder_heads.RotaryStates[LlamaConfig]):
    """Token ids (N, L) to hidden states (N, L, E), each of which has seen the tokens up to its own."""

    checkpoint = decoder_heads.for_states(Llama.checkpoint)


class LlamaSentenceEncoder(PooledEncoder[LlamaConfig], LlamaStates):
    """Llama with the pooling and the layers on top that modules.json lists: one vector for each text, (N, E).

    Without a modules.json it is the state of the last kept token, scaled to length 1.
    """

    checkpoint = replace(LlamaStates.checkpoint, head="sentence-similarity")


class LlamaForSequenceClassification(decoder_heads.LastTokenClassifier[LlamaConfig], LlamaStates):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = decoder_heads.for_classification(Llama.checkpoint)


class LlamaForReranking(LlamaForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = decoder_heads.for_reranking(LlamaForSequenceClassification.checkpoint)


class LlamaForTokenClassification(decoder_heads.TokenClassifier[LlamaConfig], LlamaStates):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = decoder_heads.for_token_classification(Llama.checkpoint)


class LlamaForQuestionAnswering(decoder_heads.QuestionAnswerer[LlamaConfig], LlamaStates):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = decoder_heads.for_question_answering(Llama.checkpoint)


# Reading config.json --------------------------------------------------------------------------------------------------


def _multiplied(config: C, options: Config) -> C:
    """A config with the multipliers that its options name."""
    return replace(
        config,
        attention_multiplier=options.real("attention_multiplier", low=1e-9),
        embedding_multiplier=options.real("embedding_multiplier", low=1e-9),
        residual_multiplier=options.real("residual_multiplier", low=1e-9),
        logits_scaling=options.real("logits_scaling", low=1e-9),
    )


def _flag(options: Config, flag: bool | str) -> bool:
    """What a model type has always or never, or what the option of this name says."""
    return options.get(flag, bool) if isinstance(flag, str) else flag


def _windows(options: Config, layers: int, rotated: tuple[bool, ...], rule: str) -> tuple[int | None, ...]:
    """The window of each layer; `rule` is one of `DecoderOptions.windows`."""
    window = options.whole_or_none("sliding_window")
    if rule == "none":
        _no_windows(options, window, layers)
        return (None,) * layers
    if rule == "all":
        layer_types(options, layers, [FULL] * layers)  # of caches, which the window has too
        return (window,) * layers
    if rule == "typed":
        kinds = layer_types(options, layers, [FULL if window is None else SLIDING] * layers)
        return tuple(window if kind == SLIDING else None for kind in kinds)
    slides = options.get("use_sliding_window", bool)
    window = options.whole("sliding_window") if slides else None
    if rule == "switched":
        return (window,) * layers
    if rule == "unrotated":  # layers may be named whether or not they slide by default
        kinds = layer_types(options, layers, [FULL if turns or not slides else SLIDING for turns in rotated])
        window = options.whole("sliding_window") if SLIDING in kinds else None
    else:
        first = options.whole("max_window_layers", low=0)
        kinds = layer_types(options, layers, [SLIDING if slides and i >= first else FULL for i in range(layers)])
    return tuple(window if kind == SLIDING else None for kind in kinds)


def _no_windows(options: Config, window: int | None, layers: int) -> None:
    """Require that no layer has a window: models of these types have none, but transformers' caches obey one."""
    if SLIDING in layer_types(options, layers, [FULL] * layers):
        raise options.wrong("layer_types", f"supported for {options.model_type}: {layers} of {FULL}")
    most = options.whole("max_position_embeddings")
    if window is not None and window < most and not options.has("layer_types"):
        raise options.wrong("sliding_window", f"supported for {options.model_type}: null, or {most} and more")


def _rotated(options: Config, layers: int) -> tuple[bool, ...]:
    """Which layers have rotary positions: those with 1, by default all but every fourth."""
    interval = options.whole("no_rope_layer_interval")
    marks = options.get("no_rope_layers", list, [int((i + 1) % interval != 0) for i in range(layers)])
    if len(marks) != layers or not all(mark in (0, 1) for mark in marks):
        raise options.wrong("no_rope_layers", f"expected {layers} of 0 or 1")
    return tuple(bool(mark) for mark in marks)


def main() -> None:
    """Continue a text of token ids greedily with the exported model, and compare it with eager."""
    continue_text(Llama, "llama/llama3", 1, 11, 7)


if __name__ == "__main__":
    main()
