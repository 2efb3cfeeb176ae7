"""The shared decoder with rotary positions: token ids, through layers with caches, to logits.

Llama, Gemma, Phi-3, Mixtral and many others are configs of it. A config says which parts it has: norms, positions,
attention, feed-forward networks, and what is added to the residual stream. A model only reads such a config from
config.json. The names of the weights are Hugging Face's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import lucid
from lucid import DType, Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.declarations import LLAMA_PARTS, DecoderParts
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Config, Pretrained
from lucid.models.checkpoints.registry import type_of
from lucid.models.checkpoints.sentence_files import LAST_TOKEN, SentenceLayer
from lucid.models.parts.options import USUAL_ROPE, Rope, read_head_dim, tied
from lucid.models.parts.options import rope as read_rope
from lucid.nn import functional as F

PREFIXED = [
    (r"^transformer\.", "model."),  # what some heads call their decoder
    (r"^(?!model\.|lm_head\.|score\.|qa_outputs\.|sentence_layers\.)", "model."),  # checkpoints of the decoder only
]
"""The `renames` of a checkpoint whose decoder is called model."""
TIED = {"lm_head.weight": "model.embed_tokens.weight"}
"""Its `tied_keys`."""
EXPERTS = {
    "experts.gate_up_proj": ("experts.*.gate_proj.weight", "experts.*.up_proj.weight"),
    "experts.down_proj": ("experts.*.down_proj.weight",),
}
"""Its `stacked` weights, if it has experts."""
TABLE = r"(?:\w+\.)?(?:embed_tokens|embed_in|word_embeddings)\.weight"
"""A regular expression for the key of the table of embeddings in checkpoints."""


Activation: TypeAlias = Callable[[Tensor], Tensor]


class Angles(NamedTuple):
    """The cosines and sines of the positions."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True)
class Experts:
    """Mixtures of experts: each token goes through a few of many feed-forward networks."""

    count: int  # the number of experts
    per_token: int  # the number of experts for each token
    width: int  # the inner width of one
    normalized: bool = True  # whether the weights of a token's experts add up to 1
    layers: tuple[bool, ...] = ()  # of each layer, whether it has experts; () for all
    shared: int = 0  # the inner width of one more that sees all tokens; 0 for none
    clamped: bool = False  # whether they have biases and the limited gates of gpt-oss


def _no_windows(options: Config, name: str) -> tuple[None, ...]:
    return (None,) * options.layers(name)


@dataclass(frozen=True)
class DecoderConfig(option.OptionTable):
    """The sizes and parts of a decoder. A reader gives the fields that its models spell in another way."""

    vocab_size: int = option.size("vocab_size")
    hidden_size: int = option.size("hidden_size")
    intermediate_size: int = option.size("intermediate_size")
    num_heads: int = option.size("num_attention_heads")
    num_kv_heads: int = option.heads("num_key_value_heads", of="num_heads")
    head_dim: int = option.row(read_head_dim, "head_dim")
    # Of each layer: how many keys a query sees, itself included; None for all.
    windows: tuple[int | None, ...] = option.row(_no_windows, "num_hidden_layers")
    causal: bool = True  # else a token also sees those after it; a window is then on both sides
    rope: Rope = option.row(read_rope, "rope_theta", USUAL_ROPE)
    eps: float = option.real("rms_norm_eps", 1e-6)
    activation: str = option.activation("hidden_act", "silu")
    parts: DecoderParts = option.row(lambda options, _: type_of(options.model_type).parts, "model_type", LLAMA_PARTS)
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    rotated: tuple[bool, ...] = ()  # of each layer: whether queries and keys have rotary positions; () for all
    rotary_dim: int | None = None  # how many features of a head are rotated; None for all
    query_growth: tuple[float, int] | None = None  # factors of queries: 1 + the first * log(1 + position // the second)
    qkv_clip: float | None = None  # the limit of the magnitude of queries, keys and values
    window_rope: Rope | None = None  # that of layers with a window, where they have another
    attention_multiplier: float | None = None  # of the scores; None for 1 / sqrt(head_dim)
    attention_softcap: float = 0.0  # 0: none
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0  # of what a layer adds
    logits_scaling: float = 1.0  # logits are divided by it
    logits_softcap: float = 0.0  # 0: none
    experts: Experts | None = None
    tied: bool = tied(table=TABLE)  # the output layer is the table of embeddings
    dtype: DType = lucid.float32
    pad_token_id: int | None = None  # of a classifier of texts, which reads their last token
    num_labels: int = 0
    sentence_layers: tuple[SentenceLayer, ...] = LAST_TOKEN  # of a sentence encoder

    def mixer(self, number: int) -> nn.Module:
        """The module that mixes the tokens in a layer: attention, or one with the same call."""
        return Attention(self, number)

    def feed_forward(self, number: int) -> nn.Module:
        """The feed-forward network of a layer."""
        return _feed_forward(self, number)


C = TypeVar("C", bound=DecoderConfig)
M = TypeVar("M")


class LanguageModel(Pretrained[M], nn.CausalDecoder):
    """Token ids to the logits of the token that follows each, from the states that `decode` returns."""

    takes_logits_to_keep = True
    lm_head: nn.Linear | None  # None: the output layer is the table of token vectors

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[Any] | None = None,
        logits_to_keep: int | Tensor | None = None,
    ) -> Tensor | tuple[Tensor, list[Any]]:
        """Logits (N, L, vocab_size); with a cache also the cache of all P + L positions.

        Args:
            input_ids: (N, L) int64, the new tokens.
            attention_mask: (N, P + L) int64, 0 where a token is padding.
            position_ids: (N, L) int64; by default they continue after the cache, or start at 0 in the first column.
            past_key_values: the cache of P earlier positions, of each layer; see `nn.CausalDecoder`.
            logits_to_keep: how many of the last positions get logits, or (N,) int64, the one position of each row that
                does; all by default.
        """
        states, present = self.decode(input_ids, attention_mask, position_ids, past_key_values)
        logits = self.logits(F.kept_positions(states, logits_to_keep))
        return logits if past_key_values is None else (logits, present)

    @abstractmethod
    def decode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        past_key_values: Sequence[Any] | None,
    ) -> tuple[Tensor, list[Any]]:
        """The input of `logits`, (N, L, hidden_size), and the new cache of each layer."""

    @property
    @abstractmethod
    def table(self) -> Tensor:
        """The vectors of all tokens, (vocab_size, hidden_size)."""

    def logits(self, x: Tensor) -> Tensor:
        """The output layer."""
        return F.linear(x, self.table) if self.lm_head is None else self.lm_head(x)


class WithOutputLayer(Pretrained[C]):
    """A decoder with rotary positions, and the layer that makes logits of its states.

    State: the keys of Hugging Face's ...ForCausalLM, ``model.layers.0.self_attn.o_proj.weight`` and so on.
    """

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self.model = Decoder(config)
        sizes = (config.hidden_size, config.vocab_size, config.parts.head_bias)
        self.lm_head = None if config.tied else nn.Linear(*sizes, config.dtype)

    @property
    def table(self) -> Tensor:
        """The vectors of all tokens, (vocab_size, hidden_size)."""
        return self.model.embed_tokens.weight

    def logits(self, x: Tensor) -> Tensor:
        """The logits of states before the last norm."""
        x = self.model.norm(x)
        logits = F.linear(x, self.table) if self.lm_head is None else self.lm_head(x)
        if self.config.logits_scaling != 1:
            logits = logits / self.config.logits_scaling
        cap = self.config.logits_softcap
        return (logits / cap).tanh() * cap if cap else logits


class CausalLM(WithOutputLayer[C], LanguageModel[C]):
    """Token ids to the logits of the token that follows each."""

    typed = True

    def decode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        past_key_values: Sequence[nn.Cache] | None,
    ) -> tuple[Tensor, list[nn.Cache]]:
        states, present = self.model(input_ids, attention_mask, position_ids, past_key_values)
        return states[-1], present

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, L, hidden_size) each."""
        states: list[Tensor] = self.model(input_ids, attention_mask)[0]
        return states

    @property
    def cache_shape(self) -> nn.CacheShape:
        c = self.config
        return nn.CacheShape(len(self.model.layers), c.num_kv_heads, c.head_dim, self.table.dtype)


class Decoder(nn.Module):
    """A model without its output layer: (N, L) token ids to the list of (N, L, hidden_size) between the layers, and the
    new cache of each layer if one is given. `norm` is applied to the last state, for the output layer.
    """

    def __init__(self, c: DecoderConfig) -> None:
        embedding = nn.TiedEmbedding if c.tied else nn.Embedding
        self.config = c
        self.embed_tokens = embedding(c.vocab_size, c.hidden_size, dtype=c.dtype)
        self.layers = [Layer(c, number) for number in range(len(c.windows))]
        self.norm = _norm(c, c.hidden_size)
        self.rope = _rope(c, c.rope)
        self.window_rope = None if c.window_rope is None else _rope(c, c.window_rope)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[nn.Cache] | None = None,
    ) -> tuple[list[Tensor], list[nn.Cache]]:
        return self.from_embeddings(self.embed(input_ids), attention_mask, position_ids, past_key_values)

    def embed(self, input_ids: Tensor) -> Tensor:
        """The input of the first layer."""
        return _times(self.embed_tokens(input_ids), self.config.embedding_multiplier)

    def from_embeddings(
        self,
        inputs_embeds: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[nn.Cache] | None = None,
    ) -> tuple[list[Tensor], list[nn.Cache]]:
        """As `forward`, from the input of the first layer, (N, L, hidden_size)."""
        caches = F.layer_caches(past_key_values, position_ids, len(self.layers))
        key_mask = F.cache_key_mask(attention_mask, caches)
        states, present = [inputs_embeds], []
        positions, dtype = F.cache_positions(inputs_embeds, position_ids, caches), inputs_embeds.dtype
        angles, growth = self.angles(positions, dtype), self.query_growth(positions, dtype)
        for layer, turns, cache in zip(self.layers, angles, caches, strict=True):
            state, cache = layer(states[-1], turns, growth, key_mask, cache)
            states.append(state)
            present.append(cache)
        return states, F.present_caches(past_key_values, present)

    def angles(self, positions: Tensor, dtype: DType) -> list[Angles]:
        """The rotary positions of each layer, in an element type."""
        own = angles_of(self.rope, positions, dtype)
        if self.window_rope is None:
            return [own] * len(self.layers)
        windowed = angles_of(self.window_rope, positions, dtype)
        return [own if window is None else windowed for window in self.config.windows]

    def query_growth(self, positions: Tensor, dtype: DType) -> Tensor | None:
        """The factors of queries, (N, L, 1); None without growth."""
        if self.config.query_growth is None:
            return None
        beta, step = self.config.query_growth
        growth = 1 + beta * (1 + positions // step).astype(lucid.float32).log()
        return growth.unsqueeze(-1).astype(dtype)


def angles_of(rope: nn.RotaryEmbedding, positions: Tensor, dtype: DType) -> Angles:
    """Cosines and sines in the element type of the weights, also after to(...)."""
    cos, sin = rope(positions)
    return Angles(cos.astype(dtype), sin.astype(dtype))


class Layer(nn.Module):
    """Attention and a feed-forward network, each with norms and a residual connection."""

    def __init__(self, c: DecoderConfig, number: int) -> None:
        def norm(*places: str) -> Norm | None:
            return _norm(c, c.hidden_size) if c.parts.norms in places else None

        self.norms, self.multiplier = c.parts.norms, c.residual_multiplier
        self.input_layernorm = norm("before", "around", "enclosing", "shared", "parallel")
        self.self_attn = c.mixer(number)
        self.post_self_attn_layernorm = norm("enclosing")
        self.post_attention_layernorm = norm("before", "after", "around", "enclosing", "parallel")
        self.pre_feedforward_layernorm = norm("around")
        self.mlp = c.feed_forward(number)
        self.post_feedforward_layernorm = norm("after", "around")
        self.post_mlp_layernorm = norm("enclosing")

    def forward(
        self, x: Tensor, angles: Angles, growth: Tensor | None, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        second = self.post_attention_layernorm
        after_attention, before_mlp, after_mlp = (
            (second, self.pre_feedforward_layernorm, self.post_feedforward_layernorm)
            if self.norms in ("after", "around")
            else (self.post_self_attn_layernorm, second, self.post_mlp_layernorm)
        )
        normed = _normed(self.input_layernorm, x)
        y, cache = self.self_attn(normed, angles, growth, key_mask, cache)
        if self.norms in ("shared", "parallel"):  # side by side
            y = y + self.mlp(normed if self.norms == "shared" else _normed(before_mlp, x))
            return x + _times(y, self.multiplier), cache
        x = x + _times(_normed(after_attention, y), self.multiplier)
        y = self.mlp(_normed(before_mlp, x))
        return x + _times(_normed(after_mlp, y), self.multiplier), cache


class Attention(nn.Module):
    """Causal attention of heads in groups: each group of query heads shares one key and value head."""

    def __init__(self, c: DecoderConfig, number: int) -> None:
        self.config, self.window, self.rotated = c, c.windows[number], not c.rotated or c.rotated[number]
        q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        if c.parts.qkv != "apart":
            self.qkv_proj = nn.Linear(c.hidden_size, q + 2 * kv, c.qkv_bias, c.dtype)
        else:
            self.q_proj = nn.Linear(c.hidden_size, 2 * q if c.parts.output_gate else q, c.qkv_bias, c.dtype)
            self.k_proj = nn.Linear(c.hidden_size, kv, c.qkv_bias, c.dtype)
            self.v_proj = nn.Linear(c.hidden_size, kv, c.qkv_bias, c.dtype)
        self.o_proj = nn.Linear(q, c.hidden_size, c.o_bias, c.dtype)
        self.sinks = nn.init.new_parameter(c.num_heads, dtype=c.dtype) if c.parts.sinks else None
        self.q_norm, self.k_norm = _head_norm(c, c.num_heads), _head_norm(c, c.num_kv_heads)

    def forward(
        self, x: Tensor, angles: Angles, growth: Tensor | None, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        c, heads, kv_heads = self.config, self.config.num_heads, self.config.num_kv_heads
        if c.parts.qkv == "joined":
            q, k, v = self.qkv_proj(x).split([count * c.head_dim for count in (heads, kv_heads, kv_heads)], -1)
        elif c.parts.qkv == "grouped":
            q, k, v = _ungrouped(self.qkv_proj(x), heads, kv_heads, c.head_dim)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        gate = None
        if c.parts.output_gate:
            q, gate = _halves(q, heads)
        if c.qkv_clip is not None:
            q, k, v = (part.clip(-c.qkv_clip, c.qkv_clip) for part in (q, k, v))
        q, k = _normed_heads(self.q_norm, q, heads), _normed_heads(self.k_norm, k, kv_heads)
        if self.rotated:
            q = ops.rotary_embedding(q, *angles, heads=heads, interleaved=c.parts.interleaved)
            k = ops.rotary_embedding(k, *angles, heads=kv_heads, interleaved=c.parts.interleaved)
        if growth is not None:
            q = q * growth
        options: dict[str, Any] = {"scale": c.attention_multiplier, "softcap": c.attention_softcap, "sinks": self.sinks}
        if not c.causal and self.window is not None:
            options["window_after"] = self.window - 1
        y, cache = F.cached_attention(
            *(q, k, v, cache, None, key_mask),
            **(options | {"heads": heads, "kv_heads": kv_heads, "is_causal": c.causal, "window": self.window}),
        )
        return self.o_proj(y if gate is None else y * gate.sigmoid()), cache


class JoinedGatedMLP(nn.Module):
    """A gated network (Shazeer 2020) like `nn.GatedMLP`; one product makes both the gate and the numbers it scales."""

    def __init__(self, dim: int, hidden_dim: int, activation: Activation, bias: bool, dtype: DType) -> None:
        self.gate_up_proj = nn.Linear(dim, 2 * hidden_dim, bias, dtype)
        self.down_proj = nn.Linear(hidden_dim, dim, bias, dtype)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(self.activation(gate) * up)


class PlainMLP(nn.Module):
    """down(activation(up(x)))."""

    def __init__(self, dim: int, hidden_dim: int, activation: Activation, bias: bool, dtype: DType) -> None:
        self.up_proj = nn.Linear(dim, hidden_dim, bias, dtype)
        self.down_proj = nn.Linear(hidden_dim, dim, bias, dtype)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.activation(self.up_proj(x)))


class SharedExperts(nn.MixtureOfExperts):
    """Experts, and a shared one that sees all tokens through a gate of its own."""

    def __init__(self, c: DecoderConfig, e: Experts) -> None:
        super().__init__(e.count, e.per_token, c.hidden_size, e.width, normalized=e.normalized, dtype=c.dtype)
        self.shared_expert = nn.GatedMLP(c.hidden_size, e.shared, dtype=c.dtype)
        self.shared_expert_gate = nn.Linear(c.hidden_size, 1, False, c.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.shared_expert_gate(x).sigmoid() * self.shared_expert(x)


class ClampedExperts(nn.Module):
    """The experts of gpt-oss: with biases and clamped gates; rows of gates alternate with the rows that they scale."""

    def __init__(self, c: DecoderConfig, e: Experts) -> None:
        def parameter(*shape: int) -> nn.Parameter:
            return nn.init.new_parameter(e.count, *shape, dtype=c.dtype)

        self.k = e.per_token
        self.router = nn.Linear(c.hidden_size, e.count, True, c.dtype)
        self.gate_up, self.gate_up_bias = parameter(2 * e.width, c.hidden_size), parameter(2 * e.width)
        self.down, self.down_bias = parameter(c.hidden_size, e.width), parameter(c.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.gate_up, self.down, self.gate_up_bias, self.down_bias)
        return ops.mixture_of_experts(x, self.router(x), *weights, k=self.k, activation="clamped_swiglu")


class OffsetNorm(nn.Module):
    """A norm over the last axis, multiplied by offset + weight: an RMS norm, or a layer norm with a bias."""

    def __init__(
        self, width: int, eps: float, offset: float, dtype: DType = lucid.float32, layer: bool = False
    ) -> None:
        self.weight, self.eps, self.offset = nn.Parameter(lucid.zeros(width, dtype=dtype)), eps, offset
        self.bias = nn.Parameter(lucid.zeros(width, dtype=dtype)) if layer else None

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is not None:
            return ops.layer_norm(x, self.weight + self.offset, self.bias, eps=self.eps)
        return ops.rms_norm(x, self.weight, eps=self.eps, offset=self.offset)


class HeadsNorm(nn.Module):
    """A layer norm of each head, (..., H, d) to (..., H, d), without a bias and with weights for each head."""

    def __init__(self, heads: int, width: int, eps: float, dtype: DType = lucid.float32) -> None:
        self.weight, self.eps = nn.Parameter(lucid.ones(heads, width, dtype=dtype)), eps

    def forward(self, x: Tensor) -> Tensor:
        return ops.layer_norm(x, eps=self.eps) * self.weight


Norm: TypeAlias = nn.RMSNorm | nn.LayerNorm | OffsetNorm


def _norm(c: DecoderConfig, width: int) -> Norm:
    kind = c.parts.norm
    if c.parts.norm_offset:
        return OffsetNorm(width, c.eps, c.parts.norm_offset, c.dtype, kind == "layer")
    if kind == "rms":
        return nn.RMSNorm(width, c.eps, dtype=c.dtype)
    return nn.LayerNorm(width, c.eps, kind != "without_weights", kind != "without_bias", c.dtype)


def _head_norm(c: DecoderConfig, heads: int) -> Norm | HeadsNorm | None:
    """The norm on queries or keys."""
    if c.parts.qk_norm is None:
        return None
    if c.parts.qk_norm == "each":
        return HeadsNorm(heads, c.head_dim, c.eps, c.dtype)
    return _norm(c, c.head_dim if c.parts.qk_norm == "head" else heads * c.head_dim)


def _rope(c: DecoderConfig, rope: Rope) -> nn.RotaryEmbedding:
    return nn.RotaryEmbedding(c.head_dim, rope.theta, rotary_dim=c.rotary_dim, scaling=rope.scaling, dtype=c.dtype)


def _feed_forward(c: DecoderConfig, number: int) -> nn.Module:
    """The feed-forward network of one layer."""
    experts = c.experts
    if experts is not None and (not experts.layers or experts.layers[number]):
        if experts.clamped:
            return ClampedExperts(c, experts)
        if experts.shared:
            return SharedExperts(c, experts)
        sizes = (experts.count, experts.per_token, c.hidden_size, experts.width)
        return nn.MixtureOfExperts(*sizes, normalized=experts.normalized, dtype=c.dtype)
    networks: dict[str, Callable[..., nn.Module]] = {"joined": JoinedGatedMLP, "plain": PlainMLP, "gated": nn.GatedMLP}
    activation = ACTIVATIONS[c.activation]
    return networks[c.parts.mlp](c.hidden_size, c.intermediate_size, activation, c.mlp_bias, c.dtype)


def _normed(norm: nn.Module | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


def _normed_heads(norm: Norm | HeadsNorm | None, x: Tensor, heads: int) -> Tensor:
    """A norm over (N, L, H * d), or over the width d of each head."""
    n, length, width = x.shape
    weight = None if norm is None else norm.weight
    if norm is None or weight is None or weight.shape == (width,):
        return _normed(norm, x)
    return norm(x.reshape(n, length, heads, width // heads)).reshape(n, length, width)


def _ungrouped(qkv: Tensor, heads: int, kv_heads: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, (N, L, H * d) each, from a product that holds the three of each group side by side."""
    n, length, _ = qkv.shape
    share = heads // kv_heads
    parts = qkv.reshape(n, length, kv_heads, (share + 2) * width).split([share * width, width, width], -1)
    q, k, v = (part.reshape(n, length, part.shape[-1] * kv_heads) for part in parts)
    return q, k, v


def _halves(x: Tensor, heads: int) -> Sequence[Tensor]:
    """Both halves of each head, (N, L, H * d) each."""
    n, length, width = x.shape
    halves = x.reshape(n, length, heads, width // heads).chunk(2, -1)
    return [half.reshape(n, length, width // 2) for half in halves]


def _times(x: Tensor, multiplier: float) -> Tensor:
    return x if multiplier == 1 else x * multiplier
