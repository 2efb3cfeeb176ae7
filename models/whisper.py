"""Whisper (Radford et al. 2022): speech, as log-mel features, to text.

A convolutional stem and an encoder read 30 seconds of sound at once; a decoder attends to the result while it generates
text.

::

    whisper = Whisper.from_pretrained("folder with config.json and model.safetensors")
    logits = whisper(input_features, decoder_input_ids)               # (N, mels, frames), (N, L) to (N, L, vocab_size)

    cache = whisper.empty_cache(whisper.encode(input_features))       # token by token: the page "Key-value cache"
    logits, cache = whisper.decode(start, cache)

    tokenizer = WhisperTokenizer.from_pretrained(folder, decode)      # from sound to text: see the page "Transcription"
    transcribe(whisper, tokenizer, read_wav("speech.wav")).text
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import lucid
from lucid import Tensor, TensorType, nn
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, written
from lucid.models.parts.on_model import Head
from lucid.models.parts.options import tied_output
from lucid.models.parts.seq2seq_layers import DecoderLayer, EncoderLayer, StackConfig, Step, TwoStacks
from lucid.models.parts.sounds import SoundClassifier, SoundConfig
from lucid.models.speech.log_mel import log_mel as log_mel
from lucid.models.speech.transcription import Segment as Segment
from lucid.models.speech.transcription import Transcription as Transcription
from lucid.models.speech.transcription import transcribe as transcribe
from lucid.models.speech.wav import WavError as WavError
from lucid.models.speech.wav import read_wav as read_wav
from lucid.models.speech.whisper_tokens import WhisperTokenizer as WhisperTokenizer
from lucid.nn import functional as F


@dataclass(frozen=True)
class WhisperStackConfig(StackConfig):
    """The sizes of the encoder's or the decoder's layers."""

    key_bias: bool = False


@dataclass(frozen=True)
class WhisperConfig(SoundConfig):
    """The sizes of both stacks, of the input and of the output."""

    encoder: WhisperStackConfig
    decoder: WhisperStackConfig
    vocab_size: int = option.size("vocab_size")
    num_mel_bins: int = option.size("num_mel_bins")
    max_source_positions: int = option.size("max_source_positions")
    max_target_positions: int = option.size("max_target_positions")
    tied: bool = True  # the output layer is the table of token vectors
    decoder_start_token_id: int | None = option.whole("decoder_start_token_id", absent=None, low=0)  # begins texts

    @property
    def max_positions(self) -> int:
        """The most tokens of a text."""
        return self.max_target_positions

    @classmethod
    def read(cls, options: Config) -> Self:
        options.only("is_encoder_decoder", True)
        return cls.from_rows(
            options,
            encoder=WhisperStackConfig.read(options, "encoder"),
            decoder=WhisperStackConfig.read(options, "decoder"),
            tied=tied_output(options, r"proj_out\.weight", r"(?:model\.)?decoder\.embed_tokens\.weight"),
        )


class Whisper(TwoStacks[WhisperConfig]):
    """Speech and the text so far to the logits of the token that follows each token."""

    checkpoint = Checkpoint(
        family=FAMILIES["whisper"],
        read=WhisperConfig.read,
        ignored_options=[
            "scale_embedding",  # unused by every version of the model
            "apply_spec_augment|mask_(time|feature)_.*",  # training
            "classifier_proj_size|use_weighted_layer_sum",  # of a classifier
        ],
        renames=[(r"^(?!model\.|proj_out\.)", "model.")],
        tied_keys={"proj_out.weight": "model.decoder.embed_tokens.weight"},
    )
    model: EncoderDecoder

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__(config)
        self.model = EncoderDecoder(config)
        self.proj_out = None if config.tied else nn.Linear(config.decoder.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Logits (N, L, vocab_size).

        Args:
            input_features: (N, mels, frames), 30 seconds of sound, padded with silence.
            decoder_input_ids: (N, L) int64.
        """
        return self.logits(self.model(input_features, decoder_input_ids)[0])

    def encode(self, input_features: Tensor) -> Tensor:
        """(N, mels, frames) to (N, positions, hidden_size)."""
        return self.model.encoder(input_features)

    def step(
        self,
        input_ids: Tensor,
        positions: Tensor,
        caches: Sequence[nn.EncoderDecoderCache],
        key_mask: Tensor | None,
    ) -> Step:
        return self.model.decoder.step(input_ids, positions, caches)

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.table) if self.proj_out is None else self.proj_out(x)

    @property
    def table(self) -> Tensor:
        return self.model.decoder.embed_tokens.weight

    def input_specs(self) -> Mapping[str, TensorType]:
        return {**self.encoder_input_specs("N"), "decoder_input_ids": lucid.spec("N", "L", dtype=lucid.int64)}

    def encoder_input_specs(self, batch: str = "batch_size") -> Mapping[str, TensorType]:
        return self.model.encoder.input_specs(batch)


class EncoderDecoder(nn.Module):
    """Encoder and decoder, without the output layer."""

    def __init__(self, config: WhisperConfig) -> None:
        self.encoder, self.decoder = Encoder(config), Decoder(config)

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The decoder's states (N, L, hidden_size) and the encoder's (N, positions, hidden_size)."""
        speech = self.encoder(input_features)
        return self.decoder(decoder_input_ids, speech), speech


class Encoder(nn.Module):
    """Log-mel features (N, mels, 2 * positions) to (N, positions, hidden_size)."""

    def __init__(self, config: WhisperConfig) -> None:
        stack, mels, positions = config.encoder, config.num_mel_bins, config.max_source_positions
        self.mels, self.frames = mels, 2 * positions
        self.conv1 = nn.Conv1d(mels, stack.hidden_size, 3, padding=1)
        self.conv2 = nn.Conv1d(stack.hidden_size, stack.hidden_size, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(positions, stack.hidden_size)
        self.layers = [EncoderLayer(stack) for _ in range(stack.num_layers)]
        self.layer_norm = nn.LayerNorm(stack.hidden_size)

    def forward(self, input_features: Tensor) -> Tensor:
        return self.layer_norm(self.hidden_states(input_features)[-1])

    def input_specs(self, batch: str = "N") -> Mapping[str, TensorType]:
        return {"input_features": lucid.spec(batch, self.mels, self.frames, dtype=self.conv1.weight.dtype)}

    def hidden_states(self, input_features: Tensor) -> list[Tensor]:
        """The input of the first layer, and the output of each layer."""
        if input_features.ndim != 3 or input_features.shape[1:] != (self.mels, self.frames):
            shape = ", ".join(map(str, input_features.shape))
            raise ValueError(
                f"Whisper: input_features has shape [{shape}], expected (N, {self.mels}, {self.frames}): "
                "pad the sound with silence"
            )
        x = F.gelu(self.conv2(F.gelu(self.conv1(input_features))))
        states = [x.mT + self.embed_positions.weight[:]]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return states


class Decoder(nn.Module):
    """Token ids (N, L) and the encoder's output to (N, L, hidden_size)."""

    def __init__(self, config: WhisperConfig) -> None:
        stack = config.decoder
        embedding = nn.TiedEmbedding if config.tied else nn.Embedding
        self.embed_tokens = embedding(config.vocab_size, stack.hidden_size)
        self.embed_positions = nn.LearnedPositions(config.max_target_positions, stack.hidden_size)
        self.layers = [DecoderLayer(stack) for _ in range(stack.num_layers)]
        self.layer_norm = nn.LayerNorm(stack.hidden_size)

    def forward(self, input_ids: Tensor, speech: Tensor) -> Tensor:
        return self.layer_norm(self.hidden_states(input_ids, speech)[-1])

    def hidden_states(self, input_ids: Tensor, speech: Tensor) -> list[Tensor]:
        """The input of the first layer, and the output of each layer."""
        states = [self.embed_tokens(input_ids) + self.embed_positions(input_ids.shape[1])]
        for layer in self.layers:
            states.append(layer(states[-1], None, speech)[0])
        return states

    def step(self, input_ids: Tensor, positions: Tensor, caches: Sequence[nn.EncoderDecoderCache]) -> Step:
        """The same for new tokens at these positions, and the updated caches of the layers."""
        x, present = self.embed_tokens(input_ids) + self.embed_positions(positions), []
        for layer, (past, speech) in zip(self.layers, caches, strict=True):
            x, cache = layer(x, past, speech)
            present.append(cache)
        return self.layer_norm(x), present


class WhisperStates(Head[WhisperConfig], on=Whisper):
    """Features (N, mels, frames) and text (N, L) to the states of the decoder, (N, L, E), and of the encoder."""

    head_task, other_heads = "feature-extraction", "proj_out"
    output_names = ("last_hidden_state", "encoder_last_hidden_state")

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__(config)
        self.model = EncoderDecoder(config)

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.model(input_features, decoder_input_ids)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {**self.model.encoder.input_specs(), "decoder_input_ids": lucid.spec("N", "L", dtype=lucid.int64)}


class WhisperForAudioClassification(SoundClassifier[WhisperConfig], on=Whisper):
    """Features (N, mels, frames) to the logits of their classes, (N, num_labels), such as the language that is spoken.

    Two layers read the encoder's last states, or the weighted sum of those of all layers; between them is the mean.
    """

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(config)
        self.add_weights(config.encoder.num_layers)
        self.add_classifier(config.encoder.hidden_size)

    def forward(self, input_features: Tensor) -> Tensor:
        *inner, last = self.encoder.hidden_states(input_features)
        return self.classes([*inner, self.encoder.layer_norm(last)])


def main() -> None:
    """Generate a few tokens greedily with the exported model, and compare it with eager."""
    whisper = Whisper.from_pretrained(checkpoint_folder("whisper/base"))
    both, encoder = SideBySide(whisper), whisper.model.encoder
    lucid.manual_seed(0)
    features = lucid.randn(1, encoder.mels, encoder.frames)
    ids = written(lambda ids: both(features, ids), lucid.tensor([[1]]))
    print(f"token ids {ids}, {both.verdict('logits')}")


if __name__ == "__main__":
    main()
