"""Mamba-2: a decoder without attention, of state-space layers (Dao & Gu 2024, "Transformers are SSMs").

::

    mamba = Mamba2.from_pretrained("folder with config.json and model.safetensors")
    logits = mamba(lucid.tensor([[464, 3290]]))                       # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(mamba, path="mamba2.onnx")                   # any batch, any length
    lucid.export.to_onnx(mamba, path="step.onnx", cache="growing")    # takes and returns states of one size

What a layer keeps of earlier tokens is a state of one size. Within chunks of tokens it is computed by products of
matrices (section 6 of the paper), and a loop goes from chunk to chunk; the rest of a text, which fills no chunk, goes
token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

import lucid
from lucid import Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import LanguageModel
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.options import tied
from lucid.models.parts.states import CHUNK, by_chunks, convolved, in_chunks
from lucid.nn import functional as F


@dataclass(frozen=True)
class Mamba2Config(option.OptionTable):
    """The sizes of a model; heads times their width is the inner width."""

    vocab_size: int = option.size("vocab_size")
    hidden_size: int = option.size("hidden_size")
    num_layers: int = option.layers("num_hidden_layers")
    num_heads: int = option.size("num_heads")
    head_dim: int = option.size("head_dim")
    num_groups: int = option.heads("n_groups", of="num_heads")  # of heads that share B and C
    state_size: int = option.size("state_size")
    conv_size: int = option.size("conv_kernel", 4, low=2)
    activation: str = option.activation("hidden_act", "silu")
    eps: float = option.real("layer_norm_epsilon", 1e-5)
    bias: bool = option.flag("use_bias", False)
    conv_bias: bool = option.flag("use_conv_bias", True)
    time_step_limit: tuple[float, float] = (0.0, float("inf"))
    tied: bool = tied(False, table=r"(?:backbone\.)?embeddings?\.weight")  # the output layer is the table of embeddings

    @property
    def inner_size(self) -> int:
        """The width of all heads."""
        return self.num_heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """The number of convolved channels: those of x, B and C."""
        return self.inner_size + 2 * self.num_groups * self.state_size

    @classmethod
    def read(cls, options: Config) -> Self:
        config = cls.from_rows(options, time_step_limit=_limits(options))
        if options.whole("expand") * config.hidden_size != config.inner_size:
            raise options.wrong("expand", f"expected num_heads * head_dim = expand * {config.hidden_size}")
        return config


def _limits(options: Config) -> tuple[float, float]:
    """The least and the largest step of time. JSON has no infinity, so files spell it as a word or an object."""
    pair = options.get("time_step_limit", list, [0.0, float("inf")])
    numbers = [float("inf") if number in ("Infinity", {"__float__": "Infinity"}) else number for number in pair]
    known = all(type(n) in (int, float) and (0 <= n < 1e30 or n == float("inf")) for n in numbers)
    if len(numbers) != 2 or not known or numbers[0] > numbers[1]:
        raise options.wrong("time_step_limit", "expected two numbers, the least and the largest step")
    return float(numbers[0]), float(numbers[1])


class State(NamedTuple):
    """What a layer keeps of earlier tokens: the last inputs of its convolution, and the state of its heads."""

    conv: Tensor
    ssm: Tensor


class Mamba2(LanguageModel[Mamba2Config], nn.RecurrentDecoder):
    """Token ids to the logits of the token that follows each. Padding comes before a text; positions are not used.

    State: the keys of Hugging Face's Mamba2ForCausalLM, ``backbone.layers.0.mixer.in_proj.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["mamba2"],
        read=Mamba2Config.read,
        # How it is initialised and trained; chunks change nothing; residuals are of the model's type here.
        ignored_options=["time_step_(rank|min|max|floor)|chunk_size|residual_in_fp32"],
        renames=[(r"^(?!backbone\.|lm_head\.)", "backbone."), (r"^backbone\.embedding\.", "backbone.embeddings.")],
        tied_keys={"lm_head.weight": "backbone.embeddings.weight"},
    )

    def __init__(self, config: Mamba2Config) -> None:
        super().__init__(config)
        self.backbone = Backbone(config)
        self.lm_head = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def decode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        past_key_values: Sequence[State] | None,
    ) -> tuple[Tensor, list[State]]:
        states, present = self.backbone(input_ids, attention_mask, past_key_values)
        return states, present

    @property
    def table(self) -> Tensor:
        return self.backbone.embeddings.weight

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, L, hidden_size) each."""
        return self.backbone.all_states(input_ids, attention_mask, None)[0]

    @property
    def state_types(self) -> list[Any]:
        c, dtype = self.config, self.backbone.embeddings.weight.dtype
        conv = lucid.spec(c.conv_width, c.conv_size - 1, dtype=dtype)
        return [State._make([conv, lucid.spec(c.num_heads, c.head_dim, c.state_size, dtype=dtype)])] * c.num_layers


class Backbone(nn.Module):
    """The model without its output layer: (N, L) token ids to (N, L, hidden_size), and the new states."""

    def __init__(self, c: Mamba2Config) -> None:
        embedding = nn.TiedEmbedding if c.tied else nn.Embedding
        self.embeddings = embedding(c.vocab_size, c.hidden_size)
        self.layers = [Block(c) for _ in range(c.num_layers)]
        self.norm_f = nn.RMSNorm(c.hidden_size, c.eps)

    def all_states(
        self, input_ids: Tensor, attention_mask: Tensor | None, past: Sequence[State] | None
    ) -> tuple[list[Tensor], list[State]]:
        xs, states = [self.embeddings(input_ids)], []
        keep = None if attention_mask is None else F.mask_of_new_tokens(attention_mask, input_ids.shape[1], xs[0].dtype)
        before: Sequence[State | None] = [None] * len(self.layers) if past is None else past
        for block, state in zip(self.layers, before, strict=True):
            x, after = block(xs[-1], keep, state)
            xs.append(x)
            states.append(after)
        return xs, states

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, past: Sequence[State] | None
    ) -> tuple[Tensor, list[State]]:
        xs, states = self.all_states(input_ids, attention_mask, past)
        return self.norm_f(xs[-1]), states


class Block(nn.Module):
    """A mixer after a normalisation, with a residual connection."""

    def __init__(self, c: Mamba2Config) -> None:
        self.norm = nn.RMSNorm(c.hidden_size, c.eps)
        self.mixer = Mixer(c)

    def forward(self, x: Tensor, keep: Tensor | None, state: State | None) -> tuple[Tensor, State]:
        y, state = self.mixer(self.norm(x), keep, state)
        return x + y, state


class Mixer(nn.Module):
    """A convolution over the last tokens, then the state-space model, gated: (N, L, hidden_size) to the same."""

    def __init__(self, c: Mamba2Config) -> None:
        self.config = c
        self.in_proj = nn.Linear(c.hidden_size, c.inner_size + c.conv_width + c.num_heads, bias=c.bias)
        self.conv1d = nn.Conv1d(c.conv_width, c.conv_width, c.conv_size, groups=c.conv_width, bias=c.conv_bias)
        self.dt_bias = nn.init.ones_(nn.init.new_parameter(c.num_heads))
        self.A_log = nn.init.ones_(nn.init.new_parameter(c.num_heads))
        self.D = nn.init.ones_(nn.init.new_parameter(c.num_heads))
        self.norm = GatedNorm(c.inner_size, c.num_groups, c.eps)
        self.out_proj = nn.Linear(c.inner_size, c.hidden_size, bias=c.bias)

    def forward(self, x: Tensor, keep: Tensor | None, state: State | None) -> tuple[Tensor, State]:
        c = self.config
        x = x if keep is None else x * keep
        gate, mixed, dt = self.in_proj(x).split([c.inner_size, c.conv_width, c.num_heads], -1)
        n = x.shape[0]
        if state is None:
            state = State(
                lucid.zeros(n, c.conv_width, c.conv_size - 1, dtype=x.dtype),
                lucid.zeros(n, c.num_heads, c.head_dim, c.state_size, dtype=x.dtype),
            )
        mixed, conv = convolved(self.conv1d, mixed.transpose(1, 2), state.conv)
        mixed = ACTIVATIONS[c.activation](mixed).transpose(1, 2)
        mixed = mixed if keep is None else mixed * keep
        width = c.num_groups * c.state_size
        inputs, enter, leave = mixed.split([c.inner_size, width, width], -1)
        low, high = c.time_step_limit
        dt = ops.softplus(dt + self.dt_bias).clamp(low, high if np.isfinite(high) else None)
        inputs, enter, leave = (
            _split(part, count) for part, count in ((inputs, c.num_heads), (enter, c.num_groups), (leave, c.num_groups))
        )
        y, ssm = state_space(inputs, dt, self.A_log, enter, leave, state.ssm)
        y = y + inputs * self.D.reshape(-1, 1)
        return self.out_proj(self.norm(y.reshape(n, x.shape[1], c.inner_size), gate)), State(conv, ssm)


def _split(x: Tensor, parts: int) -> Tensor:
    """(N, L, parts * d) to (N, L, parts, d)."""
    return x.reshape(*x.shape[:2], parts, x.shape[2] // parts)


class GatedNorm(nn.Module):
    """x * silu(gate), with its root mean square normalised in groups."""

    def __init__(self, size: int, groups: int, eps: float) -> None:
        self.groups, self.eps = groups, eps
        self.weight = nn.init.ones_(nn.init.new_parameter(size))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        n, l, width = x.shape
        x = (x * ops.silu(gate)).reshape(n, l, self.groups, width // self.groups)
        return F.rms_norm(x, eps=self.eps).reshape(n, l, width) * self.weight


def state_space(
    x: Tensor, dt: Tensor, log_a: Tensor, enter: Tensor, leave: Tensor, state: Tensor, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """y_t = C_t h_t with h_t = exp(-dt_t a) h_(t-1) + dt_t B_t x_t, for each head: chunk by chunk, the rest by tokens.

    Args:
        x: (N, L, H, P). dt: (N, L, H), 0 or more. log_a: (H), of a.
        enter, leave: B and C (N, L, G, S), each for the H / G heads of a group.
        state: h_0 (N, H, P, S).

    Returns:
        y (N, L, H, P), and the last state.
    """
    decay = -ops.exp(log_a + ops.log(dt))  # a stays as it is stored
    return by_chunks(_chunks, state, (x, decay, dt, enter, leave), chunk)


def _chunks(
    size: int, state: Tensor, x: Tensor, decay: Tensor, dt: Tensor, enter: Tensor, leave: Tensor
) -> tuple[Tensor, Tensor]:
    """`state_space` for a whole number of chunks."""
    n, length, heads, width = x.shape
    groups, states = enter.shape[2:]
    each = heads // groups
    before = lucid.tensor(np.tri(size, dtype=bool))

    def step(h: Tensor, element: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        x, decay, enter, leave = element
        total = decay @ before.T.astype(decay.dtype)  # the sum of the decays up to each token, (N, G, H / G, size)
        between = ops.exp(total.unsqueeze(-1) - total.unsqueeze(-2))
        weights = (leave @ enter.mT) * ops.where(before, between, 0.0)
        y = weights @ x + ops.exp(total).unsqueeze(-1) * (leave @ h.mT)
        left = ops.exp(total[..., -1:] - total).unsqueeze(-1)  # what is left of each token at the end of the chunk
        h = ops.exp(total[..., -1:]).unsqueeze(-1) * h + (x * left).mT @ enter
        return h, y

    elements = (
        in_chunks(x * dt.unsqueeze(-1), size, groups, each, width),
        in_chunks(decay, size, groups, each),
        in_chunks(enter, size, groups, 1, states),
        in_chunks(leave, size, groups, 1, states),
    )
    h, y = ops.scan(step, state.reshape(n, groups, each, width, states), elements)
    y = y.permute(1, 0, 4, 2, 3, 5).reshape(n, length, heads, width)
    return y, h.reshape(n, heads, width, states)


class Mamba2States(decoder_heads.States[Mamba2Config], on=Mamba2):
    def __init__(self, config: Mamba2Config) -> None:
        super().__init__(config)
        self.backbone = Backbone(config)

    def states(self, input_ids: Tensor, attention_mask: Tensor | None, kept: int | Tensor | None = None) -> Tensor:
        return F.kept_positions(self.backbone(input_ids, attention_mask, None)[0], kept)


if __name__ == "__main__":
    continue_text(Mamba2, "mamba2/base", 1, 11, 7)
