"""The base of classifiers of sounds: two layers on the states of an encoder, with the mean between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from lucid import Tensor, nn, ops
from lucid.models.checkpoints.labels import reading_labels
from lucid.models.checkpoints.option_table import OptionTable
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.parts.on_model import OnModel


@dataclass(frozen=True, kw_only=True)
class SoundConfig(OptionTable):
    """The base of the configs of encoders of sounds: what a head needs."""

    num_labels: int = 0
    projector_size: int = 0  # of a classifier
    weighted_layers: bool = False  # a classifier of all layers' states


C = TypeVar("C", bound=SoundConfig)


class OnSounds(OnModel[C]):
    """The base of heads, which read the last states of an encoder or the weighted sum of all layers'."""

    def add_weights(self, layers: int) -> None:
        """The weights of the states, if all are read."""
        weighted = self.config.weighted_layers
        self.layer_weights = nn.init.new_parameter(layers + 1, value=1.0) if weighted else None

    def summed(self, states: Sequence[Tensor]) -> Tensor:
        """From the states that enter and leave the layers, (N, frames, E) each, to what the head reads."""
        return states[-1] if self.layer_weights is None else ops.stack(states, -1) @ self.layer_weights.softmax(-1)


class SoundClassifier(OnSounds[C]):
    """Sounds to the logits of their classes, (N, num_labels), from the states of an encoder."""

    def add_head(self, width: int, layers: int) -> None:
        """The two layers, and the weights of the states if all are read."""
        self.add_weights(layers)
        self.projector = nn.Linear(width, self.config.projector_size)
        self.classifier = nn.Linear(self.config.projector_size, self.config.num_labels)

    def classes(self, states: Sequence[Tensor], kept: Tensor | None = None) -> Tensor:
        """From the states that enter and leave the layers; `kept` (N, frames): not padding."""
        x = self.projector(self.summed(states))
        if kept is None:
            return self.classifier(x.mean(1))
        counted = kept.astype(x.dtype).unsqueeze(2)
        return self.classifier((x * counted).sum(1) / counted.sum(1))


def for_sounds(base: Checkpoint[Any], read: Callable[[Config], C]) -> Checkpoint[C]:
    """The checkpoint of a `SoundClassifier`, whose config is otherwise read by `read`."""

    def read_sizes(options: Config) -> C:
        projector = options.weights.get("projector.weight")
        size = options.size("classifier_proj_size") if projector is None else projector.shape[0]
        return replace(read(options), projector_size=size)

    keys = [r"^classifier\.weight$", r"^projector\.weight$"]
    return replace(for_frames(base, read_sizes), head="audio-classification", head_keys=keys)


def for_frames(base: Checkpoint[Any], read: Callable[[Config], C]) -> Checkpoint[C]:
    """The checkpoint of a classifier of frames, whose config is otherwise read by `read`."""

    def read_weighted(options: Config) -> C:
        return replace(read(options), weighted_layers=options.get("use_weighted_layer_sum", bool, False))

    labeled = reading_labels(read_weighted, r"classifier\.weight")
    return replace(base, read=labeled, head="audio-frame-classification", head_keys=[r"^classifier\.weight$"])
