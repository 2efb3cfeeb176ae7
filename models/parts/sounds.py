"""The bases of heads on encoders of sounds: the weighted states of all layers, and classes of sounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from lucid import Tensor, nn, ops
from lucid.models.checkpoints.option_table import OptionTable
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.parts.on_model import OnModel
from lucid.models.parts.sentences import Pooling


@dataclass(frozen=True, kw_only=True)
class SoundConfig(OptionTable):
    """The base of the configs of encoders of sounds: what a head needs."""

    num_labels: int = 0
    projector_size: int = 0  # of a classifier
    weighted_layers: bool = False  # a classifier of all layers' states


C = TypeVar("C", bound=SoundConfig)


class OnSounds(OnModel[C]):
    """The base of heads on the last states of an encoder, or on the weighted sum of the states of all layers."""

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        weighted = options.get("use_weighted_layer_sum", bool, False)
        return replace(super().read_config(options, base), weighted_layers=weighted)

    def add_weights(self, layers: int) -> None:
        """The weights of the states, if all are read."""
        weighted = self.config.weighted_layers
        self.layer_weights = nn.init.new_parameter(layers + 1, value=1.0) if weighted else None

    def summed(self, states: Sequence[Tensor]) -> Tensor:
        """The input of the head, from the input of the first layer and the output of each, (N, frames, E) each."""
        return states[-1] if self.layer_weights is None else ops.stack(states, -1) @ self.layer_weights.softmax(-1)


class SoundClassifier(OnSounds[C]):
    """Sounds to the logits of their classes, (N, num_labels): a layer, the mean over frames, and a layer."""

    head_task, label_key = "audio-classification", r"classifier\.weight"
    head_keys = (r"^classifier\.weight$", r"^projector\.weight$")

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        projector = options.weights.get("projector.weight")
        size = options.size("classifier_proj_size") if projector is None else projector.shape[0]
        return replace(super().read_config(options, base), projector_size=size)

    def add_classifier(self, width: int) -> None:
        """The two layers."""
        self.projector = nn.Linear(width, self.config.projector_size)
        self.classifier = nn.Linear(self.config.projector_size, self.config.num_labels)

    def classes(self, states: Sequence[Tensor], kept: Tensor | None = None) -> Tensor:
        """The logits, from the input of the first layer and the output of each; `kept` (N, frames): no padding."""
        return self.classifier(Pooling(("mean",))(self.projector(self.summed(states)), kept))
