"""GPTQ: less error in what the layer computes than any rounding of each number by itself."""

from __future__ import annotations

import numpy as np
import pytest

from lucid.core.graph.types import Array
from lucid.quantization import Blocks, Hessian, gptq, rtn
from tests.combinations import in_pairs


def inputs(size: int, count: int = 300) -> Array:
    """Inputs that tell about each other, as a layer's do."""
    generator = np.random.default_rng(size)
    return generator.standard_normal((count, 12)) @ generator.standard_normal((12, size)) + 0.3 * (
        generator.standard_normal((count, size))
    )


def weight_of(rows: int, size: int) -> Array:
    return np.random.default_rng(rows + size).standard_normal((rows, size), np.float32)


def product_error(blocks: Blocks, weight: Array, x: Array) -> float:
    return float(np.linalg.norm(x @ (weight - blocks.dequantized()).T))


@in_pairs(shape=[(64, 16), (100, 32), (300, 256)], bits=[4, 8], symmetric=[False, True])
def test_products_are_nearer_than_by_rounding(shape: tuple[int, int], bits: int, symmetric: bool) -> None:
    size, block = shape
    x, weight = inputs(size), weight_of(24, size)
    searched = product_error(rtn(weight, bits, block, symmetric, search=True), weight, x)
    assert product_error(gptq(weight, x.T @ x, bits, block, symmetric), weight, x) < 0.6 * searched


@pytest.mark.parametrize("symmetric", [False, True])
def test_with_uncorrelated_inputs_gptq_is_rounding(symmetric: bool) -> None:
    weight = weight_of(5, 100)
    expected = rtn(weight, 4, 32, symmetric, search=True)
    blocks = gptq(weight, 7.0 * np.eye(100), 4, 32, symmetric)
    np.testing.assert_array_equal(blocks.codes, expected.codes)
    np.testing.assert_array_equal(blocks.scales, expected.scales)
    assert (blocks.zeros is None) == symmetric
    if blocks.zeros is not None:
        np.testing.assert_array_equal(blocks.zeros, expected.zeros)


def test_gptq_is_the_plain_loop_over_columns() -> None:
    """Section 3 as it is written: the inverse is made smaller after each column. A batch is 64; here are more."""
    x, weight = inputs(160), weight_of(6, 160)
    blocks = gptq(weight, x.T @ x, 8, 128, damping=0.05)
    rest, hessian = weight.astype(np.float64), x.T @ x
    inverse = np.linalg.inv(hessian + 0.05 * hessian.diagonal().mean() * np.eye(160))
    assert blocks.zeros is not None
    for at in range(160):
        scales, zeros = blocks.scales[:, at // 128].astype(np.float64), blocks.zeros[:, at // 128]
        codes = np.clip(np.rint(rest[:, at] / scales) + zeros, 0, 255)
        assert (codes != blocks.codes[:, at]).mean() < 0.2, at  # of numbers half way between two codes either is right
        assert np.abs(codes - blocks.codes[:, at]).max() <= 1
        error = (rest[:, at] - scales * (blocks.codes[:, at].astype(np.float64) - zeros)) / inverse[at, at]
        rest -= np.outer(error, inverse[at])
        inverse -= np.outer(inverse[:, at], inverse[at]) / inverse[at, at]
        inverse[at, at] = 1  # not used again


def test_fewer_inputs_than_the_layer_takes_are_enough() -> None:
    x, weight = inputs(100, count=10), weight_of(8, 100)
    assert np.linalg.matrix_rank(x.T @ x) == 10
    assert product_error(gptq(weight, x.T @ x, 4, 32), weight, x) < 0.5 * product_error(rtn(weight, 4, 32), weight, x)


def test_inputs_that_are_always_zero_are_rounded_by_themselves() -> None:
    x, weight = inputs(64), weight_of(6, 64)
    x[:, 10:20] = 0
    for damping in (0.01, 0.0):
        blocks = gptq(weight, x.T @ x, 4, 64, damping=damping)
        moved = np.abs(blocks.dequantized() - weight)[:, 10:20]
        assert (moved <= 0.6 * blocks.scales).mean() > 0.95  # except those that the block's range clips
    nothing = gptq(weight, np.zeros((64, 64)), 4, 64)
    np.testing.assert_array_equal(nothing.codes, rtn(weight, 4, 64, search=True).codes)


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_the_unit_of_the_hessian_does_not_matter(unit: float) -> None:
    x, weight = inputs(64), weight_of(4, 64)
    expected = gptq(weight, x.T @ x, 4, 32).codes
    np.testing.assert_array_equal(gptq(weight, unit * (x.T @ x), 4, 32).codes, expected)


@pytest.mark.parametrize("value", [0, -0.7, 1e30, 1e-30])
def test_a_weight_of_one_number_is_exact(value: float) -> None:
    x, weight = inputs(40), np.full((2, 40), value, np.float32)
    np.testing.assert_array_equal(gptq(weight, x.T @ x, 4, 32).dequantized(), weight)


@pytest.mark.parametrize("unit", [1e-44, 1e-38, 1e29])
def test_tiny_and_huge_weights_stay_finite(unit: float) -> None:
    x, weight = inputs(40), (weight_of(4, 40) * unit).astype(np.float32)
    assert np.isfinite(gptq(weight, x.T @ x, 4, 16).dequantized()).all()


@pytest.mark.parametrize("rows, size", [(1, 1), (1, 40), (3, 1)])
def test_small_weights(rows: int, size: int) -> None:
    x, weight = inputs(size), weight_of(rows, size)
    blocks = gptq(weight, x.T @ x, 8, 32)
    assert blocks.codes.shape == weight.shape
    assert np.abs(blocks.dequantized() - weight).max() < 0.2


def test_hessians_that_are_none() -> None:
    weight, good = weight_of(2, 4), inputs(4).T @ inputs(4)
    nan, uneven, negative = good.copy(), good.copy(), good.copy()
    nan[1, 2], uneven[3, 0], negative[2, 2] = np.nan, 2 * good[3, 0] + 9, -1
    for hessian, damping, message in [
        (good[:3], 0.01, r"gptq: the Hessian is \[3, 4\], expected \[4, 4\] for 4 inputs"),
        (nan, 0.01, r"gptq: the Hessian is nan at \[1, 2\], expected finite numbers"),
        (uneven, 0.01, "gptq: the Hessian is not symmetric or negative on its diagonal, expected X\\^T X"),
        (negative, 0.01, "gptq: the Hessian is not symmetric or negative on its diagonal, expected X\\^T X"),
        (np.ones((4, 4)), 0.0, "gptq: the Hessian is singular with damping 0.0; give more damping"),
        (np.ones((4, 4)) + 3e-16 * np.eye(4), 0.0, "gptq: the Hessian is singular with damping 0.0; give more damping"),
        (good, -0.1, "gptq: damping is -0.1, expected 0 or more"),
        (good, np.nan, "gptq: damping is nan, expected 0 or more"),
    ]:
        with pytest.raises(ValueError, match=message):
            gptq(weight, hessian, 4, 32, damping=damping)


def test_weights_that_cannot_be_rounded() -> None:
    weight = weight_of(2, 4)
    weight[1, 3] = np.inf
    with pytest.raises(ValueError, match=r"gptq: the weight is inf at \[1, 3\], expected at most 1e30, and finite"):
        gptq(weight, np.eye(4), 4, 32)
    with pytest.raises(ValueError, match="gptq: bits is 2, expected one of 4, 8"):
        gptq(weight, np.eye(4), 2, 32)


class TestHessian:
    def test_is_the_sum_over_all_inputs(self) -> None:
        x = inputs(6, 24).astype(np.float32)
        hessian = Hessian(6)
        hessian.add(x[:12].reshape(3, 4, 6))
        hessian.add(x[12:23])
        hessian.add(x[23])
        wide = x.astype(np.float64)
        np.testing.assert_allclose(hessian.matrix, wide.T @ wide, rtol=1e-12)
        assert hessian.count == 24 and hessian.matrix.dtype == np.float64

    def test_takes_numbers_whose_squares_float32_cannot_hold(self) -> None:
        hessian = Hessian(2)
        hessian.add(np.array([[1e30, 1e-30]], np.float32))
        np.testing.assert_allclose(hessian.matrix, [[1e60, 1], [1, 1e-60]], rtol=1e-6)

    def test_refuses_other_inputs(self) -> None:
        hessian = Hessian(3)
        with pytest.raises(ValueError, match=r"Hessian: the inputs are \[2, 4\], expected \(\.\.\., 3\)"):
            hessian.add(np.zeros((2, 4)))
        with pytest.raises(ValueError, match=r"Hessian: the inputs have nan at \[0, 1\], expected finite numbers"):
            hessian.add(np.array([[0, np.nan, 0]]))
        with pytest.raises(ValueError, match="Hessian: no inputs have been added"):
            _ = hessian.matrix
