"""Gemma 2 (2024) and the text model of Gemma 3 (2025): decoders of layers with a window and layers without in turn.

::

    gemma = Gemma.from_pretrained("folder with config.json and model.safetensors")
    logits = gemma(lucid.tensor([[2, 4521, 2134]]))                   # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(gemma, path="gemma.onnx")                    # any batch, any length

What differs from Llama: norms before and after attention and feed-forward network, whose weights are stored minus 1;
scaled embeddings; scores and logits within soft caps (Gemma 2); norms on the heads of queries and keys, and rotary
positions of another base in windows (Gemma 3). Modules have the names of the published checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lucid.models.checkpoints.families import FAMILIES, MODEL_TYPES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import PREFIXED, TIED, CausalLM, DecoderConfig
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.options import FULL, SLIDING, check_pairs, layer_types, rope, ropes


@dataclass(frozen=True)
class GemmaConfig(DecoderConfig):
    """The sizes of a model, and which of the family's features it has."""

    @classmethod
    def read(cls, options: Config) -> GemmaConfig:
        """From config.json."""
        third = options.model_type == "gemma3_text"
        layers, heads, head_dim = (
            options.layers("num_hidden_layers"),
            options.size("num_attention_heads"),
            options.size("head_dim"),
        )
        check_pairs(options, head_dim)
        options.only("use_bidirectional_attention", False)
        every = options.whole("sliding_window_pattern") if third else 2
        if third:
            options.only("attn_logit_softcapping", None)
            positions = ropes(options, {FULL: "rope_theta", SLIDING: "rope_local_base_freq"})
        else:
            positions = {FULL: rope(options)}
        default = [FULL if i % every == every - 1 else SLIDING for i in range(layers)]
        kinds, window = layer_types(options, layers, default), options.whole("sliding_window")
        attention_bias = options.get("attention_bias", bool)
        return cls.from_rows(
            options,
            {"hidden_act": "hidden_activation"},
            num_kv_heads=options.heads("num_key_value_heads", heads),
            head_dim=head_dim,
            windows=tuple(window if kind == SLIDING else None for kind in kinds),
            rope_theta=positions[FULL].theta,
            rope_scaling=positions[FULL].scaling,
            parts=MODEL_TYPES[options.model_type].parts,
            qkv_bias=attention_bias,
            o_bias=attention_bias,
            window_rope=positions.get(SLIDING),
            attention_multiplier=options.real("query_pre_attn_scalar", low=1e-3) ** -0.5,
            attention_softcap=0.0 if third else _softcap(options, "attn_logit_softcapping", 50.0),
            embedding_multiplier=math.sqrt(options.size("hidden_size")),
            logits_softcap=_softcap(options, "final_logit_softcapping", 0.0 if third else 30.0),
        )


class Gemma(CausalLM[GemmaConfig]):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.q_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["gemma"],
        read=GemmaConfig.read,
        renames=PREFIXED,
        tied_keys=TIED,
    )


class GemmaStates(decoder_heads.RotaryStates[GemmaConfig]):
    """Token ids (N, L) to hidden states (N, L, E)."""

    checkpoint = decoder_heads.for_states(Gemma.checkpoint)


class GemmaForSequenceClassification(decoder_heads.LastTokenClassifier[GemmaConfig], GemmaStates):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = decoder_heads.for_classification(Gemma.checkpoint)


class GemmaForReranking(GemmaForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = decoder_heads.for_reranking(GemmaForSequenceClassification.checkpoint)


class GemmaForTokenClassification(decoder_heads.TokenClassifier[GemmaConfig], GemmaStates):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = decoder_heads.for_token_classification(Gemma.checkpoint)


def _softcap(options: Config, name: str, default: float) -> float:
    """A soft cap: 0 where the option is null, the default where it is absent."""
    if not options.has(name):
        return 0.0 if name in options.options else default
    return options.real(name, low=1e-3)


def main() -> None:
    """Continue a text of token ids greedily with the exported model, and compare it with eager."""
    continue_text(Gemma, "gemma3/base", 1, 11, 7)


if __name__ == "__main__":
    main()
