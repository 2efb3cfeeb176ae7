"""Log-mel features against transformers and against a reference by their definition, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
from lucid.models.speech.log_mel import log_mel
from lucid.models.speech.wav import read_wav
from tests.models import goldens

FOLDER = goldens.folder("transcription")
SOUND = read_wav(FOLDER / "sound.wav")  # 3 s


@pytest.mark.parametrize("mels", [80, 128])
def test_the_features_are_those_of_transformers(mels: int) -> None:
    """Every 7th column of the first 3.5 s, half a second of which is the silence that both add."""
    expected = lucid.load(FOLDER / "features.safetensors")[f"mels_{mels}"]
    features = log_mel(SOUND, mels)
    assert features.shape == (mels, 3000) and features.dtype == np.float32
    np.testing.assert_allclose(features[:, :350:7], expected, atol=1e-5)


def reference(samples: np.ndarray, mels: int, frames: int) -> np.ndarray:
    """By the definition: Fourier sums, and triangles between edges that are evenly spaced on Slaney's mel scale."""
    padded = np.zeros(frames * 160)
    padded[: samples.size] = samples[: frames * 160]
    padded = np.concatenate([padded[200:0:-1], padded, padded[-2:-202:-1]])
    time, frequency = np.arange(400), np.arange(201)
    hann = np.sin(np.pi * time / 400) ** 2
    waves = np.exp(-2j * np.pi * frequency[:, None] * time / 400)
    power = np.abs(np.stack([waves @ (padded[160 * i :][:400] * hann) for i in range(frames)], axis=1)) ** 2
    top = 15 + 27 * np.log(8) / np.log(6.4)
    edges = [mel / 0.015 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27) for mel in np.linspace(0, top, mels + 2)]
    bands = [np.interp(frequency * 40, edges[i : i + 3], [0, 1, 0]) @ power for i in range(mels)]
    areas = [(edges[i + 2] - edges[i]) / 2 for i in range(mels)]
    logs = np.log10(np.maximum(np.array(bands) / np.array(areas)[:, None], 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


@pytest.mark.parametrize("mels", [8, 80, 128])
def test_the_features_are_those_of_the_definition(mels: int) -> None:
    expected = reference(SOUND[8_000:], mels, 120)
    np.testing.assert_allclose(log_mel(SOUND[8_000:], mels, 120), expected, atol=1e-6)


def test_a_short_sound_is_padded_with_silence_and_a_long_one_cut() -> None:
    silent = np.concatenate([SOUND[:1000], np.zeros(2200, np.float32)])
    np.testing.assert_array_equal(log_mel(SOUND[:1000], 8, 20), log_mel(silent, 8, 20))
    np.testing.assert_array_equal(log_mel(SOUND, 8, 20), log_mel(SOUND[:3200], 8, 20))


def test_the_blocks_of_a_long_sound_fit_together() -> None:
    """The same second after 29.5 s, where a block ends, equals the first, except in the first and last columns."""
    late = np.concatenate([np.zeros(29 * 16_000 + 8_000, np.float32), SOUND[:16_000], np.zeros(800, np.float32)])
    columns = log_mel(late, 8, 3100)[:, 2950:3050]
    np.testing.assert_allclose(columns[:, 2:-2], log_mel(SOUND[:16_000], 8, 100)[:, 2:-2], atol=1e-6)


def test_an_empty_sound_has_the_features_of_silence() -> None:
    np.testing.assert_array_equal(log_mel(np.zeros(0, np.float32), 8, 20), np.full((8, 20), -1.5, np.float32))


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        (np.zeros(9, np.int16), TypeError, "samples have dtype int16, expected floating-point .*divide int16 by 32768"),
        (np.zeros((2, 9)), ValueError, r"samples have shape \[2, 9\], expected \(n,\); take the mean of the channels"),
        (np.array([0, np.nan]), ValueError, "samples hold NaN or infinity, expected finite numbers"),
    ],
)
def test_samples_that_are_no_sound_are_refused(samples: np.ndarray, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"log_mel: {message}"):
        log_mel(samples)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ({"mels": 0}, ValueError, "log_mel: mels is 0, expected 1 or more"),
        ({"frames": 1}, ValueError, "log_mel: frames is 1, expected 2 or more"),
        ({"mels": 80.0}, TypeError, "log_mel: mels is 80.0, expected a whole number"),
        ({"frames": "20"}, TypeError, "log_mel: frames is '20', expected a whole number"),
    ],
)
def test_sizes_out_of_range_are_refused(sizes: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        log_mel(SOUND, **sizes)
