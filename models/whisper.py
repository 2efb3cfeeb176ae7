"""Whisper (Radford et al. 2022): speech, as log-mel features, to text.

A convolutional stem and an encoder read 30 seconds at once; a decoder attends to them while it writes. There is no
cache: each call reads the whole text so far.

::

    whisper = Whisper.from_pretrained("folder with config.json and model.safetensors")
    logits = whisper(input_features, decoder_input_ids)               # (N, mels, frames), (N, L) to (N, L, vocabulary)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.nn import functional as F
from models._pretrained import ACTIVATIONS, Config, building, load_into


@dataclass(frozen=True)
class Stack:
    """The sizes of the encoder's or the decoder's layers."""

    width: int
    inner: int
    layers: int
    heads: int
    activation: Callable[[Tensor], Tensor]

    @classmethod
    def read(cls, config: Config, side: str) -> Self:
        """From the options that begin with "encoder" or "decoder"."""
        width = config.size("d_model")
        return cls(
            width,
            config.size(f"{side}_ffn_dim"),
            config.layers(f"{side}_layers"),
            config.heads(f"{side}_attention_heads", width),
            config.choose("activation_function", ACTIVATIONS, "gelu"),
        )


class Attention(nn.Module):
    """Attention to another sequence, or to the same; keys have no bias, which would shift all scores alike."""

    def __init__(self, stack: Stack) -> None:
        self.heads = stack.heads
        self.q_proj, self.v_proj, self.out_proj = (nn.Linear(stack.width, stack.width) for _ in range(3))
        self.k_proj = nn.Linear(stack.width, stack.width, bias=False)

    def forward(self, x: Tensor, source: Tensor, is_causal: bool = False) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(source), self.v_proj(source)
        return self.out_proj(ops.attention(q, k, v, heads=self.heads, is_causal=is_causal))


class EncoderLayer(nn.Module):
    """Attention, then two linear layers, each behind its norm and beside the stream."""

    def __init__(self, stack: Stack) -> None:
        self.self_attn, self.self_attn_layer_norm = Attention(stack), nn.LayerNorm(stack.width)
        self.fc1, self.fc2 = nn.Linear(stack.width, stack.inner), nn.Linear(stack.inner, stack.width)
        self.final_layer_norm = nn.LayerNorm(stack.width)
        self.activation = stack.activation

    def forward(self, x: Tensor) -> Tensor:
        y = self.self_attn_layer_norm(x)
        return self.feed_forward(x + self.self_attn(y, y))

    def feed_forward(self, x: Tensor) -> Tensor:
        """The linear layers."""
        return x + self.fc2(self.activation(self.fc1(self.final_layer_norm(x))))


class DecoderLayer(EncoderLayer):
    """The same with a causal attention, and with one to the encoder in the middle."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.encoder_attn, self.encoder_attn_layer_norm = Attention(stack), nn.LayerNorm(stack.width)

    def forward(self, x: Tensor, speech: Tensor | None = None) -> Tensor:
        assert speech is not None
        y = self.self_attn_layer_norm(x)
        x = x + self.self_attn(y, y, is_causal=True)
        x = x + self.encoder_attn(self.encoder_attn_layer_norm(x), speech)
        return self.feed_forward(x)


class Encoder(nn.Module):
    """Log-mel features (N, mels, 2 * positions) to (N, positions, width)."""

    def __init__(self, stack: Stack, mels: int, positions: int) -> None:
        self.mels, self.frames = mels, 2 * positions
        self.conv1 = nn.Conv1d(mels, stack.width, 3, padding=1)
        self.conv2 = nn.Conv1d(stack.width, stack.width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(positions, stack.width)
        self.layers = [EncoderLayer(stack) for _ in range(stack.layers)]
        self.layer_norm = nn.LayerNorm(stack.width)

    def forward(self, input_features: Tensor) -> Tensor:
        return self.layer_norm(self.hidden_states(input_features)[-1])

    def hidden_states(self, input_features: Tensor) -> list[Tensor]:
        """What enters the first layer, and what each layer returns."""
        if input_features.ndim != 3 or input_features.shape[1:] != (self.mels, self.frames):
            shape = ", ".join(map(str, input_features.shape))
            raise ValueError(
                f"Whisper: input_features has shape [{shape}], expected (N, {self.mels}, {self.frames}): "
                "pad the sound with silence"
            )
        x = F.gelu(self.conv2(F.gelu(self.conv1(input_features))))
        states = [x.mT + self.embed_positions.weight]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return states


class Decoder(nn.Module):
    """Token ids (N, L) and what the encoder made of the speech to (N, L, width)."""

    def __init__(self, stack: Stack, vocabulary: int, positions: int) -> None:
        self.embed_tokens = nn.Embedding(vocabulary, stack.width)
        self.embed_positions = nn.LearnedPositions(positions, stack.width)
        self.layers = [DecoderLayer(stack) for _ in range(stack.layers)]
        self.layer_norm = nn.LayerNorm(stack.width)

    def forward(self, input_ids: Tensor, speech: Tensor) -> Tensor:
        return self.layer_norm(self.hidden_states(input_ids, speech)[-1])

    def hidden_states(self, input_ids: Tensor, speech: Tensor) -> list[Tensor]:
        """What enters the first layer, and what each layer returns."""
        states = [self.embed_tokens(input_ids) + self.embed_positions(input_ids.shape[1])]
        for layer in self.layers:
            states.append(layer(states[-1], speech))
        return states


class EncoderDecoder(nn.Module):
    """Both halves, without the output layer."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        self.encoder, self.decoder = encoder, decoder

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> Tensor:
        return self.decoder(decoder_input_ids, self.encoder(input_features))


class Whisper(nn.Module):
    """Speech and the text so far to the logits of the token that follows each."""

    def __init__(self, encoder: Encoder, decoder: Decoder, tied: bool = True) -> None:
        self.model = EncoderDecoder(encoder, decoder)
        vocabulary, width = decoder.embed_tokens.weight.numpy().shape
        self.proj_out = None if tied else nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Logits (N, L, vocabulary).

        Args:
            input_features: (N, mels, frames), 30 seconds of sound, padded with silence.
            decoder_input_ids: (N, L) int64.
        """
        x = self.model(input_features, decoder_input_ids)
        return F.linear(x, self.model.decoder.embed_tokens.weight) if self.proj_out is None else self.proj_out(x)

    def input_specs(self) -> Mapping[str, TensorType]:
        encoder = self.model.encoder
        return {
            "input_features": lucid.spec("N", encoder.mels, encoder.frames, dtype=encoder.conv1.weight.dtype),
            "decoder_input_ids": lucid.spec("N", "L", dtype=lucid.int64),
        }

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """A checkpoint: config.json and model.safetensors, whole or sharded.

        Raises:
            ConfigError: for another architecture or an option that is not supported.
            KeyError: listing all weights that are missing, unexpected or of another shape.
        """
        config = Config.read(folder, "whisper")
        config.only("is_encoder_decoder", True)
        arrays = lucid.load(folder)
        with building(folder, arrays):
            encoder = Encoder(
                Stack.read(config, "encoder"), config.size("num_mel_bins"), config.size("max_source_positions")
            )
            decoder = Decoder(
                Stack.read(config, "decoder"), config.size("vocab_size"), config.size("max_target_positions")
            )
            whisper = cls(encoder, decoder, config.get("tie_word_embeddings", bool, True))
        config.done(ignore=IGNORED_OPTIONS)
        tied = {"proj_out.weight": "model.decoder.embed_tokens.weight"} if whisper.proj_out is None else None
        load_into(whisper, arrays, renames=[(r"^(?!model\.|proj_out\.)", "model.")], tied=tied)
        return whisper


IGNORED_OPTIONS = [
    "scale_embedding",  # no version of the model reads it
    "num_hidden_layers",  # repeats encoder_layers
    "apply_spec_augment|mask_(time|feature)_.*",  # training
    "classifier_proj_size|use_weighted_layer_sum",  # of a classifier
    "median_filter_width|alignment_heads|forced_decoder_ids",  # of generation and time stamps
]


def main() -> None:
    """Write a few tokens greedily with the exported model, and compare it with eager."""
    tiny = Path(__file__).parents[1] / "tests" / "goldens" / "whisper" / "base"
    whisper = Whisper.from_pretrained(sys.argv[1] if len(sys.argv) > 1 else tiny)
    session = lucid.runtime.Session(lucid.export.to_onnx(whisper))
    lucid.manual_seed(0)
    features = lucid.randn(1, whisper.model.encoder.mels, whisper.model.encoder.frames)
    ids, difference = lucid.tensor([[1]]), 0.0
    for _ in range(8):
        logits = session(features, ids)
        difference = max(difference, abs(logits - whisper(features, ids)).max().item())
        ids = ops.concat([ids, logits[:, -1:].argmax()], 1)
    print(f"token ids {ids.tolist()[0]}, largest difference between exported and eager logits {difference:.1e}")


if __name__ == "__main__":
    main()
