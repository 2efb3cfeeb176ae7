"""LFM2 (Liquid AI 2025): decoders of gated convolutions over the last few tokens, with attention in some layers.

::

    lfm2 = Lfm2.from_pretrained("folder with config.json and model.safetensors")
    logits = lfm2(lucid.tensor([[1, 15043, 3186]]))                   # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(lfm2, path="lfm2.onnx")                      # any batch, any length
    lucid.export.to_onnx(lfm2, path="step.onnx", cache="growing")     # states of convolutions; keys and values

A convolution keeps the last few tokens, whatever the length of the text. Modules have Llama's names: a convolution is
in the place of `self_attn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import lucid
from lucid import DType, Tensor, nn
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import PREFIXED, TIED, Angles, CausalLM, DecoderConfig
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.options import FULL, layer_types
from lucid.models.parts.states import convolved
from lucid.nn import functional as F

_CONV = "conv"


@dataclass(frozen=True)
class Lfm2Config(DecoderConfig):
    """The sizes of a model, and which of its layers are convolutions."""

    kinds: tuple[str, ...] = ()  # of each layer: FULL or _CONV
    conv_size: int = option.size("conv_L_cache", 3, low=2)
    conv_bias: bool = option.flag("conv_bias", False)

    @classmethod
    def read(cls, options: Config) -> Self:
        options.only("tie_embedding", options.get("tie_word_embeddings", bool))  # an older name
        layers = options.layers("num_hidden_layers")
        return cls.from_rows(
            options,
            {"rms_norm_eps": "norm_eps"},
            intermediate_size=_inner_width(options),
            activation="silu",
            kinds=layer_types(options, layers, _kinds(options, layers), (FULL, _CONV)),
        )

    def mixer(self, number: int) -> nn.Module:
        return super().mixer(number) if self.kinds[number] == FULL else ShortConvolution(self)

    def state_types(self, dtype: DType) -> list[Any]:
        """The types of the states of all layers."""
        conv = State._make([lucid.spec(self.hidden_size, self.conv_size - 1, dtype=dtype)])
        attention = nn.KeyValueCache.types(self.num_kv_heads, self.head_dim, dtype)
        return [attention if kind == FULL else conv for kind in self.kinds]


class State(NamedTuple):
    """What a convolution keeps of earlier tokens: its last inputs."""

    conv: Tensor


class Lfm2(CausalLM[Lfm2Config], nn.RecurrentDecoder):
    """Token ids to the logits of the token that follows each. Padding comes before a text.

    State: Llama's keys, ``model.layers.0.self_attn.conv.weight`` and so on.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["lfm2"],
        read=Lfm2Config.read,
        renames=[
            (r"(^|\.)embedding_norm\.", r"\1norm."),
            (r"\.operator_norm\.", ".input_layernorm."),
            (r"\.ffn_norm\.", ".post_attention_layernorm."),
            (r"\.feed_forward\.w1\.", ".mlp.gate_proj."),
            (r"\.feed_forward\.w2\.", ".mlp.down_proj."),
            (r"\.feed_forward\.w3\.", ".mlp.up_proj."),
            (r"\.self_attn\.out_proj\.", ".self_attn.o_proj."),
            (r"\.([qk])_layernorm\.", r".\1_norm."),
            (r"\.conv\.(conv|in_proj|out_proj)\.", r".self_attn.\1."),
            *PREFIXED,
        ],
        tied_keys=TIED,
    )

    @property
    def state_types(self) -> Sequence[Any]:
        return self.config.state_types(self.table.dtype)


class ShortConvolution(nn.Module):
    """A gated convolution over the last tokens: (N, L, hidden_size) to the same."""

    def __init__(self, c: Lfm2Config) -> None:
        width, bias, self.past = c.hidden_size, c.conv_bias, c.conv_size - 1
        self.in_proj = nn.Linear(width, 3 * width, bias, c.dtype)
        self.conv = nn.Conv1d(width, width, c.conv_size, groups=width, bias=bias, dtype=c.dtype)
        self.out_proj = nn.Linear(width, width, bias, c.dtype)

    def forward(
        self, x: Tensor, angles: Angles, growth: Tensor | None, key_mask: Tensor | None, state: State | None
    ) -> tuple[Tensor, State]:
        n, length, width = x.shape
        if key_mask is not None:
            x = x * F.mask_of_new_tokens(key_mask, length, x.dtype)
        before, after, x = self.in_proj(x).transpose(1, 2).chunk(3, 1)
        past = lucid.zeros(n, width, self.past, dtype=x.dtype) if state is None else state.conv
        x, conv = convolved(self.conv, before * x, past)
        return self.out_proj((after * x).transpose(1, 2)), State(conv)


class Lfm2States(decoder_heads.RotaryStates[Lfm2Config], on=Lfm2): ...


# Reading config.json --------------------------------------------------------------------------------------------------


def _kinds(options: Config, layers: int) -> list[str]:
    """The kind of each layer, as older files spell it."""
    attention = options.get("full_attn_idxs", list, list(range(layers)))
    return [FULL if i in attention else _CONV for i in range(layers)]


def _inner_width(options: Config) -> int:
    """The inner width of the feed-forward networks: two thirds of the option, in multiples, unless it is exact."""
    width = options.size("block_ff_dim", options.size("intermediate_size"))
    factor, step = options.real("block_ffn_dim_multiplier"), options.whole("block_multiple_of")
    if not options.get("block_auto_adjust_ff_dim", bool):
        return width
    return step * -(-int(factor * int(2 * width / 3)) // step)


if __name__ == "__main__":
    continue_text(Lfm2, "lfm2/base", 1, 11, 7)
