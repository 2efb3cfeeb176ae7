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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import lucid
from lucid import DType, Tensor, nn, ops
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config, ConfigError
from lucid.models.parts.decoders import PREFIXED, Angles, CausalLM, RotaryDecoder, angles_of
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, written
from lucid.models.parts.options import FULL, SLIDING, Rope, layer_types, rope, ropes, tied_output
from lucid.nn import functional as F


@dataclass(frozen=True)
class GemmaConfig:
    """The sizes of a model, and which of the family's features it has."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layer_types: tuple[str, ...]  # of each layer: SLIDING, which attends to a window, or FULL
    window: int  # how many keys a query sees there, itself included
    ropes: Mapping[str, Rope]  # rotary positions by type of layer
    attention_multiplier: float  # of the scores
    attention_softcap: float = 0.0  # 0: none
    logits_softcap: float = 0.0
    qk_norm: bool = False
    attention_bias: bool = False
    eps: float = 1e-6
    activation: str = "gelu_pytorch_tanh"
    tied: bool = True  # the output layer is the table of embeddings
    pad_token_id: int | None = None  # of a classifier of texts, which reads their last token
    num_labels: int = 0

    @classmethod
    def read(cls, options: Config) -> GemmaConfig:
        """From config.json."""
        third = options.model_type == "gemma3_text"
        layers, heads, head_dim = (
            options.layers("num_hidden_layers"),
            options.size("num_attention_heads"),
            options.size("head_dim"),
        )
        if head_dim % 2:
            raise ConfigError(
                f"{options.where}: heads are {head_dim} wide, expected an even number: rotary positions turn pairs"
            )
        options.only("use_bidirectional_attention", False)
        activation = options.activation("hidden_activation")
        every = options.whole("sliding_window_pattern") if third else 2
        if third:
            options.only("attn_logit_softcapping", None)
            positions = ropes(options, {FULL: "rope_theta", SLIDING: "rope_local_base_freq"})
        else:
            positions = dict.fromkeys((FULL, SLIDING), rope(options))
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=options.size("hidden_size"),
            intermediate_size=options.size("intermediate_size"),
            num_heads=heads,
            num_kv_heads=options.heads("num_key_value_heads", heads),
            head_dim=head_dim,
            layer_types=layer_types(
                options, layers, [FULL if i % every == every - 1 else SLIDING for i in range(layers)]
            ),
            window=options.whole("sliding_window"),
            ropes=positions,
            attention_multiplier=options.real("query_pre_attn_scalar", low=1e-3) ** -0.5,
            attention_softcap=0.0 if third else _softcap(options, "attn_logit_softcapping", 50.0),
            logits_softcap=_softcap(options, "final_logit_softcapping", 0.0 if third else 30.0),
            qk_norm=third,
            attention_bias=options.get("attention_bias", bool),
            eps=options.real("rms_norm_eps"),
            activation=activation,
            tied=tied_output(options),
        )


class Gemma(CausalLM[GemmaConfig]):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.q_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["gemma"],
        read=GemmaConfig.read,
        renames=PREFIXED,
        tied_keys={"lm_head.weight": "model.embed_tokens.weight"},
    )

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__(config)
        self.model = Decoder(config)
        self.lm_head = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def logits(self, x: Tensor) -> Tensor:
        logits = super().logits(x)
        if cap := self.config.logits_softcap:
            logits = (logits / cap).tanh() * cap
        return logits


class Decoder(RotaryDecoder):
    """The model without its output layer."""

    def __init__(self, c: GemmaConfig) -> None:
        embedding = nn.TiedEmbedding if c.tied else nn.Embedding
        self.embed_tokens = embedding(c.vocab_size, c.hidden_size)
        self.layer_types = c.layer_types
        self.layers = [Layer(c, kind) for kind in c.layer_types]
        self.norm = Norm(c.hidden_size, c.eps)
        self.ropes = {
            kind: nn.RotaryEmbedding(c.head_dim, theta, scaling=scaling)
            for kind, (theta, scaling) in c.ropes.items()
            if kind in c.layer_types
        }
        self.multiplier = math.sqrt(c.hidden_size)

    def embedded(self, input_ids: Tensor) -> Tensor:
        return super().embedded(input_ids) * self.multiplier

    def angles(self, positions: Tensor, dtype: DType) -> Sequence[Angles]:
        of_kind = {kind: angles_of(rope, positions, dtype) for kind, rope in self.ropes.items()}
        return [of_kind[kind] for kind in self.layer_types]


class Layer(nn.Module):
    """Attention, then the feed-forward network, each between two norms, with a residual connection."""

    def __init__(self, c: GemmaConfig, kind: str) -> None:
        self.input_layernorm = Norm(c.hidden_size, c.eps)
        self.self_attn = Attention(c, c.window if kind == SLIDING else None)
        self.post_attention_layernorm = Norm(c.hidden_size, c.eps)
        self.pre_feedforward_layernorm = Norm(c.hidden_size, c.eps)
        self.mlp = nn.GatedMLP(c.hidden_size, c.intermediate_size, ACTIVATIONS[c.activation])
        self.post_feedforward_layernorm = Norm(c.hidden_size, c.eps)

    def forward(
        self, x: Tensor, angles: Angles, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        y, cache = self.self_attn(self.input_layernorm(x), angles, key_mask, cache)
        x = x + self.post_attention_layernorm(y)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x))), cache


class Attention(nn.Module):
    """Causal attention of heads in groups: each group of query heads shares one key and value head."""

    def __init__(self, c: GemmaConfig, window: int | None) -> None:
        self.config, self.window = c, window
        self.q_proj = nn.Linear(c.hidden_size, c.num_heads * c.head_dim, c.attention_bias)
        self.k_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, c.attention_bias)
        self.v_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, c.attention_bias)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, c.attention_bias)
        self.q_norm, self.k_norm = (Norm(c.head_dim, c.eps) if c.qk_norm else None for _ in range(2))

    def forward(
        self, x: Tensor, angles: Angles, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        c, heads, kv_heads = self.config, self.config.num_heads, self.config.num_kv_heads
        q = ops.rotary_embedding(_by_head(self.q_norm, self.q_proj(x), heads), *angles, heads=heads)
        k = ops.rotary_embedding(_by_head(self.k_norm, self.k_proj(x), kv_heads), *angles, heads=kv_heads)
        options = {"scale": c.attention_multiplier, "softcap": c.attention_softcap, "window": self.window}
        y, cache = F.cached_attention(
            q, k, self.v_proj(x), cache, None, key_mask, heads=heads, kv_heads=kv_heads, is_causal=True, **options
        )
        return self.o_proj(y), cache


class Norm(nn.Module):
    """An RMS norm over the last axis, multiplied by 1 + weight."""

    def __init__(self, width: int, eps: float) -> None:
        self.weight, self.eps = nn.Parameter(lucid.zeros(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.weight, eps=self.eps, offset=1.0)


def _by_head(norm: Norm | None, x: Tensor, heads: int) -> Tensor:
    """A norm over the width of each head of (N, L, H * d)."""
    if norm is None:
        return x
    n, length, width = x.shape
    return norm(x.reshape(n, length, heads, width // heads)).reshape(n, length, width)


def _softcap(options: Config, name: str, default: float) -> float:
    """A soft cap: 0 where the option is null, the default where it is absent."""
    if not options.has(name):
        return 0.0 if name in options.options else default
    return options.real(name, low=1e-3)


def main() -> None:
    """Continue a text of token ids greedily with the exported model, and compare it with eager."""
    both = SideBySide(Gemma.from_pretrained(checkpoint_folder("gemma3/base")))
    ids = written(lambda ids: both(ids, ones_like(ids)), lucid.tensor([[1, 11, 7]]))
    print(f"token ids {ids}, {both.verdict('logits')}")


if __name__ == "__main__":
    main()
