"""The Llama family: decoders with rotary positions, RMS norms and gated feed-forward layers.

Llama 2 and 3 (Touvron et al. 2023, Dubey et al. 2024), Mistral (Jiang et al. 2023) with its sliding window, Qwen2 (Yang
et al. 2024) with biases on queries, keys and values, Qwen3 (2025) with norms on the heads of queries and keys, SmolLM3
(2025) with layers without positions, Granite (2024) with multipliers, Helium (2025), which rotates neighbours, OLMo 2
(2024) with norms after attention and feed-forward layer instead of before, and on all queries and keys.

`DecoderParts` also makes decoders of them that differ in more: attention and feed-forward network side by side
(GPT-NeoX, Phi-1 and Phi-2, StableLM, Cohere), layer norms (the same, OLMo, StarCoder2, Nemotron), plain feed-forward
networks (StarCoder2, Nemotron, Phi, GPT-NeoX), and heads of which a part is rotated (GLM-4, StableLM, Nemotron, Phi,
GPT-NeoX). Modules have Llama's names in all of them.

::

    llama = Llama.from_pretrained("folder with config.json and model.safetensors")
    logits = llama(lucid.tensor([[1, 15043, 3186]]))                  # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(llama, path="llama.onnx")                    # any batch, any length
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from lucid.models.checkpoints.declarations import DecoderOptions, Windows
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.checkpoints.registry import type_of
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import PREFIXED, TIED, CausalLM, DecoderConfig
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import (
    FULL,
    SLIDING,
    declared_flag,
    layer_types,
    read_head_dim,
    rope,
    rope_section,
    ropes,
    rotary_dim,
)
from lucid.models.parts.sentences import PooledEncoder


@dataclass(frozen=True)
class LlamaConfig(DecoderConfig):
    """The sizes of a model, and which of the family's features it has."""

    @classmethod
    def read(cls, options: Config) -> Self:
        declared = type_of(options.model_type)
        rules, parts = declared.options, declared.parts
        kv_heads = heads = options.size("num_attention_heads")
        if parts.qkv != "grouped" and options.is_known("num_key_value_heads"):
            kv_heads = options.heads("num_key_value_heads", heads)
        head_dim, layers = read_head_dim(options, "head_dim"), options.layers("num_hidden_layers")
        rotated = _rotated(options, layers) if rules.unrotated == "listed" else ()
        windows = _windows(options, layers, rotated, rules.windows)
        if rules.unrotated == "window":
            rotated = tuple(window is not None for window in windows)
        if rules.parallel is not None and not options.get(rules.parallel, bool):
            parts = replace(parts, norms="before")
        if rules.qk_norm is not None and not options.get(rules.qk_norm, bool):
            parts = replace(parts, qk_norm=None)
        if parts.head_bias:
            options.only("tie_word_embeddings", False)
        clamped = rules.experts is not None and rules.experts.clamped
        fixed = {"activation": "silu"} if clamped else {}  # no code of gpt-oss reads it
        return cls.from_rows(
            options,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            windows=windows,
            **_positions(options, head_dim, rules) | _multipliers(options, rules.multipliers) | fixed,
            eps=options.real(rules.eps) if isinstance(rules.eps, str) else rules.eps,
            parts=parts,
            qkv_bias=declared_flag(options, rules.qkv_bias),
            o_bias=declared_flag(options, rules.o_bias),
            mlp_bias=declared_flag(options, rules.mlp_bias),
            rotated=rotated,
            qkv_clip=options.real("clip_qkv", None) if rules.clipped else None,
        )


class Llama(CausalLM[LlamaConfig]):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.q_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["llama"],
        read=LlamaConfig.read,
        renames=[
            (r"^embed_out\.", "lm_head."),  # of GPT-NeoX, Phi, StableLM and StarCoder2
            (r"^classifier\.", "score."),
            (r"^gpt_neox\.", "model."),
            (r"(^|\.)embed_in\.", r"\1embed_tokens."),
            (r"(^|\.)final_layer_?norm\.", r"\1norm."),
            (r"\.(?:attention|self_attn)\.dense\.", ".self_attn.o_proj."),
            (r"\.attention\.query_key_value\.", ".self_attn.qkv_proj."),
            (r"\.([qk])_layernorm\.", r".\1_norm."),
            (r"\.mlp\.(?:c_fc|fc1|dense_h_to_4h)\.", ".mlp.up_proj."),
            (r"\.mlp\.(?:c_proj|fc2|dense_4h_to_h)\.", ".mlp.down_proj."),
            *PREFIXED,
        ],
        stacked={f"{name}_norm.weight": (f"{name}_layernorm.norms.*.weight",) for name in "qk"},
        # stored by older versions; computed here
        ignored_keys=[r"rotary_emb\.inv_freq$", r"\.attention\.(masked_)?bias$"],
        tied_keys=TIED,
    )


class LlamaStates(decoder_heads.RotaryStates[LlamaConfig], on=Llama): ...


class LlamaSentenceEncoder(PooledEncoder[LlamaConfig], LlamaStates, on=Llama): ...


class LlamaForSequenceClassification(decoder_heads.LastTokenClassifier[LlamaConfig], LlamaStates, on=Llama): ...


class LlamaForReranking(Reranker[LlamaConfig], LlamaForSequenceClassification, on=Llama): ...


class LlamaGenerativeReranker(decoder_heads.GenerativeReranker[LlamaConfig], on=Llama): ...


class LlamaForTokenClassification(decoder_heads.TokenClassifier[LlamaConfig], LlamaStates, on=Llama):
    label_key = r"(?:score|classifier)\.weight"


class LlamaForQuestionAnswering(decoder_heads.QuestionAnswerer[LlamaConfig], LlamaStates, on=Llama): ...


# Reading config.json --------------------------------------------------------------------------------------------------


def _positions(options: Config, head_dim: int, rules: DecoderOptions) -> dict[str, Any]:
    """The fields of a config about rotary positions."""
    if rules.window_rope is not None:
        full, windowed = ropes(options, {FULL: rules.theta, SLIDING: rules.window_rope}).values()
        return {"rope": full, "window_rope": windowed}
    section = rope_section(options)
    if rules.scaled and not section.options:
        raise options.wrong("rope_parameters", "expected an object that says how positions are scaled")
    positions: dict[str, Any] = {"rope": rope(options, rules.theta, section, rules.partial is None)}
    if rules.partial is not None:
        positions["rotary_dim"] = rotary_dim(options, section, head_dim, rules.partial)
    if rules.query_growth:
        name, longest = "original_max_position_embeddings", options.whole("max_position_embeddings")
        step = options.whole(name, section.whole(name, longest))
        positions["query_growth"] = (section.real("llama_4_scaling_beta"), step)
    return positions


def _multipliers(options: Config, names: Sequence[str]) -> dict[str, float]:
    """The fields of a config that are multipliers, by the names of their options."""
    multipliers = {name: options.real(name, low=1e-9) for name in names}
    if "logit_scale" in multipliers:
        multipliers["logits_scaling"] = 1 / multipliers.pop("logit_scale")
    return multipliers


def _windows(options: Config, layers: int, rotated: tuple[bool, ...], rule: Windows) -> tuple[int | None, ...]:
    """The window of each layer."""
    window = options.whole_or_none("sliding_window")
    if rule == "none":
        _no_windows(options, window, layers)
        return (None,) * layers
    if rule == "all":
        layer_types(options, layers, [FULL] * layers)  # of caches, which the window has too
        return (window,) * layers
    if rule in ("typed", "halves", "quarters", "patterned"):
        every = options.whole("sliding_window_pattern") if rule == "patterned" else 2 if rule == "halves" else 4
        slide = [window is not None if rule == "typed" else (i + 1) % every != 0 for i in range(layers)]
        kinds = layer_types(options, layers, [SLIDING if slides else FULL for slides in slide])
        if SLIDING in kinds:
            window = options.whole("sliding_window")
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
        slide = [i >= first if rule == "later" else i < first and i % 2 == 0 for i in range(layers)]
        kinds = layer_types(options, layers, [SLIDING if slides and own else FULL for own in slide])
    return tuple(window if kind == SLIDING else None for kind in kinds)


def _no_windows(options: Config, window: int | None, layers: int) -> None:
    """Refuse windows: models of these types have none, but transformers' caches would apply one."""
    if SLIDING in layer_types(options, layers, [FULL] * layers):
        raise options.wrong("layer_types", f"supported for {options.model_type}: {layers} of {FULL}")
    most = options.whole("max_position_embeddings")
    if window is not None and window < most and not options.has("layer_types"):
        raise options.wrong("sliding_window", f"supported for {options.model_type}: null, or {most} and more")


def _rotated(options: Config, layers: int) -> tuple[bool, ...]:
    """Which layers have rotary positions: those marked 1, by default all except every fourth."""
    interval = options.whole("no_rope_layer_interval")
    marks = options.get("no_rope_layers", list, [int((i + 1) % interval != 0) for i in range(layers)])
    if len(marks) != layers or not all(mark in (0, 1) for mark in marks):
        raise options.wrong("no_rope_layers", f"expected {layers} of 0 or 1")
    return tuple(bool(mark) for mark in marks)


if __name__ == "__main__":
    continue_text(Llama, "llama/llama3", 1, 11, 7)
