"""The Llama family: decoders with rotary positions, RMS norms and gated feed-forward layers.

Llama 2 and 3 (Touvron et al. 2023, Dubey et al. 2024), Mistral (Jiang et al. 2023) with its sliding window, Qwen2 (Yang
et al. 2024) with biases on queries, keys and values, Qwen3 (2025) with norms on the heads of queries and keys, SmolLM3
(2025) with layers without positions, Granite (2024) with multipliers, Helium (2025), which rotates neighbours, OLMo 2
(2024) with norms after attention and feed-forward layer instead of before, and on all queries and keys.

::

    llama = Llama.from_pretrained("folder with config.json and model.safetensors")
    logits = llama(lucid.tensor([[1, 15043, 3186]]))                  # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(llama, path="llama.onnx")                    # any batch, any length
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Self

import lucid
from lucid import DType, Tensor, nn, ops
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Auto, Checkpoint, Config, ConfigError
from lucid.models.checkpoints.sentence_files import LAST_TOKEN, SentenceLayer
from lucid.models.parts.decoders import PREFIXED, Angles, CausalLM, RotaryDecoder, angles_of
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, written
from lucid.models.parts.options import FULL, SLIDING, layer_types, rope, tied_output
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
    qk_norm: Literal["head", "all"] | None = None  # norms on queries and keys: of each head, or of all at once
    norm_after: bool = False  # the norms of a layer follow attention and feed-forward layer, and do not precede them
    rotated: tuple[bool, ...] = ()  # of each layer: whether queries and keys have rotary positions; () for all
    rope_interleaved: bool = False  # pairs of neighbours are rotated, not features of the two halves
    attention_multiplier: float | None = None  # of the scores; None for 1 / sqrt(head_dim)
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0  # of what a layer adds
    logits_scaling: float = 1.0  # logits are divided by it
    tied: bool = False  # the output layer is the table of embeddings
    dtype: DType = lucid.float32
    pad_token_id: int | None = None  # of a classifier of texts, which reads their last token
    num_labels: int = 0
    sentence_layers: tuple[SentenceLayer, ...] = LAST_TOKEN  # of a LlamaSentenceEncoder

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        kind = options.model_type
        width, heads = options.size("hidden_size"), options.size("num_attention_heads")
        kv_heads = options.heads("num_key_value_heads", heads) if options.is_known("num_key_value_heads") else heads
        head_dim = options.size("head_dim") if options.is_known("head_dim") else None
        if head_dim is None:
            head_dim = width // options.heads("num_attention_heads", width)
        if head_dim % 2:
            raise ConfigError(
                f"{options.where}: heads are {head_dim} wide, expected an even number: rotary positions turn pairs"
            )
        # Mistral and its kin have no biases; Qwen2 always has them on queries, keys and values.
        bias = kind not in ("mistral", "ministral", "mixtral", "qwen2")
        bias = bias and options.get("attention_bias", bool)
        o_bias = options.get("attention_out_bias", bool) if kind == "seed_oss" else bias and kind != "helium"
        mlp_bias = kind in ("llama", "smollm3", "granite", "helium", "seed_oss") and options.get("mlp_bias", bool)
        theta, scaling = rope(options)
        layers = options.layers("num_hidden_layers")
        rotated = _rotated(options, layers) if kind == "smollm3" else ()
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=width,
            intermediate_size=options.size("intermediate_size"),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            windows=_windows(options, layers, rotated),
            rope_theta=theta,
            rope_scaling=scaling,
            eps=options.real("rms_norm_eps"),
            activation=options.activation("hidden_act"),
            qkv_bias=bias or kind == "qwen2",
            o_bias=o_bias,
            mlp_bias=mlp_bias,
            qk_norm=_QK_NORMS.get(kind),
            norm_after=kind == "olmo2",
            rotated=rotated,
            rope_interleaved=kind == "helium",
            tied=tied_output(options),
            attention_multiplier=_multiplier(options, "attention_multiplier") if kind == "granite" else None,
            embedding_multiplier=_multiplier(options, "embedding_multiplier"),
            residual_multiplier=_multiplier(options, "residual_multiplier"),
            logits_scaling=_multiplier(options, "logits_scaling"),
        )


class Llama(CausalLM[LlamaConfig]):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.q_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["llama"],
        read=LlamaConfig.read,
        renames=PREFIXED,
        ignored_keys=[r"rotary_emb\.inv_freq$"],  # stored by older versions; computed here
        tied_keys={"lm_head.weight": "model.embed_tokens.weight"},
    )

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.model = self.decoder(config)
        self.lm_head = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, False, config.dtype)

    def decoder(self, config: LlamaConfig) -> Decoder:
        """The model without its output layer."""
        return Decoder(config)

    def logits(self, x: Tensor) -> Tensor:
        logits = super().logits(x)
        return logits if self.config.logits_scaling == 1 else logits / self.config.logits_scaling

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        dtype: DType | Auto = lucid.float32,
        *,
        dequantize: bool = False,
        ignore: Sequence[str] = (),
    ) -> Self:
        """As for every model, with parameters of an element type; weights stored in it are used without a copy."""
        kept = lucid.float32 if dtype == "auto" else dtype

        def read(options: Config) -> LlamaConfig:
            config: LlamaConfig = cls.checkpoint.read(options)
            return replace(config, dtype=kept)

        return cls._from_checkpoint(folder, read, dequantize, dtype, ignore=ignore)


class Decoder(RotaryDecoder):
    """The model without its output layer."""

    def __init__(self, c: LlamaConfig) -> None:
        embedding = nn.TiedEmbedding if c.tied else nn.Embedding
        self.embed_tokens = embedding(c.vocab_size, c.hidden_size, c.dtype)
        rotated = c.rotated or (True,) * len(c.windows)
        kind = NormAfterLayer if c.norm_after else Layer
        self.layers = [
            kind(c, window, turns, partial(self.feed_forward, c, layer))
            for layer, (window, turns) in enumerate(zip(c.windows, rotated, strict=True))
        ]
        self.norm = nn.RMSNorm(c.hidden_size, c.eps, dtype=c.dtype)
        self.rope = nn.RotaryEmbedding(c.head_dim, c.rope_theta, scaling=c.rope_scaling, dtype=c.dtype)
        self.multiplier = c.embedding_multiplier

    def feed_forward(self, c: LlamaConfig, layer: int) -> nn.Module:
        """That of one layer."""
        return nn.GatedMLP(c.hidden_size, c.intermediate_size, ACTIVATIONS[c.activation], c.mlp_bias, c.dtype)

    def embedded(self, input_ids: Tensor) -> Tensor:
        return _times(super().embedded(input_ids), self.multiplier)

    def angles(self, positions: Tensor, dtype: DType) -> Sequence[Angles]:
        return [angles_of(self.rope, positions, dtype)] * len(self.layers)


class Layer(nn.Module):
    """Attention, then the feed-forward layer, each after its norm, with a residual connection."""

    def __init__(self, c: LlamaConfig, window: int | None, rotated: bool, mlp: Callable[[], nn.Module]) -> None:
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.eps, dtype=c.dtype)
        self.self_attn = Attention(c, window, rotated)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.eps, dtype=c.dtype)
        self.mlp = mlp()
        self.multiplier = c.residual_multiplier

    def forward(
        self, x: Tensor, angles: Angles, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        y, cache = self.self_attn(self.input_layernorm(x), angles, key_mask, cache)
        x = x + _times(y, self.multiplier)
        return x + _times(self.mlp(self.post_attention_layernorm(x)), self.multiplier), cache


class NormAfterLayer(nn.Module):
    """The same with a norm on what attention and feed-forward layer add, instead of on what they read (OLMo 2)."""

    def __init__(self, c: LlamaConfig, window: int | None, rotated: bool, mlp: Callable[[], nn.Module]) -> None:
        self.self_attn = Attention(c, window, rotated)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.eps, dtype=c.dtype)
        self.mlp = mlp()
        self.post_feedforward_layernorm = nn.RMSNorm(c.hidden_size, c.eps, dtype=c.dtype)

    def forward(
        self, x: Tensor, angles: Angles, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        y, cache = self.self_attn(x, angles, key_mask, cache)
        x = x + self.post_attention_layernorm(y)
        return x + self.post_feedforward_layernorm(self.mlp(x)), cache


class Attention(nn.Module):
    """Causal attention of heads in groups: each group of query heads shares one key and value head."""

    def __init__(self, c: LlamaConfig, window: int | None, rotated: bool) -> None:
        self.config, self.window, self.rotated = c, window, rotated
        self.q_proj = nn.Linear(c.hidden_size, c.num_heads * c.head_dim, c.qkv_bias, c.dtype)
        self.k_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias, c.dtype)
        self.v_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias, c.dtype)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, c.o_bias, c.dtype)
        self.q_norm, self.k_norm = _norm(c, c.num_heads), _norm(c, c.num_kv_heads)

    def forward(
        self, x: Tensor, angles: Angles, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        c, heads, kv_heads = self.config, self.config.num_heads, self.config.num_kv_heads
        q, k = _normed(self.q_norm, self.q_proj(x), heads), _normed(self.k_norm, self.k_proj(x), kv_heads)
        if self.rotated:
            q = ops.rotary_embedding(q, *angles, heads=heads, interleaved=c.rope_interleaved)
            k = ops.rotary_embedding(k, *angles, heads=kv_heads, interleaved=c.rope_interleaved)
        options = {"heads": heads, "kv_heads": kv_heads, "scale": c.attention_multiplier, "window": self.window}
        y, cache = F.cached_attention(q, k, self.v_proj(x), cache, None, key_mask, is_causal=True, **options)
        return self.o_proj(y), cache


def _norm(c: LlamaConfig, heads: int) -> nn.RMSNorm | None:
    """The norm on queries or keys."""
    if c.qk_norm is None:
        return None
    return nn.RMSNorm(c.head_dim if c.qk_norm == "head" else heads * c.head_dim, c.eps, dtype=c.dtype)


def _normed(norm: nn.RMSNorm | None, x: Tensor, heads: int) -> Tensor:
    """A norm over (N, L, H * d), or over the width d of each head."""
    n, length, width = x.shape
    if norm is None or norm.normalized_shape == (width,):
        return x if norm is None else norm(x)
    return norm(x.reshape(n, length, heads, width // heads)).reshape(n, length, width)


def _times(x: Tensor, multiplier: float) -> Tensor:
    return x if multiplier == 1 else x * multiplier


# Reading config.json --------------------------------------------------------------------------------------------------

_QK_NORMS: dict[str, Literal["head", "all"]] = {"qwen3": "head", "qwen3_moe": "head", "olmo2": "all"}


def _windows(options: Config, layers: int, rotated: tuple[bool, ...]) -> tuple[int | None, ...]:
    """The window of each layer."""
    kind = options.model_type
    window = options.whole_or_none("sliding_window")
    if kind not in ("mistral", "ministral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "smollm3"):
        _no_windows(options, window, layers)
        return (None,) * layers
    if kind == "ministral":
        kinds = layer_types(options, layers, [FULL if window is None else SLIDING] * layers)
        return tuple(window if kind == SLIDING else None for kind in kinds)
    if kind in ("mistral", "mixtral"):
        layer_types(options, layers, [FULL] * layers)  # of caches, which the window has too
        return (window,) * layers
    slides = options.get("use_sliding_window", bool)
    if kind == "smollm3":  # layers may be named whether or not they slide by default
        kinds = layer_types(options, layers, [FULL if turns or not slides else SLIDING for turns in rotated])
        window = options.whole("sliding_window") if SLIDING in kinds else None
        return tuple(window if kind == SLIDING else None for kind in kinds)
    window = options.whole("sliding_window") if slides else None
    if kind == "qwen3_moe":  # in all layers or none
        return (window,) * layers
    first = options.whole("max_window_layers", low=0)
    kinds = layer_types(options, layers, [SLIDING if slides and i >= first else FULL for i in range(layers)])
    return tuple(window if kind == SLIDING else None for kind in kinds)


def _no_windows(options: Config, window: int | None, layers: int) -> None:
    """Require that no layer has a window: models of these types have none, but transformers' caches obey one."""
    if SLIDING in layer_types(options, layers, [FULL] * layers):
        raise options.wrong("layer_types", f"supported for {options.model_type}: {layers} of {FULL}")
    most = options.whole("max_position_embeddings")
    if window is not None and window < most and not options.has("layer_types"):
        raise options.wrong("sliding_window", f"supported for {options.model_type}: null, or {most} and more")


def _rotated(options: Config, layers: int) -> tuple[bool, ...]:
    """Which layers have rotary positions: those with 1, by default all but every fourth."""
    interval = options.whole("no_rope_layer_interval")
    marks = options.get("no_rope_layers", list, [int((i + 1) % interval != 0) for i in range(layers)])
    if len(marks) != layers or not all(mark in (0, 1) for mark in marks):
        raise options.wrong("no_rope_layers", f"expected {layers} of 0 or 1")
    return tuple(bool(mark) for mark in marks)


def _multiplier(options: Config, name: str) -> float:
    """One of Granite's multipliers; other models have none."""
    return options.real(name, low=1e-9) if options.model_type == "granite" else 1.0


def main() -> None:
    """Continue a text of token ids greedily with the exported model, and compare it with eager."""
    both = SideBySide(Llama.from_pretrained(checkpoint_folder("llama/llama3")))
    ids = written(lambda ids: both(ids, ones_like(ids)), lucid.tensor([[1, 11, 7]]))
    print(f"token ids {ids}, {both.verdict('logits')}")


if __name__ == "__main__":
    main()
