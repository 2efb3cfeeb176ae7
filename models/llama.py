"""Llama and its kin: decoders with rotary positions, RMS norms and gated feed-forward layers.

Llama 2 and 3 (Touvron et al. 2023, Dubey et al. 2024), Mistral (Jiang et al. 2023) with its sliding window, Qwen2 (Yang
et al. 2024) with biases on queries, keys and values, Qwen3 (2025) with norms on the heads of queries and keys.

::

    llama = Llama.from_pretrained("folder with config.json and model.safetensors")
    logits = llama(lucid.tensor([[1, 15043, 3186]]))                  # (N, L) to (N, L, vocabulary)
    lucid.export.to_onnx(llama, path="llama.onnx")                    # any batch, any length
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import lucid
from lucid import DType, Tensor, TensorType, nn, ops
from lucid.nn import functional as F
from lucid.nn import rope_scaling as scalings
from models._pretrained import ACTIVATIONS, Config, ConfigError, building, load_into


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes of a model, and what it uses of what its family knows."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...]  # of each layer: how many keys a query sees, itself included; None for all
    rope_theta: float = 10000.0
    rope_scaling: scalings.RopeScaling | None = None
    rms_norm_eps: float = 1e-6
    activation: Callable[[Tensor], Tensor] = F.silu
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False  # the output layer is the table of embeddings
    dtype: DType = lucid.float32

    @classmethod
    def read(cls, folder: str | os.PathLike[str], dtype: DType = lucid.float32) -> Self:
        """From config.json, option by option; an option that is not understood is an error that names it."""
        config = Config.read(folder, "llama", "mistral", "qwen2", "qwen3")
        kind = config.model_type
        width, heads = config.size("hidden_size"), config.size("num_attention_heads")
        # The defaults of these two differ from family to family, so where they are not plain they must be given.
        kv_heads = config.heads("num_key_value_heads", heads, *([heads] if kind == "llama" else []))
        if config.has("head_dim") or kind == "qwen3":
            head_dim = config.size("head_dim")
        else:
            head_dim = width // config.heads("num_attention_heads", width)
        if head_dim % 2:
            raise ConfigError(
                f"{config.where}: heads are {head_dim} wide, expected an even number: positions turn pairs"
            )
        # Mistral has no biases at all, and Qwen2 has its own by definition.
        bias = config.get("attention_bias", bool, False) if kind in ("llama", "qwen3") else False
        theta, scaling = _rope(config)
        made = cls(
            vocab_size=config.size("vocab_size"),
            hidden_size=width,
            intermediate_size=config.size("intermediate_size"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            windows=_windows(config, config.layers("num_hidden_layers")),
            rope_theta=theta,
            rope_scaling=scaling,
            rms_norm_eps=config.real("rms_norm_eps", 1e-6),
            activation=config.choose("hidden_act", ACTIVATIONS),
            qkv_bias=bias or kind == "qwen2",
            o_bias=bias,
            mlp_bias=config.get("mlp_bias", bool, False) if kind == "llama" else False,
            qk_norm=kind == "qwen3",
            tied=config.get("tie_word_embeddings", bool, False),
            dtype=dtype,
        )
        for variation in ("rope_interleaved", "use_mrope"):
            config.only(variation, False)
        config.done(ignore=["pretraining_tp", "is_llama_config"])  # the first: how the products are cut up
        return made


def _windows(config: Config, layers: int) -> tuple[int | None, ...]:
    """The window of each layer."""
    if config.model_type == "llama":
        return (None,) * layers
    window = config.whole("sliding_window", None)
    if config.model_type == "mistral":
        if "sliding_window" not in config.options:
            raise ConfigError(f"{config.where}: option sliding_window is missing, expected int, or null for none")
        return (window,) * layers
    slides, first = config.get("use_sliding_window", bool, False), config.whole("max_window_layers", 28, low=0)
    window = config.whole("sliding_window") if slides else None
    kinds = ["sliding_attention" if slides and i >= first else "full_attention" for i in range(layers)]
    kinds = config.get("layer_types", list, kinds)
    known = {"full_attention": None, "sliding_attention": window}
    if len(kinds) != layers or not all(isinstance(kind, str) and kind in known for kind in kinds):
        raise config.wrong("layer_types", f"supported: {layers} of {' or '.join(known)}")
    return tuple(known[kind] for kind in kinds)


def _rope(config: Config) -> tuple[float, scalings.RopeScaling | None]:
    """Base and scaling of the rotary positions, in the spelling of transformers 5 or in that before."""
    rope = config.section("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
    theta = rope.real("rope_theta", config.real("rope_theta", 10000.0, low=1.001), low=1.001)
    kind = rope.get("rope_type", str, rope.get("type", str, "default"))
    longest = config.whole("max_position_embeddings")
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


class Attention(nn.Module):
    """Causal attention of heads in groups: each group of query heads shares one key and value head."""

    def __init__(self, c: LlamaConfig, window: int | None) -> None:
        self.heads, self.kv_heads, self.window = c.heads, c.kv_heads, window
        self.q_proj = nn.Linear(c.hidden_size, c.heads * c.head_dim, c.qkv_bias, c.dtype)
        self.k_proj = nn.Linear(c.hidden_size, c.kv_heads * c.head_dim, c.qkv_bias, c.dtype)
        self.v_proj = nn.Linear(c.hidden_size, c.kv_heads * c.head_dim, c.qkv_bias, c.dtype)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden_size, c.o_bias, c.dtype)
        self.q_norm = nn.RMSNorm(c.head_dim, c.rms_norm_eps, dtype=c.dtype) if c.qk_norm else None
        self.k_norm = nn.RMSNorm(c.head_dim, c.rms_norm_eps, dtype=c.dtype) if c.qk_norm else None

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], key_mask: Tensor | None) -> Tensor:
        q = _by_head(self.q_norm, self.q_proj(x), self.heads)
        k = _by_head(self.k_norm, self.k_proj(x), self.kv_heads)
        q = ops.rotary_embedding(q, *angles, heads=self.heads)
        k = ops.rotary_embedding(k, *angles, heads=self.kv_heads)
        v = self.v_proj(x)
        y = ops.attention(
            q, k, v, None, key_mask, heads=self.heads, kv_heads=self.kv_heads, is_causal=True, window=self.window
        )
        return self.o_proj(y)


def _by_head(norm: nn.RMSNorm | None, x: Tensor, heads: int) -> Tensor:
    """A norm over the width of each head of (N, L, H * d)."""
    if norm is None:
        return x
    n, length, width = x.shape
    return norm(x.reshape(n, length, heads, width // heads)).reshape(n, length, width)


class Layer(nn.Module):
    """Attention, then the feed-forward layer, each behind its norm and beside the stream."""

    def __init__(self, c: LlamaConfig, window: int | None) -> None:
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps, dtype=c.dtype)
        self.self_attn = Attention(c, window)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps, dtype=c.dtype)
        self.mlp = nn.GatedMLP(c.hidden_size, c.intermediate_size, c.activation, c.mlp_bias, c.dtype)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], key_mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), angles, key_mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """The model below its output layer: (N, L) token ids to the list of (N, L, hidden_size) between the layers."""

    def __init__(self, c: LlamaConfig) -> None:
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size, c.dtype)
        self.layers = [Layer(c, window) for window in c.windows]
        self.norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps, dtype=c.dtype)
        self.rope = nn.RotaryEmbedding(c.head_dim, c.rope_theta, scaling=c.rope_scaling, dtype=c.dtype)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Tensor]:
        key_mask = None if attention_mask is None else attention_mask.astype(lucid.bool_)
        states = [self.embed_tokens(input_ids)]
        cos, sin = self.rope(lucid.arange(input_ids.shape[1]))
        angles = cos.astype(states[0].dtype), sin.astype(states[0].dtype)  # as the weights, also after to(...)
        for layer in self.layers:
            states.append(layer(states[-1], angles, key_mask))
        return states


class Llama(nn.Module):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.q_proj.weight`` and so on.
    """

    def __init__(self, config: LlamaConfig) -> None:
        self.config = config
        self.model = Decoder(config)
        self.lm_head = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, False, config.dtype)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits (N, L, vocab_size).

        Args:
            input_ids: (N, L) int64.
            attention_mask: (N, L) int64, 0 where a token is padding. Positions count from 0 at the first column.
        """
        x = self.model.norm(self.hidden_states(input_ids, attention_mask)[-1])
        return F.linear(x, self.model.embed_tokens.weight) if self.lm_head is None else self.lm_head(x)

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
        """What enters the first layer, and what each layer returns, (N, L, hidden_size) each."""
        return self.model(input_ids, attention_mask)

    def input_specs(self) -> Mapping[str, TensorType]:
        ids = lucid.spec("N", "L", dtype=lucid.int64)
        return {"input_ids": ids, "attention_mask": ids}

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], dtype: DType = lucid.float32) -> Self:
        """A checkpoint of Llama, Mistral, Qwen2 or Qwen3: config.json and model.safetensors, whole or sharded.

        Raises:
            ConfigError: for another architecture or an option that is not supported.
            KeyError: listing all weights that are missing, unexpected or of another shape.
        """
        config, arrays = LlamaConfig.read(folder, dtype), lucid.load(folder)
        with building(folder, arrays):
            llama = cls(config)
        load_into(
            llama,
            arrays,
            renames=[(r"^(?!model\.|lm_head\.)", "model.")],  # checkpoints of the decoder alone
            ignore=[r"rotary_emb\.inv_freq$"],  # stored once, computed now
            tied={"lm_head.weight": "model.embed_tokens.weight"} if llama.lm_head is None else None,
        )
        return llama


def main() -> None:
    """Continue a text of token ids greedily with the exported model, and compare it with eager."""
    tiny = Path(__file__).parents[1] / "tests" / "goldens" / "llama" / "llama3"
    llama = Llama.from_pretrained(sys.argv[1] if len(sys.argv) > 1 else tiny)
    session = lucid.runtime.Session(lucid.export.to_onnx(llama))
    ids, difference = lucid.tensor([[1, 11, 7]]), 0.0
    for _ in range(8):
        mask = lucid.ones(*ids.shape, dtype=lucid.int64)
        logits = session(ids, mask)
        difference = max(difference, abs(logits - llama(ids, mask)).max().item())
        ids = ops.concat([ids, logits[:, -1:].argmax()], 1)
    print(f"token ids {ids.tolist()[0]}, largest difference between exported and eager logits {difference:.1e}")


if __name__ == "__main__":
    main()
