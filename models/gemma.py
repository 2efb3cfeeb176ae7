"""Gemma 1 and 2 (2024), and the text model of Gemma 3 (2025): decoders, and EmbeddingGemma, which reads both ways.

::

    gemma = Gemma.from_pretrained("folder with config.json and model.safetensors")
    logits = gemma(lucid.tensor([[2, 4521, 2134]]))                   # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(gemma, path="gemma.onnx")                    # any batch, any length

What differs from Llama: scaled embeddings, norms whose weights are stored minus 1; from Gemma 2 on also norms after
attention and feed-forward network, and layers with a window and layers without in turn; scores and logits within soft
caps (Gemma 2); norms on the heads of queries and keys, and rotary positions of another base in windows (Gemma 3). Of
checkpoints that also read images (model_type "gemma3") the text model is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.checkpoints.registry import type_of
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import PREFIXED, TIED, CausalLM, DecoderConfig
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import FULL, SLIDING, layer_types, rope, ropes
from lucid.models.parts.sentences import PooledEncoder


@dataclass(frozen=True)
class GemmaConfig(DecoderConfig):
    """The sizes of a model, and which of the family's features it has."""

    @classmethod
    def read(cls, options: Config) -> GemmaConfig:
        options.text.only("use_bidirectional_attention", False)
        return cls.read_states(options)

    @classmethod
    def read_states(cls, options: Config) -> GemmaConfig:
        """The same for models whose tokens may also see later ones."""
        kind = options.model_type
        if kind == "gemma3":
            options.only("tie_word_embeddings", True)
        options = options.text
        bias, causal = options.get("attention_bias", bool), not options.get("use_bidirectional_attention", bool, False)
        known: dict[str, Any] = {
            "parts": type_of(kind).parts,
            "causal": causal,
            "qkv_bias": bias,
            "o_bias": bias,
            "embedding_multiplier": math.sqrt(options.size("hidden_size")),
        }
        if kind == "gemma":
            return cls._read_first(options, known)
        third, layers = kind != "gemma2", options.layers("num_hidden_layers")
        every = options.whole("sliding_window_pattern") if third else 2
        if third:
            options.only("attn_logit_softcapping", None)
            positions = ropes(options, {FULL: "rope_theta", SLIDING: "rope_local_base_freq"})
        else:
            positions = {FULL: rope(options)}
        default = [FULL if i % every == every - 1 else SLIDING for i in range(layers)]
        kinds, window = layer_types(options, layers, default), options.whole("sliding_window")
        if third and not causal:  # of which each side has half
            window = window // 2 + 1
        return cls.from_rows(
            options,
            {"hidden_act": "hidden_activation"},
            windows=tuple(window if each == SLIDING else None for each in kinds),
            rope=positions[FULL],
            window_rope=positions.get(SLIDING),
            attention_multiplier=options.real("query_pre_attn_scalar", low=1e-3) ** -0.5,
            attention_softcap=0.0 if third else _softcap(options, "attn_logit_softcapping", 50.0),
            logits_softcap=_softcap(options, "final_logit_softcapping", 0.0 if third else 30.0),
            **known,
        )

    @classmethod
    def _read_first(cls, options: Config, known: dict[str, Any]) -> GemmaConfig:
        """The config of Gemma 1: no layer has a window, and its first files call the activation "gelu"."""
        activation = options.activation("hidden_act")
        options.only("hidden_activation", "gelu_pytorch_tanh")  # of releases before transformers 5
        known |= {"activation": "gelu_pytorch_tanh" if activation == "gelu" else activation}
        return cls.from_rows(options, **known)


class Gemma(CausalLM[GemmaConfig]):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.q_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["gemma"],
        read=GemmaConfig.read,
        ignored_options=["vision_config|mm_tokens_per_image|(boi|eoi|image)_token_index"],  # of images
        renames=[
            (r"^language_model\.lm_head\.", "lm_head."),
            (r"^(model\.language_model|language_model\.model)\.", "model."),  # of checkpoints that read images
            *PREFIXED,
        ],
        ignored_keys=[r"^model\.(vision_tower|multi_modal_projector)\."],
        tied_keys=TIED,
    )


class GemmaStates(decoder_heads.RotaryStates[GemmaConfig]):
    checkpoint = decoder_heads.States.head_checkpoint(replace(Gemma.checkpoint, read=GemmaConfig.read_states))


class GemmaSentenceEncoder(PooledEncoder[GemmaConfig], GemmaStates, on=GemmaStates): ...


class GemmaForSequenceClassification(decoder_heads.LastTokenClassifier[GemmaConfig], GemmaStates, on=Gemma): ...


class GemmaForReranking(Reranker[GemmaConfig], GemmaForSequenceClassification, on=Gemma): ...


class GemmaForTokenClassification(decoder_heads.TokenClassifier[GemmaConfig], GemmaStates, on=Gemma): ...


def _softcap(options: Config, name: str, default: float) -> float:
    """A soft cap: 0 where the option is null, the default where it is absent."""
    if not options.has(name):
        return 0.0 if name in options.options else default
    return options.real(name, low=1e-3)


if __name__ == "__main__":
    continue_text(Gemma, "gemma3/base", 1, 11, 7)
