"""Qwen3-Next (2025) and the text model of Qwen3.5 (2026): linear attention by the gated delta rule, full attention in
every fourth layer.

::

    qwen = Qwen3Next.from_pretrained("folder with config.json and model.safetensors")
    logits = qwen(lucid.tensor([[1, 15043, 3186]]))                   # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(qwen, path="qwen.onnx")                      # any batch, any length
    lucid.export.to_onnx(qwen, path="step.onnx", cache="growing")     # states; keys and values of full attention

A layer of linear attention keeps a matrix for each head, which maps keys to values (Yang et al. 2024, "Gated Delta
Networks"). Each token lets it decay, and corrects what it answers to the token's key. Chunks of tokens are computed by
products of matrices, the rest of a text token by token. Modules have Llama's names: linear attention is in the place of
`self_attn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

import lucid
from lucid import DType, Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.checkpoints.registry import type_of
from lucid.models.mixtral import read_experts
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import EXPERTS, PREFIXED, TABLE, TIED, Angles, CausalLM, DecoderConfig
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import FULL, layer_types, read_head_dim, rope, rope_section, rotary_dim, tied_output
from lucid.models.parts.states import CHUNK, by_chunks, convolved, in_chunks
from lucid.nn import functional as F

_LINEAR = "linear_attention"


@dataclass(frozen=True)
class Qwen3NextConfig(DecoderConfig):
    """The sizes of a model, and which of its layers have linear attention."""

    kinds: tuple[str, ...] = ()  # of each layer: FULL or _LINEAR
    key_heads: int = option.size("linear_num_key_heads", 16)
    value_heads: int = option.size("linear_num_value_heads", 32)
    key_dim: int = option.size("linear_key_head_dim", 128)
    value_dim: int = option.size("linear_value_head_dim", 128)
    conv_size: int = option.size("linear_conv_kernel_dim", 4, low=2)
    joined: bool = True  # whether one product makes all that belongs to a key head

    @classmethod
    def read(cls, options: Config) -> Self:
        declared, tied = type_of(options.model_type), tied_output(options, table=rf"(?:\w+\.)?{TABLE}")
        options = options.text
        options.has("tie_word_embeddings")  # of the text model, which does not count beside that of the whole
        head_dim, layers = read_head_dim(options, "head_dim"), options.layers("num_hidden_layers")
        options.only("hidden_act", "silu")
        options.heads("linear_num_key_heads", options.size("linear_num_value_heads"))
        section, bias = rope_section(options), options.get("attention_bias", bool)
        for name in ("mrope_section", "mrope_interleaved"):  # the three positions of a token of text are equal
            section.has(name)
        experts = None if declared.options.experts is None else read_experts(options, layers)
        return cls.from_rows(
            options,
            head_dim=head_dim,
            rope=rope(options, section=section, whole=False),
            rotary_dim=rotary_dim(options, section, head_dim),
            parts=declared.parts,
            qkv_bias=bias,
            o_bias=bias,
            experts=experts,
            kinds=_kinds(options, layers),
            joined=experts is not None,
            tied=tied,
        )

    def mixer(self, number: int) -> nn.Module:
        return super().mixer(number) if self.kinds[number] == FULL else GatedDeltaNet(self)

    @property
    def conv_width(self) -> int:
        """The number of convolved channels: those of queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def state(self, dtype: DType) -> Any:
        """The types of the state of linear attention."""
        conv = lucid.spec(self.conv_width, self.conv_size - 1, dtype=dtype)
        return State._make([conv, lucid.spec(self.value_heads, self.key_dim, self.value_dim, dtype=dtype)])


class State(NamedTuple):
    """What linear attention keeps of earlier tokens: the last inputs of its convolution, and a matrix of each head."""

    conv: Tensor
    recurrent: Tensor


class Qwen3Next(CausalLM[Qwen3NextConfig], nn.RecurrentDecoder):
    """Token ids to the logits of the token that follows each. Padding comes before a text.

    State: Llama's keys, ``model.layers.0.self_attn.in_proj_qkvz.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["qwen3_next"],
        read=Qwen3NextConfig.read,
        stacked=EXPERTS,
        ignored_options=["vision_config|(image|video|vision_start|vision_end)_token_id"],
        renames=[
            (r"^(?:model\.)?language_model\.", "model."),  # of checkpoints that read images
            (r"\.linear_attn\.", ".self_attn."),
            *PREFIXED,
        ],
        ignored_keys=[r"^model\.(mtp|visual)\."],  # layers that predict further tokens, or read images
        tied_keys=TIED,
    )

    @property
    def state_types(self) -> Sequence[Any]:
        c, dtype = self.config, self.table.dtype
        attention, linear = nn.KeyValueCache.types(c.num_kv_heads, c.head_dim, dtype), c.state(dtype)
        return [attention if kind == FULL else linear for kind in c.kinds]


class GatedDeltaNet(nn.Module):
    """Linear attention after a convolution over the last tokens: (N, L, hidden_size) to the same."""

    def __init__(self, c: Qwen3NextConfig) -> None:
        self.config, values = c, c.value_heads * c.value_dim
        if c.joined:
            self.in_proj_qkvz = nn.Linear(c.hidden_size, c.conv_width + values, False, c.dtype)
            self.in_proj_ba = nn.Linear(c.hidden_size, 2 * c.value_heads, False, c.dtype)
        else:
            self.in_proj_qkv = nn.Linear(c.hidden_size, c.conv_width, False, c.dtype)
            self.in_proj_z = nn.Linear(c.hidden_size, values, False, c.dtype)
            self.in_proj_b = nn.Linear(c.hidden_size, c.value_heads, False, c.dtype)
            self.in_proj_a = nn.Linear(c.hidden_size, c.value_heads, False, c.dtype)
        width = c.conv_width
        self.conv1d = nn.Conv1d(width, width, c.conv_size, groups=width, bias=False, dtype=c.dtype)
        self.dt_bias = nn.init.ones_(nn.init.new_parameter(c.value_heads, dtype=c.dtype))
        self.A_log = nn.init.zeros_(nn.init.new_parameter(c.value_heads, dtype=c.dtype))
        self.norm = nn.RMSNorm(c.value_dim, c.eps, dtype=c.dtype)
        self.out_proj = nn.Linear(values, c.hidden_size, False, c.dtype)

    def forward(
        self, x: Tensor, angles: Angles, growth: Tensor | None, key_mask: Tensor | None, state: State | None
    ) -> tuple[Tensor, State]:
        c, (n, length, _) = self.config, x.shape
        if key_mask is not None:
            x = x * F.mask_of_new_tokens(key_mask, length, x.dtype)
        if state is None:
            state = State(*(lucid.zeros(n, *one.shape, dtype=one.dtype) for one in c.state(x.dtype)))
        mixed, gate, beta, step = self._parts(x)
        mixed, conv = convolved(self.conv1d, mixed.transpose(1, 2), state.conv)
        keys = c.key_heads * c.key_dim
        query, key, value = ops.silu(mixed).transpose(1, 2).split([keys, keys, c.value_heads * c.value_dim], -1)
        query, key = (_unit(_wide(part.reshape(n, length, c.key_heads, c.key_dim))) for part in (query, key))
        decay = -(ops.softplus(_wide(step + self.dt_bias)) * _wide(ops.exp(self.A_log)))
        value, beta, past = _wide(value.reshape(n, length, c.value_heads, c.value_dim)), _wide(beta), _wide(state[1])
        y, recurrent = delta_rule(query * c.key_dim**-0.5, key, value, decay, beta.sigmoid(), past)
        y = self.norm(y.astype(x.dtype)) * ops.silu(gate.reshape(n, length, c.value_heads, c.value_dim))
        state = State(conv, recurrent.astype(x.dtype))
        return self.out_proj(y.reshape(n, length, c.value_heads * c.value_dim)), state

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values in one tensor, the gates, beta and the steps of time."""
        c, (n, length, _) = self.config, x.shape
        if not c.joined:
            return self.in_proj_qkv(x), self.in_proj_z(x), self.in_proj_b(x), self.in_proj_a(x)
        each = c.value_heads // c.key_heads
        both = self.in_proj_qkvz(x).reshape(n, length, c.key_heads, 2 * (c.key_dim + each * c.value_dim))
        widths = (c.key_dim, c.key_dim, each * c.value_dim, each * c.value_dim)
        *mixed, gate = (part.reshape(n, length, -1) for part in both.split(widths, -1))
        ba = self.in_proj_ba(x).reshape(n, length, c.key_heads, 2 * each).chunk(2, -1)
        beta, step = (part.reshape(n, length, c.value_heads) for part in ba)
        return ops.concat(mixed, -1), gate, beta, step


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """y_t = S_t^T q_t with S_t = S' + k_t (beta_t (v_t - S'^T k_t))^T and S' = exp(decay_t) S_(t-1), for each head.

    Args:
        query, key: (N, L, G, K), each for the H / G heads of a group.
        value: (N, L, H, V). decay: (N, L, H), 0 or less. beta: (N, L, H).
        state: S_0 (N, H, K, V).

    Returns:
        y (N, L, H, V), and the last state.
    """
    return by_chunks(_chunks, state, (query, key, value, decay, beta), chunk)


def _chunks(
    size: int, state: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """`delta_rule` for a whole number of chunks."""
    n, length, heads, width = value.shape
    groups, keys = key.shape[2:]
    each = heads // groups
    before, eye = lucid.tensor(np.tri(size, dtype=bool)), lucid.tensor(np.eye(size), dtype=value.dtype)
    strictly = lucid.tensor(np.tri(size, k=-1, dtype=bool))

    def step(s: Tensor, element: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        query, key, value, decay, beta = element
        total = decay @ before.T.astype(decay.dtype)  # the sum of the decays up to each token, (N, G, H / G, size)
        between, grown = ops.exp(total.unsqueeze(-1) - total.unsqueeze(-2)), ops.exp(total).unsqueeze(-1)
        beta = beta.unsqueeze(-1)
        # Each token corrects what those before it left: (1 + earlier) written = beta (value - S'^T key).
        earlier = (key @ key.mT) * ops.where(strictly, between, 0.0) * beta
        written = _inverse(eye, earlier, size) @ ((value - (key * grown) @ s) * beta)
        y = (query * grown) @ s + ((query @ key.mT) * ops.where(before, between, 0.0)) @ written
        left = ops.exp(total[..., -1:] - total).unsqueeze(-1)  # what is left of each token at the end of the chunk
        return ops.exp(total[..., -1:]).unsqueeze(-1) * s + (key * left).mT @ written, y

    elements = (
        in_chunks(query, size, groups, 1, keys),
        in_chunks(key, size, groups, 1, keys),
        in_chunks(value, size, groups, each, width),
        in_chunks(decay, size, groups, each),
        in_chunks(beta, size, groups, each),
    )
    s, y = ops.scan(step, state.reshape(n, groups, each, keys, width), elements)
    y = y.permute(1, 0, 4, 2, 3, 5).reshape(n, length, heads, width)
    return y, s.reshape(n, heads, keys, width)


def _inverse(eye: Tensor, lower: Tensor, size: int) -> Tensor:
    """The inverse of 1 + lower, which is strictly lower triangular: (1 - l) (1 + l^2) (1 + l^4) ..., as l^size is 0."""
    result, power = eye - lower, lower
    for _ in range((size - 1).bit_length() - 1):
        power = power @ power
        result = result @ (eye + power)
    return result


def _wide(x: Tensor) -> Tensor:
    """In float32, at least: half precision has too few digits for the squares of small numbers."""
    return x if x.dtype == lucid.float64 else x.astype(lucid.float32)


def _unit(x: Tensor) -> Tensor:
    """Vectors of length 1."""
    return x / ((x * x).sum(-1, keepdims=True) + 1e-6).sqrt()


class Qwen3NextStates(decoder_heads.RotaryStates[Qwen3NextConfig], on=Qwen3Next): ...


class Qwen3NextForSequenceClassification(
    decoder_heads.LastTokenClassifier[Qwen3NextConfig], Qwen3NextStates, on=Qwen3Next
): ...


class Qwen3NextForReranking(Reranker[Qwen3NextConfig], Qwen3NextForSequenceClassification, on=Qwen3Next): ...


class Qwen3NextForTokenClassification(
    decoder_heads.TokenClassifier[Qwen3NextConfig], Qwen3NextStates, on=Qwen3Next
): ...


class Qwen3NextForQuestionAnswering(decoder_heads.QuestionAnswerer[Qwen3NextConfig], Qwen3NextStates, on=Qwen3Next): ...


# Reading config.json --------------------------------------------------------------------------------------------------


def _kinds(options: Config, layers: int) -> tuple[str, ...]:
    """The kind of each layer."""
    step = options.whole("full_attention_interval")
    return layer_types(options, layers, [_LINEAR if (i + 1) % step else FULL for i in range(layers)], (FULL, _LINEAR))


if __name__ == "__main__":
    continue_text(Qwen3Next, "qwen3_next/base", 1, 11, 7)
