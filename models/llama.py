"""The Llama family: decoders with rotary positions, RMS norms and gated feed-forward layers.

Llama 2 and 3 (Touvron et al. 2023, Dubey et al. 2024), Mistral (Jiang et al. 2023) with its sliding window, Qwen2 (Yang
et al. 2024) with biases on queries, keys and values, Qwen3 (2025) with norms on the heads of queries and keys.

::

    llama = Llama.from_pretrained("folder with config.json and model.safetensors")
    logits = llama(lucid.tensor([[1, 15043, 3186]]))                  # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(llama, path="llama.onnx")                    # any batch, any length
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import lucid
from lucid import DType, Tensor, nn, ops
from lucid.models._demonstration import SideBySide, checkpoint_folder, ones_like, written
from lucid.models._pretrained import ACTIVATIONS, Auto, Checkpoint, Config, ConfigError, Pretrained
from lucid.nn import functional as F
from lucid.nn import rope_scaling as scalings


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes of a model, and which of the family's features it has."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...]  # of each layer: how many keys a query sees, itself included; None for all
    rope_theta: float = 10000.0
    rope_scaling: scalings.RopeScaling | None = None
    eps: float = 1e-6
    activation: str = "silu"
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False  # the output layer is the table of embeddings
    dtype: DType = lucid.float32

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        kind = options.model_type
        width, heads = options.size("hidden_size"), options.size("num_attention_heads")
        # The defaults of these two differ between families, so where they are not obvious they are required.
        kv_heads = options.heads("num_key_value_heads", heads, *([heads] if kind == "llama" else []))
        if options.has("head_dim") or kind == "qwen3":
            head_dim = options.size("head_dim")
        else:
            head_dim = width // options.heads("num_attention_heads", width)
        if head_dim % 2:
            raise ConfigError(
                f"{options.where}: heads are {head_dim} wide, expected an even number: rotary positions turn pairs"
            )
        # Mistral has no biases; Qwen2 always has them on queries, keys and values.
        bias = options.get("attention_bias", bool, False) if kind in ("llama", "qwen3") else False
        theta, scaling = _rope(options)
        for variation in ("rope_interleaved", "use_mrope"):
            options.only(variation, False)
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=width,
            intermediate_size=options.size("intermediate_size"),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            windows=_windows(options, options.layers("num_hidden_layers")),
            rope_theta=theta,
            rope_scaling=scaling,
            eps=options.real("rms_norm_eps", 1e-6),
            activation=options.activation("hidden_act"),
            qkv_bias=bias or kind == "qwen2",
            o_bias=bias,
            mlp_bias=options.get("mlp_bias", bool, False) if kind == "llama" else False,
            qk_norm=kind == "qwen3",
            tied=options.get("tie_word_embeddings", bool, False),
        )


class Llama(Pretrained[LlamaConfig], nn.CausalDecoder):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.q_proj.weight`` and so on.
    """

    takes_logits_to_keep = True
    checkpoint = Checkpoint(
        model_types=("llama", "mistral", "qwen2", "qwen3"),
        read=LlamaConfig.read,
        ignored_options=["pretraining_tp", "is_llama_config"],  # the first: how products are split
        renames=[(r"^(?!model\.|lm_head\.)", "model.")],  # checkpoints of the decoder only
        ignored_keys=[r"rotary_emb\.inv_freq$"],  # stored by older versions; computed here
        tied_keys={"lm_head.weight": "model.embed_tokens.weight"},
    )

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.model = Decoder(config)
        self.lm_head = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, False, config.dtype)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[nn.Cache] | None = None,
        logits_to_keep: int | Tensor | None = None,
    ) -> Tensor | tuple[Tensor, list[nn.Cache]]:
        """Logits (N, L, vocab_size); with a cache also the cache of all P + L positions.

        Args:
            input_ids: (N, L) int64, the new tokens.
            attention_mask: (N, P + L) int64, 0 where a token is padding.
            position_ids: (N, L) int64; by default they continue after the cache, or start at 0 in the first column.
            past_key_values: the cache of P earlier positions; see `nn.CausalDecoder`.
            logits_to_keep: how many of the last positions get logits, or (N,) int64, the one position of each row that
                does; all by default.
        """
        states, present = self.model(input_ids, attention_mask, position_ids, past_key_values)
        x = self.model.norm(F.kept_positions(states[-1], logits_to_keep))
        logits = F.linear(x, self.model.embed_tokens.weight) if self.lm_head is None else self.lm_head(x)
        return logits if past_key_values is None else (logits, present)

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, L, hidden_size) each."""
        return self.model(input_ids, attention_mask)[0]

    @property
    def cache_shape(self) -> nn.CacheShape:
        c = self.config
        return nn.CacheShape(len(c.windows), c.num_kv_heads, c.head_dim, self.model.embed_tokens.weight.dtype)

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], dtype: DType | Auto = lucid.float32, *, dequantize: bool = False
    ) -> Self:
        """As for every model, with parameters of an element type; weights stored in it are used without a copy."""
        kept = lucid.float32 if dtype == "auto" else dtype

        def read(options: Config) -> LlamaConfig:
            return replace(LlamaConfig.read(options), dtype=kept)

        return cls._from_checkpoint(folder, read, dequantize, dtype)


class Decoder(nn.Module):
    """The model without its output layer: (N, L) token ids to the list of (N, L, hidden_size) between the layers.

    If a cache is given, the cache of each layer too.
    """

    def __init__(self, c: LlamaConfig) -> None:
        embedding = nn.TiedEmbedding if c.tied else nn.Embedding
        self.embed_tokens = embedding(c.vocab_size, c.hidden_size, c.dtype)
        self.layers = [Layer(c, window) for window in c.windows]
        self.norm = nn.RMSNorm(c.hidden_size, c.eps, dtype=c.dtype)
        self.rope = nn.RotaryEmbedding(c.head_dim, c.rope_theta, scaling=c.rope_scaling, dtype=c.dtype)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[nn.Cache] | None = None,
    ) -> tuple[list[Tensor], list[nn.Cache]]:
        caches = F.layer_caches(past_key_values, position_ids, len(self.layers))
        key_mask = F.cache_key_mask(attention_mask, caches)
        states, present = [self.embed_tokens(input_ids)], []
        cos, sin = self.rope(F.cache_positions(input_ids, position_ids, caches))
        angles = cos.astype(states[0].dtype), sin.astype(states[0].dtype)  # as the weights, also after to(...)
        for layer, cache in zip(self.layers, caches, strict=True):
            state, cache = layer(states[-1], angles, key_mask, cache)
            states.append(state)
            present.append(cache)
        return states, F.present_caches(past_key_values, present)


class Layer(nn.Module):
    """Attention, then the feed-forward layer, each after its norm, with a residual connection."""

    def __init__(self, c: LlamaConfig, window: int | None) -> None:
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.eps, dtype=c.dtype)
        self.self_attn = Attention(c, window)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.eps, dtype=c.dtype)
        self.mlp = nn.GatedMLP(c.hidden_size, c.intermediate_size, ACTIVATIONS[c.activation], c.mlp_bias, c.dtype)

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        y, cache = self.self_attn(self.input_layernorm(x), angles, key_mask, cache)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Attention(nn.Module):
    """Causal attention of heads in groups: each group of query heads shares one key and value head."""

    def __init__(self, c: LlamaConfig, window: int | None) -> None:
        self.num_heads, self.num_kv_heads, self.window = c.num_heads, c.num_kv_heads, window
        self.q_proj = nn.Linear(c.hidden_size, c.num_heads * c.head_dim, c.qkv_bias, c.dtype)
        self.k_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias, c.dtype)
        self.v_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias, c.dtype)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, c.o_bias, c.dtype)
        self.q_norm = nn.RMSNorm(c.head_dim, c.eps, dtype=c.dtype) if c.qk_norm else None
        self.k_norm = nn.RMSNorm(c.head_dim, c.eps, dtype=c.dtype) if c.qk_norm else None

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        heads, kv_heads = self.num_heads, self.num_kv_heads
        q = ops.rotary_embedding(_by_head(self.q_norm, self.q_proj(x), heads), *angles, heads=heads)
        k = ops.rotary_embedding(_by_head(self.k_norm, self.k_proj(x), kv_heads), *angles, heads=kv_heads)
        v = self.v_proj(x)
        y, cache = F.cached_attention(
            q, k, v, cache, None, key_mask, heads=heads, kv_heads=kv_heads, is_causal=True, window=self.window
        )
        return self.o_proj(y), cache


def _by_head(norm: nn.RMSNorm | None, x: Tensor, heads: int) -> Tensor:
    """A norm over the width of each head of (N, L, H * d)."""
    if norm is None:
        return x
    n, length, width = x.shape
    return norm(x.reshape(n, length, heads, width // heads)).reshape(n, length, width)


# Reading config.json --------------------------------------------------------------------------------------------------


def _windows(options: Config, layers: int) -> tuple[int | None, ...]:
    """The window of each layer."""
    if options.model_type == "llama":
        return (None,) * layers
    window = options.whole("sliding_window", None)
    if options.model_type == "mistral":
        if "sliding_window" not in options.options:
            raise ConfigError(f"{options.where}: option sliding_window is missing, expected int, or null for none")
        return (window,) * layers
    slides, first = options.get("use_sliding_window", bool, False), options.whole("max_window_layers", 28, low=0)
    window = options.whole("sliding_window") if slides else None
    kinds = ["sliding_attention" if slides and i >= first else "full_attention" for i in range(layers)]
    kinds = options.get("layer_types", list, kinds)
    known = {"full_attention": None, "sliding_attention": window}
    if len(kinds) != layers or not all(isinstance(kind, str) and kind in known for kind in kinds):
        raise options.wrong("layer_types", f"supported: {layers} of {' or '.join(known)}")
    return tuple(known[kind] for kind in kinds)


def _rope(options: Config) -> tuple[float, scalings.RopeScaling | None]:
    """Base and scaling of the rotary positions, as transformers 5 or earlier versions spell them."""
    rope = options.section("rope_parameters" if options.has("rope_parameters") else "rope_scaling")
    theta = rope.real("rope_theta", options.real("rope_theta", 10000.0, low=1.001), low=1.001)
    kind = rope.get("rope_type", str, rope.get("type", str, "default"))
    longest = options.whole("max_position_embeddings")
    if kind == "default":
        return theta, None
    factor = rope.real("factor", low=1.0)
    if kind == "linear":
        return theta, scalings.LinearScaling(factor)
    if kind == "dynamic":
        return theta, scalings.DynamicNTKScaling(factor, longest)
    trained = rope.whole("original_max_position_embeddings", longest)
    if kind == "llama3":
        low, high = rope.real("low_freq_factor", low=1e-3), rope.real("high_freq_factor", low=1e-3)
        if low >= high:
            raise rope.wrong("low_freq_factor", f"expected less than high_freq_factor, which is {high:g}")
        return theta, scalings.Llama3Scaling(factor, low, high, trained)
    if kind == "yarn":
        names = ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim")
        given = {
            name: rope.real(name, low=1e-3 if name.startswith("beta") else 0.0) for name in names if rope.has(name)
        }
        return theta, scalings.YarnScaling(factor, trained, truncate=rope.get("truncate", bool, True), **given)
    raise rope.wrong(
        "rope_type" if rope.has("rope_type") else "type", "supported: default, linear, dynamic, llama3, yarn"
    )


def main() -> None:
    """Continue a text of token ids greedily with the exported model, and compare it with eager."""
    both = SideBySide(Llama.from_pretrained(checkpoint_folder("llama/llama3")))
    ids = written(lambda ids: both(ids, ones_like(ids)), lucid.tensor([[1, 11, 7]]))
    print(f"token ids {ids}, {both.verdict('logits')}")


if __name__ == "__main__":
    main()
