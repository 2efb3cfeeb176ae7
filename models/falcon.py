"""Falcon (Almazrouei et al. 2023): decoders whose attention and feed-forward network run side by side.

::

    falcon = Falcon.from_pretrained("folder with config.json and model.safetensors")
    logits = falcon(lucid.tensor([[1, 15043, 3186]]))                 # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(falcon, path="falcon.onnx")                  # any batch, any length

All query heads share one head of keys and values (Falcon 7B), groups of them do (40B, Falcon 2), or none. One product
makes queries, keys and values, group by group. Models with ALiBi (Falcon-RW) are refused. Modules have Llama's names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from lucid.models.checkpoints.declarations import DecoderParts
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.checkpoints.registry import type_of
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import PREFIXED, TIED, CausalLM, DecoderConfig
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import check_pairs


@dataclass(frozen=True)
class FalconConfig(DecoderConfig):
    """The sizes of a model, and how its heads and norms are arranged."""

    @classmethod
    def read(cls, options: Config) -> Self:
        options.only("alibi", False)
        width, heads = options.size("hidden_size"), options.size("num_attention_heads")
        head_dim = width // options.heads("num_attention_heads", width)
        check_pairs(options, head_dim)
        bias = options.get("bias", bool)
        return cls.from_rows(
            options,
            {"rms_norm_eps": "layer_norm_epsilon", "hidden_act": "activation"},
            intermediate_size=options.size("ffn_hidden_size", 4 * width),
            num_kv_heads=_kv_heads(options, heads),
            head_dim=head_dim,
            parts=_arranged(options, type_of(options.model_type).parts),
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=bias,
        )


class Falcon(CausalLM[FalconConfig]):
    """Token ids to the logits of the token that follows each.

    State: Llama's keys, ``model.layers.0.self_attn.qkv_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["falcon"],
        read=FalconConfig.read,
        renames=[
            (r"^classifier\.", "score."),
            (r"(^|\.)word_embeddings\.", r"\1embed_tokens."),
            (r"(^|\.)h\.(\d+)\.", r"\1layers.\2."),
            (r"(^|\.)ln_f\.", r"\1norm."),
            (r"\.ln_attn\.", ".input_layernorm."),
            (r"\.ln_mlp\.", ".post_attention_layernorm."),
            (r"\.self_attention\.query_key_value\.", ".self_attn.qkv_proj."),
            (r"\.self_attention\.dense\.", ".self_attn.o_proj."),
            (r"\.mlp\.dense_h_to_4h\.", ".mlp.up_proj."),
            (r"\.mlp\.dense_4h_to_h\.", ".mlp.down_proj."),
            *PREFIXED,
        ],
        ignored_keys=[r"rotary_emb\.inv_freq$"],  # stored by older versions; computed here
        tied_keys=TIED,
    )


class FalconStates(decoder_heads.RotaryStates[FalconConfig], on=Falcon): ...


class FalconForSequenceClassification(decoder_heads.LastTokenClassifier[FalconConfig], FalconStates, on=Falcon): ...


class FalconForReranking(Reranker[FalconConfig], FalconForSequenceClassification, on=Falcon): ...


class FalconForTokenClassification(decoder_heads.TokenClassifier[FalconConfig], FalconStates, on=Falcon):
    label_key = r"(?:score|classifier)\.weight"


class FalconForQuestionAnswering(decoder_heads.QuestionAnswerer[FalconConfig], FalconStates, on=Falcon): ...


# Reading config.json --------------------------------------------------------------------------------------------------


def _kv_heads(options: Config, heads: int) -> int:
    """The number of heads of keys and values."""
    if options.get("new_decoder_architecture", bool):
        return options.heads("num_kv_heads", heads, heads)
    if options.get("multi_query", bool):
        options.has("num_kv_heads")  # which is not read then
        return 1
    options.only("num_kv_heads", heads)
    return heads


def _arranged(options: Config, parts: DecoderParts) -> DecoderParts:
    """The parts of a model, with norms as its options say."""
    grouped, norms = options.get("new_decoder_architecture", bool), options.whole("num_ln_in_parallel_attn", None)
    if not options.get("parallel_attn", bool):
        options.only("new_decoder_architecture", False)
        return replace(parts, norms="before")
    options.only("num_ln_in_parallel_attn", *((1, 2) if grouped else (1,)))
    return replace(parts, norms="parallel" if grouped and norms != 1 else "shared")


if __name__ == "__main__":
    continue_text(Falcon, "falcon/base", 1, 11, 7)
