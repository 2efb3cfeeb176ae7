"""Llama's decoders whose feed-forward layers are mixtures of experts: each token goes through a few of many.

Mixtral (Jiang et al. 2024) is Mistral with 8 experts, 2 for each token; Qwen3-MoE (2025) is Qwen3 with 128 experts, 8
for each token. The weights of all experts of a layer are one array, as transformers holds them in memory; checkpoints
have them one by one.

::

    mixtral = Mixtral.from_pretrained("folder with config.json and model.safetensors")
    logits = mixtral(lucid.tensor([[1, 15043, 3186]]))                # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(mixtral, path="mixtral.onnx")                # any batch, any length
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import lucid
from lucid import nn
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.llama import Decoder, Llama, LlamaConfig
from lucid.models.parts.decoders import PREFIXED
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, written


@dataclass(frozen=True)
class MixtralConfig(LlamaConfig):
    """The sizes of a model; the defaults are Mixtral's 8x7B."""

    num_experts: int = 8
    experts_per_token: int = 2
    expert_size: int = 14336  # the inner width of one expert; intermediate_size is that of layers without experts
    normalized: bool = True  # the weights of a token's experts add up to 1
    sparse: tuple[bool, ...] = ()  # of each layer: whether it has experts; () for all

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        plain = super().read(options)
        mixtral = options.model_type == "mixtral"
        count = options.size("num_local_experts" if options.has("num_local_experts") else "num_experts")
        step = 1 if mixtral else options.whole("decoder_sparse_step")
        dense = [] if mixtral else options.get("mlp_only_layers", list, [])
        if not all(isinstance(layer, int) for layer in dense):
            raise options.wrong("mlp_only_layers", "expected numbers of layers")
        if options.activation("hidden_act") not in ("silu", "swish"):
            raise options.wrong("hidden_act", "supported: silu")
        return replace(
            plain,
            num_experts=count,
            experts_per_token=options.whole("num_experts_per_tok", high=count, why=", the number of experts"),
            expert_size=options.size("intermediate_size" if mixtral else "moe_intermediate_size"),
            normalized=mixtral or options.get("norm_topk_prob", bool),
            sparse=tuple((i + 1) % step == 0 and i not in dense for i in range(len(plain.windows))),
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
            "experts.gate_up_proj": ("experts.*.gate_proj.weight", "experts.*.up_proj.weight"),
            "experts.down_proj": ("experts.*.down_proj.weight",),
            "mlp.experts.gate_up_proj": (
                "block_sparse_moe.experts.*.w1.weight",
                "block_sparse_moe.experts.*.w3.weight",
            ),
            "mlp.experts.down_proj": ("block_sparse_moe.experts.*.w2.weight",),
        },
        renames=[*PREFIXED, (r"\.block_sparse_moe\.", ".mlp.")],
        tied_keys={"lm_head.weight": "model.embed_tokens.weight"},
    )

    def decoder(self, config: LlamaConfig) -> Decoder:
        return SparseDecoder(config)


class SparseDecoder(Decoder):
    """Llama's decoder with experts."""

    def feed_forward(self, c: LlamaConfig, layer: int) -> nn.Module:
        assert isinstance(c, MixtralConfig)
        if c.sparse and not c.sparse[layer]:
            return super().feed_forward(c, layer)
        return nn.MixtureOfExperts(
            c.num_experts, c.experts_per_token, c.hidden_size, c.expert_size, normalized=c.normalized, dtype=c.dtype
        )


def main() -> None:
    """Continue a text of token ids greedily with the exported model, and compare it with eager."""
    both = SideBySide(Mixtral.from_pretrained(checkpoint_folder("mixtral/base")))
    ids = written(lambda ids: both(ids, ones_like(ids)), lucid.tensor([[1, 11, 7]]))
    print(f"token ids {ids}, {both.verdict('logits')}")


if __name__ == "__main__":
    main()
