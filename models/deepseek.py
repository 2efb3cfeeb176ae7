"""DeepSeek-V2 and V3 (DeepSeek-AI 2024): latent attention with a small cache, and experts in groups.

::

    deepseek = Deepseek.from_pretrained("folder with config.json and model.safetensors")
    logits = deepseek(lucid.tensor([[1, 15043, 3186]]))               # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(deepseek, path="deepseek.onnx")              # any batch, any length

Keys and values of all heads come from one latent vector of a token, and one rotary part that all heads share. The cache
has these two instead: 576 numbers a token and layer in DeepSeek-V3, not 40,960. The products that would make keys and
values of the latents are applied to queries and outputs, so a step expands no earlier token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import lucid
from lucid import Tensor, nn, ops
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.checkpoints.registry import type_of
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import EXPERTS, PREFIXED, TIED, Angles, CausalLM, DecoderConfig
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import check_pairs, declared_flag, rope
from lucid.nn import functional as F
from lucid.nn.rope_scaling import RopeScaling, YarnScaling

_EPS = 1e-6  # of the norms of latents


@dataclass(frozen=True)
class Routing:
    """Which experts a token goes through."""

    # count, per_token: how many experts there are, and how many a token goes through.
    count: int
    per_token: int
    # width, shared: the inner width of an expert, and of those that see all tokens, as one.
    width: int
    shared: int
    first: int  # the first layer with experts
    # Whether scores are sigmoids, and what is added to them for the choice alone is a parameter; a group then counts by
    # its best two experts. Otherwise they are a softmax, and its best counts.
    sigmoid: bool
    # groups, kept: how many groups there are, and to how many a token's experts are limited.
    groups: int
    kept: int
    normalized: bool  # whether the weights of a token's experts add up to 1, before `factor` multiplies them
    factor: float


@dataclass(frozen=True)
class DeepseekConfig(DecoderConfig):
    """The sizes of a model; `head_dim` is that of the rotary part."""

    query_rank: int | None = None
    rank: int = 0  # of the latent vectors
    plain_dim: int = 0  # of the part of a head without positions
    value_dim: int = 0
    routing: Routing | None = None

    @classmethod
    def read(cls, options: Config) -> Self:
        declared = type_of(options.model_type)
        rules, parts = declared.options, declared.parts
        heads, head_dim = options.size("num_attention_heads"), options.size("qk_rope_head_dim")
        if options.is_known("num_key_value_heads") and options.whole("num_key_value_heads") != heads:
            raise options.wrong("num_key_value_heads", f"expected {heads}, as many as num_attention_heads")
        options.only("head_dim", head_dim)
        check_pairs(options, head_dim)
        positions = rope(options)
        plain_dim, bias = options.size("qk_nope_head_dim"), options.get("attention_bias", bool)
        interleaved = options.get("rope_interleave", bool) if options.is_known("rope_interleave") else parts.interleaved
        return cls.from_rows(
            options,
            num_kv_heads=1,
            head_dim=head_dim,
            rope=positions,
            parts=type(parts)(interleaved=interleaved),
            o_bias=bias,
            mlp_bias=declared_flag(options, rules.mlp_bias),
            attention_multiplier=_score_factor(positions.scaling) / (plain_dim + head_dim) ** 0.5,
            query_rank=None if options.is_null("q_lora_rank") else options.size("q_lora_rank"),
            rank=options.size("kv_lora_rank"),
            plain_dim=plain_dim,
            value_dim=options.size("v_head_dim"),
            routing=_routing(options),
        )

    def mixer(self, number: int) -> nn.Module:
        return LatentAttention(self)

    def feed_forward(self, number: int) -> nn.Module:
        routing = self.routing
        if routing is None or number < routing.first:
            return super().feed_forward(number)
        return GroupedExperts(self, routing)


class Deepseek(CausalLM[DeepseekConfig]):
    """Token ids to the logits of the token that follows each.

    State: the keys of Hugging Face's DeepseekV3ForCausalLM; the experts as transformers has them in memory,
    ``model.layers.3.mlp.experts.gate_up_proj`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["deepseek"],
        read=DeepseekConfig.read,
        ignored_options=["num_(mtp|nextn_predict)_layers"],
        stacked=EXPERTS,
        renames=PREFIXED,
        ignored_keys=[r"^model\.layers\.61\.", r"rotary_emb\.inv_freq$"],  # a layer that predicts the token after next
        tied_keys=TIED,
    )

    @property
    def cache_shape(self) -> nn.CacheShape:
        c = self.config
        return nn.CacheShape(len(self.model.layers), 1, c.rank, self.table.dtype, c.head_dim)


class LatentAttention(nn.Module):
    """Attention of all heads to one latent vector of each token, and its rotary part.

    The cache has the latent vectors as keys, and the rotary parts as values.
    """

    def __init__(self, c: DeepseekConfig) -> None:
        width, bias = c.num_heads * (c.plain_dim + c.head_dim), c.o_bias
        self.config = c
        if c.query_rank is None:
            self.q_proj = nn.Linear(c.hidden_size, width, False, c.dtype)
        else:
            self.q_a_proj = nn.Linear(c.hidden_size, c.query_rank, bias, c.dtype)
            self.q_a_layernorm = nn.RMSNorm(c.query_rank, _EPS, dtype=c.dtype)
            self.q_b_proj = nn.Linear(c.query_rank, width, False, c.dtype)
        self.kv_a_proj_with_mqa = nn.Linear(c.hidden_size, c.rank + c.head_dim, bias, c.dtype)
        self.kv_a_layernorm = nn.RMSNorm(c.rank, _EPS, dtype=c.dtype)
        self.kv_b_proj = HeadProjections(c)
        self.o_proj = nn.Linear(c.num_heads * c.value_dim, c.hidden_size, bias, c.dtype)

    def forward(
        self, x: Tensor, angles: Angles, growth: Tensor | None, key_mask: Tensor | None, cache: nn.Cache | None
    ) -> tuple[Tensor, nn.Cache | None]:
        c, (n, length, _) = self.config, x.shape
        q = self.q_proj(x) if c.query_rank is None else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = q.reshape(n, length, c.num_heads, c.plain_dim + c.head_dim).transpose(1, 2)
        plain, turned = q.split([c.plain_dim, c.head_dim], -1)
        latent, shared = self.kv_a_proj_with_mqa(x).unsqueeze(1).split([c.rank, c.head_dim], -1)
        latent = self.kv_a_layernorm(latent)
        turned, shared = (
            ops.rotary_embedding(part, *angles, interleaved=c.parts.interleaved) for part in (turned, shared)
        )
        query = ops.concat([self.kv_b_proj.to_latents(plain), turned], -1)
        if cache is not None:
            cache = cache._replace(key=ops.concat([cache.key, cache.value], -1), value=cache.key)
        y, cache = F.cached_attention(
            *(query, ops.concat([latent, shared], -1), latent, cache, None, key_mask),
            scale=c.attention_multiplier,
            is_causal=True,
        )
        if cache is not None:
            cache = cache._replace(key=cache.value, value=cache.key[..., c.rank :])
        y = self.kv_b_proj.to_values(y).transpose(1, 2)
        return self.o_proj(y.reshape(n, length, c.num_heads * c.value_dim)), cache


class HeadProjections(nn.Module):
    """The projections from latent vectors to keys and values of all heads, applied to queries and outputs instead."""

    def __init__(self, c: DeepseekConfig) -> None:
        self.heads, self.plain_dim, self.rank = c.num_heads, c.plain_dim, c.rank
        rows = c.num_heads * (c.plain_dim + c.value_dim)
        self.weight = nn.init.xavier_uniform_(nn.init.new_parameter(rows, c.rank, dtype=c.dtype))

    def to_latents(self, query: Tensor) -> Tensor:
        """(N, H, L, plain_dim) to (N, H, L, rank): its product with a latent is the query's with the key."""
        return query @ self._rows("keys", slice(None, self.plain_dim))

    def to_values(self, y: Tensor) -> Tensor:
        """(N, H, L, rank) to (N, H, L, value_dim)."""
        return y @ self._rows("values", slice(self.plain_dim, None)).mT

    def _rows(self, name: str, rows: slice) -> Tensor:
        """Some rows of each head."""
        heads = self.weight.reshape(self.heads, self.weight.shape[0] // self.heads, self.rank)
        return heads[:, rows].named_after(self.weight, f"[{name}]")


class GroupedExperts(nn.Module):
    """Experts in groups of which each token is limited to a few, and one more that sees all tokens."""

    def __init__(self, c: DeepseekConfig, r: Routing) -> None:
        self.routing = r
        self.gate = Router(c.hidden_size, r)
        self.experts = nn.GatedExperts(r.count, c.hidden_size, r.width, dtype=c.dtype)
        self.shared_experts = nn.GatedMLP(c.hidden_size, r.shared, bias=c.mlp_bias, dtype=c.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.experts(x, *self.gate(x)) + self.shared_experts(x)


class Router(nn.Module):
    """(..., hidden_size) to the experts of each token, (..., k), and their weights, which are float32."""

    def __init__(self, hidden_size: int, r: Routing) -> None:
        self.routing = r
        self.weight = nn.init.xavier_uniform_(nn.init.new_parameter(r.count, hidden_size))
        self.e_score_correction_bias = nn.Parameter(lucid.zeros(r.count)) if r.sigmoid else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        r, bias = self.routing, self.e_score_correction_bias
        logits = F.linear(x.astype(lucid.float32), self.weight.astype(lucid.float32))
        scores = logits.sigmoid() if r.sigmoid else logits.softmax(-1)
        choice = scores if bias is None else scores + bias
        if r.kept < r.groups:
            choice = self.within_groups(choice)
        indices = choice.topk(r.per_token)[1]
        weights = ops.take_along(scores, indices, axis=-1)
        if r.normalized:
            weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
        return indices, weights * r.factor

    def within_groups(self, choice: Tensor) -> Tensor:
        """The scores (..., count) of the best groups; those of other groups are hidden."""
        r = self.routing
        grouped = choice.reshape(*choice.shape[:-1], r.groups, r.count // r.groups)
        best = grouped.topk(2)[0].sum(-1) if r.sigmoid else grouped.amax(-1)
        chosen = best.topk(r.kept)[1].unsqueeze(-1) == lucid.arange(r.groups)
        return ops.where(chosen.any(-2).unsqueeze(-1), grouped, float("-inf")).reshape(choice.shape)


class DeepseekStates(decoder_heads.RotaryStates[DeepseekConfig], on=Deepseek): ...


class DeepseekForSequenceClassification(
    decoder_heads.LastTokenClassifier[DeepseekConfig], DeepseekStates, on=Deepseek
): ...


class DeepseekForReranking(Reranker[DeepseekConfig], DeepseekForSequenceClassification, on=Deepseek): ...


class DeepseekForTokenClassification(decoder_heads.TokenClassifier[DeepseekConfig], DeepseekStates, on=Deepseek): ...


# Reading config.json --------------------------------------------------------------------------------------------------


def _score_factor(scaling: RopeScaling | None) -> float:
    """The factor of the scores that goes with positions scaled for longer texts."""
    if isinstance(scaling, YarnScaling) and scaling.mscale_all_dim:
        return scaling.temperature(scaling.mscale_all_dim) ** 2
    return 1.0


def _routing(options: Config) -> Routing:
    """How tokens are routed to experts."""
    rules = type_of(options.model_type).options.experts
    assert rules is not None
    options.only("hidden_act", "silu")
    sigmoid = rules.scores == "sigmoid"
    count, width = options.size("n_routed_experts"), options.size(rules.width)
    groups = kept = 1
    grouped: dict[str, bool] = {"greedy": False, "group_limited_greedy": True}
    if sigmoid or options.choose("topk_method", grouped, "greedy"):
        groups = options.heads("n_group", count)
        kept = options.whole("topk_group", high=groups, why=", the number of groups")
    else:
        options.has("n_group")  # which is not read then
        options.has("topk_group")
    most, least = kept * (count // groups), 2 if sigmoid and kept < groups else 1
    if count // groups < least:
        raise options.wrong("n_group", f"expected groups of 2 or more of the {count} experts")
    return Routing(
        count=count,
        per_token=options.whole("num_experts_per_tok", high=most, why=", the experts of the groups of a token"),
        width=width,
        shared=width * options.size("n_shared_experts"),
        first=options.whole("first_k_dense_replace", low=0),
        sigmoid=sigmoid,
        groups=groups,
        kept=kept,
        normalized=declared_flag(options, rules.normalized),
        factor=options.real("routed_scaling_factor"),
    )


if __name__ == "__main__":
    continue_text(Deepseek, "deepseek_v3/base", 1, 11, 7)
