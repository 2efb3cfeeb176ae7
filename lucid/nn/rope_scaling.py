"""Ways to extend rotary positions to longer texts than the model was trained on.

Each changes the inverse frequencies (rotary_dim / 2, highest first); the field names are those of published configs.
`RotaryEmbedding` takes one as `scaling`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lucid import ops
from lucid.core.graph.types import Array, float32
from lucid.ops.tensor.tensor import Tensor


def inverse_frequencies(rotary_dim: int, base: float) -> Array:
    """1 / base^(2i / rotary_dim) as float32, (rotary_dim / 2).

    Each step is rounded to float32, as in the training of the published models: at large positions, the last bit of a
    frequency changes the angle.
    """
    return np.asarray(np.float32(1.0) / _wavelengths(rotary_dim, base))


def _wavelengths(rotary_dim: int, base: float) -> Array:
    """base^(2i / rotary_dim) as float32: the wavelengths, divided by 2 pi."""
    exponents = np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim)
    return (np.float64(base) ** exponents.astype(np.float64)).astype(np.float32)


@dataclass(frozen=True)
class RopeScaling:
    """The base class of all scalings, which does not scale.

    Args:
        factor: how much longer texts may be than in training.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.factor < math.inf:
            raise ValueError(f"{type(self).__name__}: factor is {self.factor}, expected a finite number of 1 or more")

    @property
    def magnitude(self) -> float:
        """The factor of cosines and sines."""
        return 1.0

    def scale(self, frequencies: Array, base: float) -> Array:
        """The scaled frequencies."""
        return frequencies

    def at_length(self, frequencies: Tensor, base: float, positions: Tensor) -> Tensor:
        """The frequencies, scaled again if that depends on the length of the text."""
        return frequencies


@dataclass(frozen=True)
class LinearScaling(RopeScaling):
    """Positions divided by the factor (Chen et al. 2023)."""

    def scale(self, frequencies: Array, base: float) -> Array:
        return frequencies / np.float32(self.factor)


@dataclass(frozen=True)
class NTKScaling(RopeScaling):
    """A larger base, base * factor^(d / (d - 2)): divides low frequencies by the factor, hardly changes high ones."""

    def scale(self, frequencies: Array, base: float) -> Array:
        dim = 2 * len(frequencies)
        if dim == 2:  # the one frequency is 1 with any base
            return frequencies
        return inverse_frequencies(dim, base * self.factor ** (dim / (dim - 2)))


@dataclass(frozen=True)
class DynamicNTKScaling(RopeScaling):
    """NTK scaling that grows with the text: nothing changes up to `max_position_embeddings`.

    For a longer text of length l, the base is multiplied by (factor * l / max - (factor - 1))^(d / (d - 2)).
    """

    max_position_embeddings: int = 2048

    def at_length(self, frequencies: Tensor, base: float, positions: Tensor) -> Tensor:
        dim = 2 * int(frequencies.shape[0])
        if dim == 2:
            return frequencies
        length = ops.maximum(positions.max() + 1, self.max_position_embeddings).astype(float32)
        growth = length * (self.factor / self.max_position_embeddings) - (self.factor - 1)
        exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
        return frequencies * ops.pow(growth, -exponents * np.float32(dim / (dim - 2)))


@dataclass(frozen=True)
class Llama3Scaling(RopeScaling):
    """Llama 3.1: long wavelengths are multiplied by the factor, short ones kept, those between interpolated.

    Short is below original / high_freq_factor positions, long above original / low_freq_factor.
    """

    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    def scale(self, frequencies: Array, base: float) -> Array:
        turns = self.original_max_position_embeddings * frequencies.astype(np.float64) / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = np.clip(kept, 0.0, 1.0)
        return np.asarray(((1 - kept) / self.factor + kept) * frequencies, np.float32)


@dataclass(frozen=True)
class YarnScaling(RopeScaling):
    """YaRN (Peng et al. 2023): frequencies with many rotations in the trained length are kept, low ones are divided by
    the factor.

    Between `beta_fast` and `beta_slow` rotations, a linear ramp over the feature index interpolates. Cosines and sines
    are multiplied by `attention_factor`, 0.1 ln(factor) + 1 by default; with `mscale` and `mscale_all_dim` by the
    quotient of 0.1 m ln(factor) + 1 of both. `truncate`: the ramp starts and ends at whole indices.
    """

    original_max_position_embeddings: int = 2048
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    @property
    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self.temperature(self.mscale) / self.temperature(self.mscale_all_dim)
        return self.temperature(1.0)

    def temperature(self, m: float) -> float:
        """0.1 m ln(factor) + 1."""
        return 0.1 * m * math.log(self.factor) + 1.0

    def scale(self, frequencies: Array, base: float) -> Array:
        count = len(frequencies)
        low, high = (self._index(turns, 2 * count, base) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * count - 1)
        ramp = (np.arange(count) - low) / (high - low if high != low else 0.001)
        stretched = np.clip(ramp, 0.0, 1.0)
        return np.asarray((stretched / self.factor + (1 - stretched)) * frequencies, np.float32)

    def _index(self, turns: float, dim: int, base: float) -> float:
        """The feature index whose frequency makes this number of rotations within the trained length."""
        wavelength = self.original_max_position_embeddings / (turns * 2 * math.pi)
        return dim * math.log(wavelength) / (2 * math.log(base))


@dataclass(frozen=True)
class LongRopeScaling(RopeScaling):
    """LongRoPE (Ding et al. 2024): each frequency is divided by a factor of its own.

    These are `short_factor` in texts of up to `original_max_position_embeddings` tokens, `long_factor` in longer ones.

    Cosines and sines are multiplied by `attention_factor`, by default sqrt(1 + ln(factor) / ln(original)).
    """

    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    original_max_position_embeddings: int = 4096
    attention_factor: float | None = None

    @property
    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_max_position_embeddings))

    def scale(self, frequencies: Array, base: float) -> Array:
        return self._divided(self.short_factor, len(frequencies), base)

    def at_length(self, frequencies: Tensor, base: float, positions: Tensor) -> Tensor:
        long = self._divided(self.long_factor, int(frequencies.shape[0]), base)
        return ops.where(positions.max() >= self.original_max_position_embeddings, long, frequencies)

    def _divided(self, factors: tuple[float, ...], count: int, base: float) -> Array:
        if len(factors) != count:
            raise ValueError(f"LongRopeScaling: got {len(factors)} factors for {count} frequencies")
        return np.asarray(np.float32(1.0) / (np.asarray(factors, np.float32) * _wavelengths(2 * count, base)))
