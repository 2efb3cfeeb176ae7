"""Half-quadratic quantisation with whole zeros: between rounding and its search, without inputs."""

from __future__ import annotations

import numpy as np
import pytest

from lucid.core.graph.types import Array
from lucid.quantization import Blocks, hqq, rtn


def loss(blocks: Blocks, weight: Array) -> float:
    return float(np.linalg.norm(blocks.dequantized() - weight) / np.linalg.norm(weight))


@pytest.mark.parametrize("bits, block, share", [(4, 32, 0.965), (4, 128, 0.965), (8, 64, 0.99)])
def test_loses_less_than_rounding(bits: int, block: int, share: float) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 300), np.float32)
    assert loss(hqq(weight, bits, block), weight) < share * loss(rtn(weight, bits, block), weight)


def test_no_block_loses_more_than_by_rounding() -> None:
    weight = np.random.default_rng(1).standard_t(3, (64, 32)).astype(np.float32)
    hqq_errors, rtn_errors = (np.square(way(weight, 4, 32).dequantized() - weight).sum(axis=1) for way in (hqq, rtn))
    assert (hqq_errors <= rtn_errors * 1.0001).all()


def test_zeros_are_whole_and_codes_are_the_nearest() -> None:
    weight = np.random.default_rng(2).standard_normal((8, 100), np.float32) + 1
    blocks = hqq(weight, 4, 32)
    assert blocks.zeros is not None and blocks.zeros.dtype == np.uint8 and blocks.zeros.max() <= 15
    scales, zeros = (np.repeat(values, 32, axis=1)[:, :100] for values in (blocks.scales, blocks.zeros))
    np.testing.assert_array_equal(blocks.codes, np.clip(np.rint(weight / scales) + zeros, 0, 15))


@pytest.mark.parametrize("value", [0, 0.3, -0.7, 1e30, -1e-30, 1e-45])
def test_blocks_of_one_number_are_exact(value: float) -> None:
    weight = np.full((2, 40), value, np.float32)
    np.testing.assert_array_equal(hqq(weight, 4, 32).dequantized(), weight)


def test_a_weight_on_a_grid_stays_as_it_is() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (6, 100), np.uint8)
    codes[:, ::16], codes[:, 1::16] = 0, 15
    weight = Blocks(codes, np.full((6, 4), 0.0625, np.float32), np.full((6, 4), 5, np.uint8), 4, 32).dequantized()
    np.testing.assert_array_equal(hqq(weight, 4, 32).dequantized(), weight)


@pytest.mark.parametrize("size", [1e-45, 1e-44, 1e-38, 1e29])
def test_tiny_and_huge_numbers_stay_finite(size: float) -> None:
    weight = (np.random.default_rng(0).standard_normal((40, 33)) * size).astype(np.float32)
    assert np.isfinite(hqq(weight, 4, 16).dequantized()).all()
