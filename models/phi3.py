"""Phi-3 (Abdin et al. 2024) and Phi-4: decoders like Llama, with joined projections, for texts of up to 128k tokens.

::

    phi = Phi3.from_pretrained("folder with config.json and model.safetensors")
    logits = phi(lucid.tensor([[1, 15043, 3186]]))                    # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(phi, path="phi3.onnx")                       # any batch, any length

One product makes queries, keys and values, and one both halves of the gated network. LongRoPE stretches the rotary
positions of long texts; Phi-4-mini rotates a part of each head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import PREFIXED, TIED, CausalLM, DecoderConfig
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import Rope, rope_theta, rope_type, rotary_dim
from lucid.nn.rope_scaling import LongRopeScaling


@dataclass(frozen=True)
class Phi3Config(DecoderConfig):
    """The sizes and options of a model."""

    @classmethod
    def read(cls, options: Config) -> Self:
        width = options.size("hidden_size")
        heads = options.heads("num_attention_heads", width)
        for absent in ("attention_bias", "mlp_bias", "lm_head_bias"):
            options.only(absent, False)
        layers, (positions, rotary_dim) = options.layers("num_hidden_layers"), _rope(options, width // heads)
        return cls.from_rows(
            options,
            num_heads=heads,
            num_kv_heads=options.heads("num_key_value_heads", heads, heads),
            head_dim=width // heads,
            windows=(options.whole("sliding_window", None),) * layers,
            rope=positions,
            rotary_dim=rotary_dim,
        )


class Phi3(CausalLM[Phi3Config]):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.qkv_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["phi3"],
        read=Phi3Config.read,
        renames=PREFIXED,
        tied_keys=TIED,
    )


class Phi3States(decoder_heads.RotaryStates[Phi3Config], on=Phi3): ...


class Phi3ForSequenceClassification(decoder_heads.LastTokenClassifier[Phi3Config], Phi3States, on=Phi3): ...


class Phi3ForReranking(Reranker[Phi3Config], Phi3ForSequenceClassification, on=Phi3): ...


class Phi3ForTokenClassification(decoder_heads.TokenClassifier[Phi3Config], Phi3States, on=Phi3): ...


# Reading config.json --------------------------------------------------------------------------------------------------


def _rope(options: Config, head_dim: int) -> tuple[Rope, int]:
    """Base and scaling of the rotary positions, as transformers spells them, and how many features turn."""
    rope = options.section("rope_parameters" if options.has("rope_parameters") else "rope_scaling")
    kind, name = rope_type(rope)
    theta, turned = rope_theta(rope, options), rotary_dim(options, rope, head_dim)
    longest = options.whole("max_position_embeddings")
    rope.has("original_max_position_embeddings")  # that of the model comes first, and has a default
    trained = options.whole("original_max_position_embeddings", low=2)
    if kind == "default":
        return Rope(theta), turned
    if kind not in ("longrope", "su"):  # the second: in the first published files
        raise rope.wrong(name, "supported: default, longrope")
    factor = max(1.0, rope.real("factor", longest / trained))
    short, long = (_factors(rope, each, turned // 2) for each in ("short_factor", "long_factor"))
    scaling = LongRopeScaling(factor, short, long, trained, rope.real("attention_factor", None, low=1e-3))
    return Rope(theta, scaling), turned


def _factors(rope: Config, name: str, count: int) -> tuple[float, ...]:
    """The divisor of each frequency."""
    numbers = rope.get(name, list)
    if len(numbers) != count or not all(type(n) in (int, float) and 1e-6 <= n <= 1e6 for n in numbers):
        raise rope.wrong(name, f"expected {count} positive numbers")
    return tuple(map(float, numbers))


if __name__ == "__main__":
    continue_text(Phi3, "phi3/base", 1, 11, 7)
