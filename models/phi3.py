"""Phi-3 (Abdin et al. 2024) and Phi-4: decoders like Llama, with joined projections, for texts of up to 128k tokens.

::

    phi = Phi3.from_pretrained("folder with config.json and model.safetensors")
    logits = phi(lucid.tensor([[1, 15043, 3186]]))                    # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(phi, path="phi3.onnx")                       # any batch, any length

One product makes queries, keys and values, and one both halves of the gated network. LongRoPE stretches the rotary
positions of long texts; Phi-4-mini rotates a part of each head. Modules have the names of the published checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import lucid
from lucid import DType, Tensor, nn, ops
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.parts.decoders import PREFIXED, Angles, CausalLM, RotaryDecoder, angles_of
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, written
from lucid.models.parts.options import Rope, tied_output
from lucid.nn import functional as F
from lucid.nn.rope_scaling import LongRopeScaling


@dataclass(frozen=True)
class Phi3Config:
    """The sizes and options of a model."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    rope: Rope
    rotary_dim: int  # how many features of a head are rotated
    window: int | None = None  # how many keys a query sees, itself included; None for all
    eps: float = 1e-5
    activation: str = "silu"
    tied: bool = False  # the output layer is the table of embeddings
    pad_token_id: int | None = None  # of a classifier of texts, which reads their last token
    num_labels: int = 0

    @property
    def head_dim(self) -> int:
        """The width of a head."""
        return self.hidden_size // self.num_heads

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        width = options.size("hidden_size")
        heads = options.heads("num_attention_heads", width)
        for absent in ("attention_bias", "mlp_bias", "lm_head_bias"):
            options.only(absent, False)
        positions, rotary_dim = _rope(options, width // heads)
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=width,
            intermediate_size=options.size("intermediate_size"),
            num_layers=options.layers("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=options.heads("num_key_value_heads", heads, heads),
            rope=positions,
            rotary_dim=rotary_dim,
            window=options.whole("sliding_window", None),
            eps=options.real("rms_norm_eps"),
            activation=options.activation("hidden_act"),
            tied=tied_output(options),
        )


class Phi3(CausalLM[Phi3Config]):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.qkv_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["phi3"],
        read=Phi3Config.read,
        renames=PREFIXED,
        tied_keys={"lm_head.weight": "model.embed_tokens.weight"},
    )

    def __init__(self, config: Phi3Config) -> None:
        super().__init__(config)
        self.model = Decoder(config)
        self.lm_head = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)


class Decoder(RotaryDecoder):
    """The model without its output layer."""

    def __init__(self, c: Phi3Config) -> None:
        embedding = nn.TiedEmbedding if c.tied else nn.Embedding
        self.embed_tokens = embedding(c.vocab_size, c.hidden_size)
        self.layers = [Layer(c) for _ in range(c.num_layers)]
        self.norm = nn.RMSNorm(c.hidden_size, c.eps)
        theta, scaling = c.rope
        self.rope = nn.RotaryEmbedding(c.head_dim, theta, rotary_dim=c.rotary_dim, scaling=scaling)

    def angles(self, positions: Tensor, dtype: DType) -> Sequence[Angles]:
        return [angles_of(self.rope, positions, dtype)] * len(self.layers)


class Layer(nn.Module):
    """Attention, then the feed-forward network, each after its norm, with a residual connection."""

    def __init__(self, c: Phi3Config) -> None:
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.eps)
        self.mlp = FeedForward(c)

    def forward(
        self, x: Tensor, angles: Angles, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        y, cache = self.self_attn(self.input_layernorm(x), angles, key_mask, cache)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Attention(nn.Module):
    """Causal attention of heads in groups: each group of query heads shares one key and value head."""

    def __init__(self, c: Phi3Config) -> None:
        self.config, self.widths = c, [heads * c.head_dim for heads in (c.num_heads, c.num_kv_heads, c.num_kv_heads)]
        self.qkv_proj = nn.Linear(c.hidden_size, sum(self.widths), bias=False)
        self.o_proj = nn.Linear(c.hidden_size, c.hidden_size, bias=False)

    def forward(
        self, x: Tensor, angles: Angles, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        heads, kv_heads = self.config.num_heads, self.config.num_kv_heads
        q, k, v = self.qkv_proj(x).split(self.widths, -1)
        q = ops.rotary_embedding(q, *angles, heads=heads)
        k = ops.rotary_embedding(k, *angles, heads=kv_heads)
        y, cache = F.cached_attention(
            q, k, v, cache, None, key_mask, heads=heads, kv_heads=kv_heads, is_causal=True, window=self.config.window
        )
        return self.o_proj(y), cache


class FeedForward(nn.Module):
    """A gated network (Shazeer 2020); one product makes the gate, which is activated, and what it scales."""

    def __init__(self, c: Phi3Config) -> None:
        self.gate_up_proj = nn.Linear(c.hidden_size, 2 * c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(self.activation(gate) * up)


# Reading config.json --------------------------------------------------------------------------------------------------


def _rope(options: Config, head_dim: int) -> tuple[Rope, int]:
    """Base and scaling of the rotary positions, as transformers spells them, and how many features turn."""
    rope = options.section("rope_parameters" if options.has("rope_parameters") else "rope_scaling")
    rope.not_null("rope_theta", *([] if rope.has("rope_type") else ["rope_type", "type"]))
    theta = rope.real("rope_theta", options.real("rope_theta", low=1.001), low=1.001)
    part = rope.real("partial_rotary_factor", options.real("partial_rotary_factor", high=1.0), high=1.0)
    turned = int(head_dim * part)
    if turned < 2 or turned % 2:
        place = rope if rope.has("partial_rotary_factor") else options
        raise place.wrong("partial_rotary_factor", f"expected an even number of the {head_dim} features of a head")
    longest = options.whole("max_position_embeddings")
    rope.has("original_max_position_embeddings")  # that of the model comes first, and has a default
    trained = options.whole("original_max_position_embeddings", low=2)
    spelled = "rope_type" if rope.has("rope_type") else "type"
    kind = rope.get("rope_type", str, rope.get("type", str, "default"))  # transformers 5 writes both
    if kind == "default":
        return (theta, None), turned
    if kind not in ("longrope", "su"):  # the second: in the first published files
        raise rope.wrong(spelled, "supported: default, longrope")
    factor = max(1.0, rope.real("factor", longest / trained))
    short, long = (_factors(rope, name, turned // 2) for name in ("short_factor", "long_factor"))
    return (theta, LongRopeScaling(factor, short, long, trained, rope.real("attention_factor", None, low=1e-3))), turned


def _factors(rope: Config, name: str, count: int) -> tuple[float, ...]:
    """What divides each frequency."""
    numbers = rope.get(name, list)
    if len(numbers) != count or not all(type(n) in (int, float) and 1e-6 <= n <= 1e6 for n in numbers):
        raise rope.wrong(name, f"expected {count} positive numbers")
    return tuple(map(float, numbers))


def main() -> None:
    """Continue a text of token ids greedily with the exported model, and compare it with eager."""
    both = SideBySide(Phi3.from_pretrained(checkpoint_folder("phi3/base")))
    ids = written(lambda ids: both(ids, ones_like(ids)), lucid.tensor([[1, 11, 7]]))
    print(f"token ids {ids}, {both.verdict('logits')}")


if __name__ == "__main__":
    main()
