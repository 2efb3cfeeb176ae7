"""Sound at another sample rate: what can be kept stays as it is, and what cannot disappears."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid.models.speech.resampling import resample

RATE = 16_000
RATES = [8_000, 11_025, 22_050, 44_100, 48_000, 44_056, 96_000]


def tone(frequency: float, rate: int, seconds: float = 0.2) -> np.ndarray:
    return np.sin(2 * np.pi * frequency * np.arange(int(seconds * rate)) / rate)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("part", [0.05, 0.5, 0.9])
def test_a_sine_stays_a_sine(rate: int, part: float) -> None:
    """Up to 0.9 of the lower Nyquist frequency, away from the ends, where there was silence before."""
    frequency = part * min(rate, RATE) / 2
    samples = resample(tone(frequency, rate), rate, RATE)
    edge = 2 * 70 * RATE // min(rate, RATE)
    np.testing.assert_allclose(samples[edge:-edge], tone(frequency, RATE)[: samples.size][edge:-edge], atol=2e-5)


@pytest.mark.parametrize("rate", [rate for rate in RATES if rate > RATE])
@pytest.mark.parametrize("frequency", [8_000, 9_000, 10_500])
def test_a_frequency_that_the_lower_rate_cannot_hold_disappears(rate: int, frequency: float) -> None:
    """Decimation alone would give 9 kHz back as a tone of 7 kHz, as loud."""
    samples = resample(tone(frequency, rate), rate, RATE)
    assert np.abs(samples[200:-200]).max() < 2e-5


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("size", [0, 1, 160, 441, 1000])
def test_the_length_is_that_of_the_same_time(rate: int, size: int) -> None:
    samples = resample(np.ones(size), rate, RATE)
    assert samples.dtype == np.float32
    assert samples.shape == (-(-size * RATE // rate),)


def test_the_blocks_of_a_long_signal_fit_together() -> None:
    """A signal in two halves, overlapping by the length of the filter, gives what it gives in one."""
    sound = np.random.default_rng(0).standard_normal(441 * 300)
    whole = resample(sound, 44_100, RATE)
    later = resample(sound[441 * 100 :], 44_100, RATE)
    np.testing.assert_allclose(later[160:], whole[160 * 101 :], atol=1e-6)


def test_the_same_rate_changes_nothing() -> None:
    sound = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    assert resample(sound, RATE, RATE).tolist() == sound.tolist()


@pytest.mark.parametrize(
    ("rate", "to", "error", "message"),
    [
        (0, 16_000, ValueError, "resample: rate is 0, expected 1 or more"),
        (16_000, -1, ValueError, "resample: to is -1, expected 1 or more"),
        (16_000, 22_050.5, TypeError, "resample: to is 22050.5, expected a whole number"),
    ],
)
def test_a_rate_is_a_positive_whole_number(rate: int, to: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        resample(np.zeros(3), rate, to)
