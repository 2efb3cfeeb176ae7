"""Whisper's encoder for classes of sounds, such as the language that is spoken.

::

    model = lucid.models.load("folder of a WhisperForAudioClassification")
    logits = model(input_features)                                       # (N, mels, frames) to (N, num_labels)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models.checkpoints.labels import reading_labels
from lucid.models.checkpoints.pretrained import Config, Pretrained
from lucid.models.parts.demonstration import SideBySide
from lucid.models.whisper import Encoder, Whisper, WhisperConfig, WhisperStackConfig


def _read(options: Config) -> WhisperConfig:
    size = options.size("classifier_proj_size", 256)
    weighted = options.get("use_weighted_layer_sum", bool, False)
    return replace(WhisperConfig.read(options), projector_size=size, weighted_layers=weighted)


class WhisperForAudioClassification(Pretrained[WhisperConfig]):
    """Features (N, mels, frames) to the logits of their classes, (N, num_labels): two layers, between them the mean.

    The first layer reads the last states, or the weighted sum of those of all layers.
    """

    checkpoint = replace(
        Whisper.checkpoint,
        read=reading_labels(_read, r"classifier\.weight"),
        head="audio-classification",
        renames=(),
        tied_keys={},
        head_keys=[r"^classifier\.weight$", r"^projector\.weight$"],
    )
    output_names: ClassVar[Sequence[str]] = ("logits",)

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__(config)
        width, layers = config.encoder.hidden_size, config.encoder.num_layers
        self.encoder = Encoder(config)
        self.layer_weights = nn.init.new_parameter(layers + 1, value=1.0) if config.weighted_layers else None
        self.projector = nn.Linear(width, config.projector_size)
        self.classifier = nn.Linear(config.projector_size, config.num_labels)

    def forward(self, input_features: Tensor) -> Tensor:
        if self.layer_weights is None:
            x = self.encoder(input_features)
        else:
            *inner, last = self.encoder.hidden_states(input_features)
            x = ops.stack([*inner, self.encoder.layer_norm(last)], -1) @ self.layer_weights.softmax(-1)
        return self.classifier(self.projector(x).mean(1))

    def input_specs(self) -> Mapping[str, TensorType]:
        encoder = self.encoder
        return {"input_features": lucid.spec("N", encoder.mels, encoder.frames, dtype=encoder.conv1.weight.dtype)}


def main() -> None:
    """Classify random features, exported and eagerly: ``python -m lucid.models.whisper_tasks FOLDER``."""
    lucid.manual_seed(0)
    if len(sys.argv) > 1:
        model = WhisperForAudioClassification.from_pretrained(sys.argv[1])
    else:
        stack = WhisperStackConfig(hidden_size=16, num_layers=2, num_heads=4, intermediate_size=24)
        model = WhisperForAudioClassification(
            WhisperConfig(stack, stack, 30, 8, 10, 16, num_labels=3, projector_size=8)
        )
    both = SideBySide(model)
    features = lucid.randn(1, model.encoder.mels, model.encoder.frames)
    print(f"{features.shape} features are of class {both(features).argmax().item()}; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
