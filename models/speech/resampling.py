"""Sound at another sample rate, by a windowed-sinc low-pass filter in polyphase form.

Between any two samples the sound is a sum of the neighbouring samples, weighted by a sinc (Shannon 1949) times a Kaiser
window. Going down, the sinc is wider, so that what the lower rate cannot hold is removed and does not come back as
another frequency. Output sample m lies at the input sample m * from / to, so its weights depend on m modulo `to` alone:
those of one remainder are one filter.
"""

from __future__ import annotations

import math

import numpy as np

from lucid.core.number_ranges import at_least, check
from lucid.models.checkpoints.config import Array

_ZEROS = 64
"""Zeros of the sinc on either side. With 100 dB this makes the transition a tenth of the lower Nyquist frequency."""
_CUTOFF = 0.95
"""The middle of the transition, as a part of the lower Nyquist frequency: it ends where aliases would begin."""
_BETA = 0.1102 * (100 - 8.7)
"""Kaiser's beta for an attenuation of 100 dB (Kaiser and Schafer 1980)."""
_BLOCK = 256
"""How many filters, and how many periods, one matrix product computes."""


def resample(samples: Array, rate: int, to: int) -> Array:
    """The same sound at another sample rate.

    Frequencies up to 0.9 of the lower of both Nyquist frequencies keep their amplitude within 2e-5, those from this
    Nyquist frequency on lose 100 dB. Before and after the signal there is silence.

    Args:
        samples: (n,) floating-point.
        rate, to: samples per second, before and after; positive.

    Returns:
        (ceil(n * to / rate),) float32; its first sample lies at the time of the first one given.

    Raises:
        TypeError: for a rate that is no whole number.
        ValueError: for one that is not positive.
    """
    check("resample: rate", rate, at_least(1))
    check("resample: to", to, at_least(1))
    if rate == to or samples.size == 0:
        return samples.astype(np.float32)
    common = math.gcd(rate, to)
    step, phases = rate // common, to // common
    width = min(1.0, to / rate) * _CUTOFF  # of the pass band, relative to the input's Nyquist frequency
    reach = math.ceil(_ZEROS / width)  # input samples on either side that have a weight
    count = -(-samples.size * phases // step)
    periods = -(-count // phases)  # each of `step` input samples and `phases` output samples
    padded = np.pad(samples.astype(np.float64), (reach - 1, periods * step - samples.size + reach))
    resampled = np.empty((periods, phases), np.float32)
    needed = min(phases, count)
    for begin in range(0, needed, _BLOCK):
        positions = np.arange(begin, min(begin + _BLOCK, needed)) * step / phases  # in input samples
        filters, first = _filters(positions, width, reach)
        windows = np.lib.stride_tricks.sliding_window_view(padded, len(filters))[first::step]
        for row in range(0, periods, _BLOCK):
            block = np.ascontiguousarray(windows[row : min(row + _BLOCK, periods)])
            resampled[row : row + _BLOCK, begin : begin + len(positions)] = block @ filters
    return resampled.reshape(-1)[:count]


def _filters(positions: Array, width: float, reach: int) -> tuple[Array, int]:
    """The weights (m, p) of m successive input samples at each of p positions among them, and the first sample."""
    before = np.floor(positions).astype(np.int64)
    offsets = np.arange(1 - reach, reach + 1)
    distance = offsets - (positions - before)[:, None]
    window = np.i0(_BETA * np.sqrt(np.maximum(1 - (distance / reach) ** 2, 0))) / np.i0(_BETA)
    weights = width * np.sinc(width * distance) * window
    first = int(before[0])
    filters = np.zeros((int(before[-1]) - first + 2 * reach, positions.size))
    columns = np.arange(positions.size)[:, None]
    filters[before[:, None] - first + np.arange(2 * reach), columns] = weights
    return filters, first
