"""Heads: layers on a whole model, which is their first part and gets their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

from lucid import TensorType
from lucid.models.checkpoints.pretrained import Pretrained

C = TypeVar("C")


class OnModel(Pretrained[C]):
    """The base of heads, which take the inputs of their first part."""

    output_names: ClassVar[Sequence[str]] = ("logits",)

    def input_specs(self) -> Mapping[str, TensorType]:
        return next(iter(self.children())).input_specs()
