"""Llama's decoders whose feed-forward layers are mixtures of experts: each token goes through a few of many.

Mixtral (Jiang et al. 2024) is Mistral with 8 experts, 2 for each token; Qwen3-MoE (2025) is Qwen3 with 128 experts, 8
for each token. Qwen2-MoE (2024) has one more that sees all tokens, Granite MoE (2024) Granite's multipliers, OLMoE
(Muennighoff et al. 2024) norms on all queries and keys, gpt-oss (OpenAI 2025) biases, limited gates and attention
sinks. The weights of all experts of a layer are one array, as transformers holds them in memory; checkpoints have them
one by one, those of gpt-oss as 4-bit numbers (MXFP4).

::

    mixtral = Mixtral.from_pretrained("folder with config.json and model.safetensors")
    logits = mixtral(lucid.tensor([[1, 15043, 3186]]))                # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(mixtral, path="mixtral.onnx")                # any batch, any length
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.mxfp4 import oss_experts
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.checkpoints.registry import type_of
from lucid.models.llama import Llama, LlamaConfig
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import EXPERTS, PREFIXED, TIED, Experts
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import declared_flag
from lucid.ops.experts import ALPHA, LIMIT


@dataclass(frozen=True)
class MixtralConfig(LlamaConfig):
    """The sizes of a model."""

    @classmethod
    def read(cls, options: Config) -> Self:
        plain = super().read(options)
        if plain.activation not in ("silu", "swish"):
            raise options.wrong("hidden_act", "supported: silu")
        return replace(plain, experts=read_experts(options, len(plain.windows)))


def read_experts(options: Config, layers: int) -> Experts:
    """The experts of a model with so many layers, from config.json."""
    rules = type_of(options.model_type).options.experts
    assert rules is not None
    count = options.size("num_local_experts" if options.has("num_local_experts") else "num_experts")
    step = options.whole("decoder_sparse_step") if rules.some_layers else 1
    dense = options.get("mlp_only_layers", list, []) if rules.some_layers else []
    if not all(isinstance(layer, int) for layer in dense):
        raise options.wrong("mlp_only_layers", "expected numbers of layers")
    if rules.clamped:
        options.only("swiglu_alpha", ALPHA)
        options.only("swiglu_limit", LIMIT)
    return Experts(
        count=count,
        per_token=options.whole("num_experts_per_tok", high=count, why=", the number of experts"),
        width=options.size(rules.width),
        normalized=declared_flag(options, rules.normalized),
        layers=tuple((i + 1) % step == 0 and i not in dense for i in range(layers)),
        shared=options.size("shared_expert_intermediate_size") if rules.shared else 0,
        clamped=rules.clamped,
    )


class Mixtral(Llama):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM; the experts as transformers has them in memory,
    ``model.layers.0.mlp.experts.gate_up_proj`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["mixtral"],
        read=MixtralConfig.read,
        ignored_options=["router_(aux_loss_coef|jitter_noise)", "output_router_logits"],
        stacked={
            **EXPERTS,
            "mlp.experts.gate_up_proj": (
                "block_sparse_moe.experts.*.w1.weight",
                "block_sparse_moe.experts.*.w3.weight",
            ),
            "mlp.experts.down_proj": ("block_sparse_moe.experts.*.w2.weight",),
        },
        renames=[
            *PREFIXED,
            (r"\.block_sparse_moe\.", ".mlp."),
            (r"\.input_linear\.weight$", ".experts.gate_up_proj"),  # of Granite
            (r"\.output_linear\.weight$", ".experts.down_proj"),
            (r"\.mlp\.router\.layer\.", ".mlp.gate."),
        ],
        converted=oss_experts,
        tied_keys=TIED,
    )


class MixtralStates(decoder_heads.RotaryStates[MixtralConfig], on=Mixtral): ...


class MixtralForSequenceClassification(decoder_heads.LastTokenClassifier[MixtralConfig], MixtralStates, on=Mixtral): ...


class MixtralForReranking(Reranker[MixtralConfig], MixtralForSequenceClassification, on=Mixtral): ...


class MixtralForTokenClassification(decoder_heads.TokenClassifier[MixtralConfig], MixtralStates, on=Mixtral): ...


class MixtralForQuestionAnswering(decoder_heads.QuestionAnswerer[MixtralConfig], MixtralStates, on=Mixtral): ...


if __name__ == "__main__":
    continue_text(Mixtral, "mixtral/base", 1, 11, 7)
