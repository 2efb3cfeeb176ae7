"""The type of an input that holds texts. Only files have such inputs: Lucid computes with numbers."""

from __future__ import annotations

from dataclasses import dataclass

from lucid.dims import Shape
from lucid.types import show_shape


@dataclass(frozen=True)
class Strings:
    """Texts in an array of a shape."""

    shape: Shape

    def __str__(self) -> str:
        return f"string{show_shape(self.shape)}"
