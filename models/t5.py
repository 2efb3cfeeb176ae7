"""T5: encoder and decoder for text to text (Raffel et al. 2020), in its first and its gated (1.1, FLAN) form.

::

    t5 = T5.from_pretrained("folder with config.json and model.safetensors")
    logits = t5(lucid.tensor([[363, 19, 1]]), lucid.tensor([[0]]))    # (N, L), (N, T) to (N, T, vocabulary)
    lucid.export.to_onnx(t5, path="t5.onnx")                          # any batch, any lengths

Scores are not scaled, positions enter as a bias for each distance, and norms have neither mean nor bias. Modules carry
the names of the published checkpoints, and so do the weights of an exported model.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.nn import functional as F
from models._pretrained import ACTIVATIONS, Config, building, load_into


@dataclass(frozen=True)
class T5Config:
    """The sizes of a model and the form of its feed-forward networks; by default a small model."""

    vocabulary: int = 32128
    width: int = 512
    head_width: int = 64
    inner: int = 2048
    layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    buckets: int = 32
    max_distance: int = 128
    activation: str = "relu"
    gated: bool = False
    eps: float = 1e-6
    tied: bool = True  # the output layer is the table of token vectors
    scale_outputs: bool = True  # what enters the output layer is divided by sqrt(width)

    @classmethod
    def read(cls, folder: str | os.PathLike[str], tied: bool) -> Self:
        """From config.json, option by option; an option that is not supported is an error that names it."""
        config = Config.read(folder, "t5")
        forms = {"relu": ("relu", False), "gated-gelu": ("gelu_new", True), "gated-silu": ("silu", True)}
        activation, gated = config.choose("feed_forward_proj", forms, "relu")
        config.only("dense_act_fn", activation)
        config.only("is_gated_act", gated)
        config.only("is_encoder_decoder", True)
        config.only("is_decoder", False)
        # Configs written before there was scale_decoder_outputs scale where the weights are tied.
        scaled = config.get("tie_word_embeddings", bool, True)
        layers = config.layers("num_layers")
        made = cls(
            vocabulary=config.size("vocab_size"),
            width=config.size("d_model"),
            head_width=config.size("d_kv"),
            inner=config.size("d_ff"),
            layers=layers,
            decoder_layers=config.layers("num_decoder_layers", layers),
            heads=config.size("num_heads"),
            buckets=config.size("relative_attention_num_buckets", 32),
            max_distance=config.whole("relative_attention_max_distance", 128, high=1 << 20),
            activation=activation,
            gated=gated,
            eps=config.real("layer_norm_epsilon", 1e-6),
            tied=tied,
            scale_outputs=config.get("scale_decoder_outputs", bool, scaled),
        )
        config.done(ignore=["n_positions"])  # there is no limit: positions are relative
        return made


class Attention(nn.Module):
    """Attention to a memory, which in self-attention is the input. The first of a stack owns the bias of positions."""

    def __init__(self, config: T5Config, bidirectional: bool | None = None) -> None:
        inner, self.heads = config.heads * config.head_width, config.heads
        self.q = nn.Linear(config.width, inner, bias=False)
        self.k = nn.Linear(config.width, inner, bias=False)
        self.v = nn.Linear(config.width, inner, bias=False)
        self.o = nn.Linear(inner, config.width, bias=False)
        if bidirectional is not None:
            self.relative_attention_bias = nn.RelativePositionBias(
                config.heads, config.buckets, config.max_distance, bidirectional
            )

    def forward(
        self, x: Tensor, memory: Tensor, bias: Tensor | None, keep: Tensor | None, causal: bool = False
    ) -> Tensor:
        q, k, v = self.q(x), self.k(memory), self.v(memory)
        return self.o(ops.attention(q, k, v, bias, keep, heads=self.heads, scale=1.0, is_causal=causal))


class SelfAttention(nn.Module):
    """Self-attention behind a norm, added to what came in."""

    def __init__(self, config: T5Config, bidirectional: bool | None) -> None:
        self.SelfAttention = Attention(config, bidirectional)
        self.layer_norm = nn.RMSNorm(config.width, config.eps)

    def forward(self, x: Tensor, bias: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
        normed = self.layer_norm(x)
        return x + self.SelfAttention(normed, normed, bias, keep, causal)


class CrossAttention(nn.Module):
    """Attention to the encoder's output behind a norm, added to what came in. It knows no positions."""

    def __init__(self, config: T5Config) -> None:
        self.EncDecAttention = Attention(config)
        self.layer_norm = nn.RMSNorm(config.width, config.eps)

    def forward(self, x: Tensor, memory: Tensor, keep: Tensor | None) -> Tensor:
        return x + self.EncDecAttention(self.layer_norm(x), memory, None, keep)


class FeedForward(nn.Module):
    """The feed-forward network, plain or gated, behind a norm, added to what came in."""

    def __init__(self, config: T5Config) -> None:
        names = ["wi_0", "wi_1"] if config.gated else ["wi"]
        self.DenseReluDense = {name: nn.Linear(config.width, config.inner, bias=False) for name in names}
        self.DenseReluDense["wo"] = nn.Linear(config.inner, config.width, bias=False)
        self.layer_norm = nn.RMSNorm(config.width, config.eps)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        normed = self.layer_norm(x)
        first, *gated, last = self.DenseReluDense.values()
        inner = self.activation(first(normed))
        for linear in gated:
            inner = inner * linear(normed)
        return x + last(inner)


class Stack(nn.Module):
    """The encoder, or with a memory the decoder: vectors (N, L, width) to vectors."""

    def __init__(self, config: T5Config, layers: int, decoder: bool) -> None:
        self.decoder = decoder
        layers_of = [self._layers(config, first=index == 0) for index in range(layers)]
        self.block: list[dict[str, list[Any]]] = [{"layer": inner} for inner in layers_of]
        self.final_layer_norm = nn.RMSNorm(config.width, config.eps)

    def _layers(self, config: T5Config, first: bool) -> list[nn.Module]:
        attention = SelfAttention(config, bidirectional=not self.decoder if first else None)
        return [attention, *([CrossAttention(config)] if self.decoder else []), FeedForward(config)]

    def forward(
        self, x: Tensor, keep: Tensor | None, memory: Tensor | None = None, memory_keep: Tensor | None = None
    ) -> Tensor:
        length = x.shape[1]
        bias = self.block[0]["layer"][0].SelfAttention.relative_attention_bias(length, length)
        for block in self.block:
            attend, *attend_memory, feed_forward = block["layer"]
            x = attend(x, bias, keep, self.decoder)
            for layer in attend_memory:
                x = layer(x, memory, memory_keep)
            x = feed_forward(x)
        return self.final_layer_norm(x)


class T5(nn.Module):
    """T5 with its language-model head."""

    def __init__(self, config: T5Config | None = None) -> None:
        self.config = config = config or T5Config()
        self.shared = nn.Embedding(config.vocabulary, config.width)
        self.encoder = Stack(config, config.layers, decoder=False)
        self.decoder = Stack(config, config.decoder_layers, decoder=True)
        self.lm_head = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The logits of the token that follows each token of the decoder.

        Args:
            input_ids: (N, L) int64, the encoder's.
            decoder_input_ids: (N, T) int64, what has been written so far, beginning with the start token.
            attention_mask: (N, L) int64, 1 = keep, 0 = padding of the encoder's input.

        Returns:
            (N, T, vocabulary).
        """
        keep = None if attention_mask is None else attention_mask.astype(lucid.bool_)
        memory = self.encoder(self.shared(input_ids), keep)
        x = self.decoder(self.shared(decoder_input_ids), None, memory, keep)
        if self.config.scale_outputs:
            x = x * self.config.width**-0.5
        return F.linear(x, self.shared.weight if self.lm_head is None else self.lm_head.weight)

    def input_specs(self) -> Mapping[str, TensorType]:
        source = lucid.spec("N", "L", dtype=lucid.int64)
        return {
            "input_ids": source,
            "decoder_input_ids": lucid.spec("N", "T", dtype=lucid.int64),
            "attention_mask": source,
        }

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """Read Hugging Face's config.json and model.safetensors. A stored lm_head.weight is the output layer.

        Raises:
            ConfigError: for an option that is not supported; KeyError: for weights that do not fit, all at once.
        """
        arrays = lucid.load(folder)
        config = T5Config.read(folder, tied="lm_head.weight" not in arrays)
        with building(folder, arrays):
            model = cls(config)
        load_into(
            model,
            arrays,
            ignore=[r"EncDecAttention\.relative_attention_bias"],  # stored by the first files, used by nobody
            tied={f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")},
        )
        return model.eval()


def main() -> None:
    """Answer a text, given as token ids, with the exported model: ``python -m models.t5 FOLDER 363 19 1``."""
    tiny = Path(__file__).parents[1] / "tests" / "goldens" / "t5" / "v1_1"
    t5 = T5.from_pretrained(sys.argv[1] if len(sys.argv) > 1 else tiny)
    session = lucid.runtime.Session(lucid.export.to_onnx(t5))
    source = lucid.tensor([[int(word) for word in sys.argv[2:]] or [5, 6, 7, 1]])
    mask, answer, difference = lucid.ones(*source.shape, dtype=lucid.int64), lucid.tensor([[0]]), 0.0
    for _ in range(8):  # 0 starts an answer, 1 ends it
        logits = session(source, answer, mask)
        difference = max(difference, abs(logits - t5(source, answer, mask)).max().item())
        answer = ops.concat([answer, logits[:, -1:].argmax()], 1)
        if answer[0, -1].item() == 1:
            break
    print(f"{source.tolist()[0]} is answered by {answer.tolist()[0][1:]}")
    print(f"largest difference between exported and eager logits {difference:.1e}")


if __name__ == "__main__":
    main()
