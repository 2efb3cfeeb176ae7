"""Scales and zeros fitted by least squares: no block loses more than by rounding, and all together as little as HQQ."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid.core.graph.types import Array
from lucid.quantization import Blocks, fit, hqq, rtn
from tests.combinations import some
from tests.quantization.test_hqq import loss
from tests.quantization.test_rtn import each, ends, exactly, weights

FORMATS = st.tuples(st.sampled_from([4, 8]), st.sampled_from([16, 32, 128]), st.booleans())


@settings(max_examples=some(100), deadline=None)
@given(weights(), FORMATS)
def test_no_weight_loses_more_than_by_rounding_and_codes_are_the_nearest(
    weight: Array, form: tuple[int, int, bool]
) -> None:
    blocks, plain = fit(weight, *form), rtn(weight, *form)
    unit = max(float(np.abs(weight).max()), 1e-45)
    assert (
        np.square((exactly(blocks) - weight) / unit).sum() <= 1.0001 * np.square((exactly(plain) - weight) / unit).sum()
    )
    error = np.abs(exactly(blocks) - np.clip(weight, *ends(blocks)))
    assert (error <= 0.500001 * np.abs(each(blocks.scales, blocks))).all()
    assert blocks.codes.max() < 2**blocks.bits and (blocks.zeros is None) == form[2]


@pytest.mark.parametrize("block", [16, 32, 128])
def test_loses_as_little_as_hqq_in_a_fraction_of_the_time(block: int) -> None:
    weight = np.random.default_rng(0).standard_normal((256, 768), np.float32)
    seconds = {}
    lost = {}
    for way in (rtn, hqq, fit):
        times = []
        for _ in range(3):
            start = time.process_time()
            lost[way] = loss(way(weight, 4, block), weight)
            times.append(time.process_time() - start)
        seconds[way] = min(times)
    assert lost[fit] < 0.975 * lost[rtn] and lost[fit] < 1.015 * lost[hqq]
    assert seconds[fit] < 0.5 * seconds[hqq]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("value", [0, 0.3, -0.7, 1e30, -1e-30, 1e-45])
def test_blocks_of_one_number_are_exact(value: float, symmetric: bool) -> None:
    weight = np.full((2, 40), value, np.float32)
    np.testing.assert_array_equal(fit(weight, 4, 32, symmetric).dequantized(), weight)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_weight_on_a_grid_stays_as_it_is(symmetric: bool) -> None:
    codes = np.random.default_rng(0).integers(0, 16, (6, 100), np.uint8)
    codes[:, ::16], codes[:, 1::16] = 0, 15
    zeros = None if symmetric else np.full((6, 4), 5, np.uint8)
    weight = Blocks(codes, np.full((6, 4), 0.0625, np.float32), zeros, 4, 32).dequantized()
    np.testing.assert_array_equal(fit(weight, 4, 32, symmetric).dequantized(), weight)


def test_what_cannot_be_rounded_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fit: the weight is nan at \[1, 2\], expected at most 1e30, and finite"):
        fit(np.array([[1, 2, 3], [1, 2, np.nan]], np.float32), 4, 32)
    with pytest.raises(ValueError, match="fit: the weight has shape"):
        fit(np.zeros(3, np.float32), 4, 32)
