"""The type of an input that holds texts. Only files have such inputs: Lucid computes with numbers."""

from __future__ import annotations

from dataclasses import dataclass

from lucid.core.graph.types import show_shape
from lucid.core.sizes.dims import Shape


@dataclass(frozen=True)
class Strings:
    """Texts in an array of a shape."""

    shape: Shape

    def __str__(self) -> str:
        return f"string{show_shape(self.shape)}"
