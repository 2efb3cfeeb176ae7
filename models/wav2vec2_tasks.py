"""Heads on wav2vec 2.0 and HuBERT: what is said, and classes of sounds.

::

    model = lucid.models.load("folder of a Wav2Vec2ForCTC")
    logits = model(input_values)                                         # (N, samples) to (N, frames, vocab_size)

    processor = CTCProcessor.from_pretrained(folder)                     # from sound to text: docs/howto/whisper.md
    transcribe(model, processor, read_wav("speech.wav")).text
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models.checkpoints.labels import reading_labels
from lucid.models.checkpoints.pretrained import Checkpoint, Config, Pretrained
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder
from lucid.models.speech.ctc import CTCProcessor as CTCProcessor
from lucid.models.speech.ctc import transcribe as transcribe
from lucid.models.speech.transcription import Segment as Segment
from lucid.models.speech.transcription import Transcription as Transcription
from lucid.models.speech.wav import WavError as WavError
from lucid.models.speech.wav import read_wav as read_wav
from lucid.models.wav2vec2 import Wav2Vec2, Wav2Vec2Config

_WITH_HEAD: Checkpoint[Wav2Vec2Config] = replace(
    Wav2Vec2.checkpoint,
    renames=[(r"^hubert\.", "wav2vec2."), *Wav2Vec2.checkpoint.renames[1:]],
    ignored_keys=[r"\bmasked_spec_embed$"],
)


class Wav2Vec2ForCTC(Pretrained[Wav2Vec2Config]):
    """Sound (N, samples) to the logits of the token that is said in each frame, (N, frames, vocab_size)."""

    checkpoint = replace(
        _WITH_HEAD,
        read=reading_labels(Wav2Vec2Config.read, r"lm_head\.weight"),
        head="automatic-speech-recognition",
        head_keys=[r"^lm_head\.weight$"],
    )
    output_names: ClassVar[Sequence[str]] = ("logits",)

    def __init__(self, config: Wav2Vec2Config) -> None:
        super().__init__(config)
        self.wav2vec2 = Wav2Vec2(config)
        self.lm_head = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_values: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.lm_head(self.wav2vec2(input_values, attention_mask))

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.wav2vec2.input_specs()


def _read_classifier(options: Config) -> Wav2Vec2Config:
    weighted = options.get("use_weighted_layer_sum", bool, False)
    if weighted:
        options.only("do_stable_layer_norm", False)  # releases of transformers differ in whether the last is normalised
    projector = options.weights.get("projector.weight")
    size = projector.shape[0] if projector is not None else options.size("classifier_proj_size")
    return replace(Wav2Vec2Config.read(options), projector_size=size, weighted_layers=weighted)


class Wav2Vec2ForSequenceClassification(Pretrained[Wav2Vec2Config]):
    """Sound (N, samples) to the logits of its classes, (N, num_labels): two layers, between them the mean of frames.

    The first layer reads the last states, or the weighted sum of those of all layers.
    """

    checkpoint = replace(
        _WITH_HEAD,
        read=reading_labels(_read_classifier, r"classifier\.weight"),
        head="audio-classification",
        head_keys=[r"^classifier\.weight$", r"^projector\.weight$"],
    )
    output_names: ClassVar[Sequence[str]] = ("logits",)

    def __init__(self, config: Wav2Vec2Config) -> None:
        super().__init__(config)
        self.wav2vec2 = Wav2Vec2(config)
        self.layer_weights = nn.init.new_parameter(config.num_layers + 1, value=1.0) if config.weighted_layers else None
        self.projector = nn.Linear(config.hidden_size, config.projector_size)
        self.classifier = nn.Linear(config.projector_size, config.num_labels)

    def forward(self, input_values: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x, kept = self.wav2vec2.frames(input_values, attention_mask)
        encoder = self.wav2vec2.encoder
        if self.layer_weights is None:
            x = encoder(x, kept)
        else:
            states = ops.stack(encoder.hidden_states(x, kept), -1)  # (N, frames, hidden_size, layers)
            x = states @ self.layer_weights.softmax(-1)
        x = self.projector(x)
        if kept is None:
            return self.classifier(x.mean(1))
        counted = kept.astype(x.dtype).unsqueeze(2)
        return self.classifier((x * counted).sum(1) / counted.sum(1))

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.wav2vec2.input_specs()


def main() -> None:
    """Write down a sound, exported and eagerly: ``python -m lucid.models.wav2vec2_tasks FOLDER``."""
    model = Wav2Vec2ForCTC.from_pretrained(checkpoint_folder("wav2vec2/ctc"))
    both = SideBySide(model)
    lucid.manual_seed(0)
    inputs = [lucid.randn(1, 1_600), lucid.ones(1, 1_600, dtype=lucid.int64)][: len(model.input_specs())]
    ids = both(*inputs).argmax(-1)[0].tolist()
    print(f"{len(ids)} frames, which begin with the tokens {ids[:8]}; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
