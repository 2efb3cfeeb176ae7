"""Log-mel features: what Whisper hears (Radford et al. 2022, section 2.2)."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from lucid.core.number_ranges import at_least, check
from lucid.models.checkpoints.config import Array

SAMPLE_RATE = 16_000
HOP = 160
"""Samples from one frame to the next: 10 ms."""
_WINDOW = 400  # samples of a frame: 25 ms
_BLOCK = 3000  # frames computed at once, so that a long recording takes no more memory than its features


def log_mel(samples: npt.ArrayLike, mels: int = 80, frames: int = 3000) -> Array:
    """The logarithm of the power of sound in each mel band, one column every 10 ms.

    Hann windows of 400 samples every 160, centred on their sample, with the signal reflected at both ends; triangular
    filters on Slaney's mel scale, of equal area, from 0 to 8 kHz; the logarithm to base 10 of their sums, at least 8
    below the largest of the whole signal; then (x + 4) / 4. Computed in float64. The numbers are those of transformers'
    `WhisperFeatureExtractor` and of openai/whisper, up to their rounding in float32.

    Args:
        samples: (n,) floating-point, 16,000 per second, from -1 to 1.
        mels: the number of bands: 80, or 128 for large-v3.
        frames: the number of columns, at least 2. A longer signal is cut, a shorter one padded with silence.

    Returns:
        (mels, frames) float32.

    Raises:
        TypeError: for samples that are not floating-point, and `mels` or `frames` that are no whole number.
        ValueError: for samples of another shape or not finite, and for `mels` or `frames` out of range.
    """
    sound = checked_samples(samples, "log_mel")
    check("log_mel: mels", mels, at_least(1))
    check("log_mel: frames", frames, at_least(2))
    sound = sound[: frames * HOP]
    padded = np.pad(sound, (0, frames * HOP - sound.size))
    padded = np.pad(padded, _WINDOW // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
    features = np.empty((mels, frames), np.float32)
    for begin in range(0, frames, _BLOCK):
        end = min(begin + _BLOCK, frames)
        spectrum = np.fft.rfft(windows[begin:end] * hann)  # in float64
        power = spectrum.real**2 + spectrum.imag**2
        features[:, begin:end] = np.log10(np.maximum(_filters(mels) @ power.T, 1e-10))
    features = np.maximum(features, features.max() - 8)
    return np.asarray((features + 4) / 4)


def checked_samples(samples: npt.ArrayLike, who: str) -> Array:
    """The samples as an array (n,).

    Raises:
        TypeError: for anything but floating-point numbers.
        ValueError: for another shape, or samples that are not finite.
    """
    sound = np.asarray(samples)
    if sound.dtype.kind != "f":
        raise TypeError(
            f"{who}: samples have dtype {sound.dtype}, expected floating-point from -1 to 1; divide int16 by 32768"
        )
    if sound.ndim != 1:
        raise ValueError(f"{who}: samples have shape {list(sound.shape)}, expected (n,); take the mean of the channels")
    if not np.isfinite(sound).all():
        raise ValueError(f"{who}: samples hold NaN or infinity, expected finite numbers; check how they were read")
    return sound


@cache
def _filters(mels: int) -> Array:
    """(mels, 201): the weight of each frequency of a frame in each band.

    Band i rises from edge i to edge i + 1 and falls to edge i + 2; the edges are evenly spaced in mels. Each is divided
    by half its width, so that all have the same area.
    """
    frequencies = np.linspace(0, SAMPLE_RATE / 2, _WINDOW // 2 + 1)
    edges = _hertz(np.linspace(0, _LAST_MEL, mels + 2))[:, None]
    low, peak, high = edges[:-2], edges[1:-1], edges[2:]
    triangles = np.minimum((frequencies - low) / (peak - low), (high - frequencies) / (high - peak))
    return np.asarray(np.maximum(triangles, 0) * 2 / (high - low))


# Slaney's mel scale (Auditory Toolbox, 1998): 3 mels in 200 Hz up to 1 kHz, which is 15 mels; above that 27 mels are a
# factor of 6.4.
_LAST_MEL = 15 + 27 * np.log(SAMPLE_RATE / 2 / 1000) / np.log(6.4)


def _hertz(mels: Array) -> Array:
    return np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) / 27 * np.log(6.4)))
