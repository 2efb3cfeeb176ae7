"""Rounding to the nearest code: what is exact, what the error is at most, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid.core.graph.types import Array
from lucid.quantization import Blocks, gptq, hqq, rtn
from tests.combinations import in_pairs, some

FORMATS = st.tuples(st.sampled_from([4, 8]), st.sampled_from([16, 32, 128]), st.booleans(), st.booleans())


@st.composite
def weights(draw: st.DrawFn) -> Array:
    """Numbers of any usual size: one row or column, blocks of zeros, blocks on one side of 0, and far numbers."""
    rows, size = draw(st.sampled_from([(1, 1), (1, 40), (3, 1), (5, 32), (4, 100)]))
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    weight = generator.standard_normal((rows, size)) + draw(st.sampled_from([0, 0, 3, -3]))
    weight[generator.random(weight.shape) < draw(st.sampled_from([0, 0.5, 1]))] = 0
    weight[generator.random(weight.shape) < draw(st.sampled_from([0, 0.1]))] *= 20
    with np.errstate(under="ignore"):
        return (weight * draw(st.sampled_from([1, 1e28, 1e-30, 1e-39, 1e-44]))).astype(np.float32)


def each(values: Array, blocks: Blocks) -> Array:
    """A value of each block for each number."""
    return np.repeat(values, blocks.block, axis=1)[:, : blocks.codes.shape[1]]


def ends(blocks: Blocks) -> tuple[Array, Array]:
    """The least and the largest number that a block can hold, for each number."""
    zeros = np.float64(2 ** (blocks.bits - 1)) if blocks.zeros is None else blocks.zeros.astype(np.float64)
    scales = blocks.scales.astype(np.float64)
    both = each(-zeros * scales, blocks), each((2**blocks.bits - 1 - zeros) * scales, blocks)
    return np.minimum(*both), np.maximum(*both)


def exactly(blocks: Blocks) -> Array:
    """The weight in float64."""
    zeros = 2 ** (blocks.bits - 1) if blocks.zeros is None else each(blocks.zeros, blocks).astype(np.float64)
    return np.asarray((blocks.codes.astype(np.float64) - zeros) * each(blocks.scales, blocks).astype(np.float64))


@settings(max_examples=some(200), deadline=None)
@given(weights(), FORMATS)
def test_every_number_becomes_the_nearest_that_its_block_can_hold(
    weight: Array, form: tuple[int, int, bool, bool]
) -> None:
    bits, block, symmetric, search = form
    blocks = rtn(weight, bits, block, symmetric, search)
    assert blocks.codes.shape == weight.shape and blocks.codes.max() < 2**bits
    assert blocks.scales.shape == (len(weight), -(-weight.shape[1] // block))
    assert np.isfinite(blocks.dequantized()).all() and (blocks.scales != 0).all()
    least, largest = ends(blocks)
    error = np.abs(exactly(blocks) - np.clip(weight, least, largest))
    assert (error <= 0.500001 * np.abs(each(blocks.scales, blocks))).all()


@settings(max_examples=some(100), deadline=None)
@given(weights(), FORMATS)
def test_the_whole_range_is_held_unless_it_is_searched(weight: Array, form: tuple[int, int, bool, bool]) -> None:
    bits, block, symmetric, _ = form
    blocks = rtn(weight, bits, block, symmetric)
    moved = np.abs(exactly(blocks) - weight) / np.abs(each(blocks.scales, blocks))
    assert moved.max() <= (1.000001 if symmetric else 0.500001)  # symmetric: one side is a code shorter


@settings(max_examples=some(60), deadline=None)
@given(weights(), FORMATS)
def test_a_search_loses_no_more(weight: Array, form: tuple[int, int, bool, bool]) -> None:
    bits, block, symmetric, _ = form
    unit = max(float(np.abs(weight).max()), 1e-45)
    plain, searched = (
        np.square((exactly(rtn(weight, bits, block, symmetric, search)) - weight) / unit).sum()
        for search in (False, True)
    )
    assert searched <= plain * 1.0001


@in_pairs(value=[0, 0.3, -0.7, 1e30, -1e-30, 1e-45], symmetric=[False, True], search=[False, True])
def test_blocks_of_one_number_are_exact(value: float, symmetric: bool, search: bool) -> None:
    weight = np.full((2, 40), value, np.float32)
    np.testing.assert_array_equal(rtn(weight, 4, 32, symmetric, search).dequantized(), weight)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_a_weight_on_a_grid_stays_as_it_is(symmetric: bool, search: bool, bits: int) -> None:
    """As from a checkpoint with float16 scales, when its blocks use the codes at both ends."""
    generator = np.random.default_rng(bits)
    codes = generator.integers(0, 2**bits, (6, 100), np.uint8)
    codes[:, ::16], codes[:, 1::16] = 0, 2**bits - 1
    scales = generator.uniform(0.01, 0.1, (6, 4)).astype(np.float16).astype(np.float32)
    zeros = None if symmetric else generator.integers(0, 2**bits, (6, 4), np.uint8)
    blocks = Blocks(codes, scales, zeros, bits, 32)
    result = rtn(blocks.dequantized(), bits, 32, symmetric, search)
    np.testing.assert_array_equal(result.codes, codes)
    np.testing.assert_array_equal(result.scales, scales)
    np.testing.assert_array_equal(result.dequantized(), blocks.dequantized())


def test_a_searched_symmetric_grid_may_leave_out_the_code_0() -> None:
    codes = np.random.default_rng(0).integers(1, 16, (6, 96), np.uint8)
    codes[:, ::16] = 15
    weight = Blocks(codes, np.full((6, 3), 0.0625, np.float32), None, 4, 32).dequantized()
    np.testing.assert_array_equal(rtn(weight, 4, 32, symmetric=True, search=True).dequantized(), weight)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_search_clips_a_far_number_for_the_others(sign: int) -> None:
    """Only on its own side: there are many numbers at the other end."""
    weight = np.maximum(np.random.default_rng(0).standard_normal((1, 512), np.float32), -2)
    weight[0, 7] = 4
    least, largest = sorted(sign * float(end[0, 0]) for end in ends(rtn(sign * weight, 4, 512, search=True)))
    assert least < -1.95 and largest < 3.2


def test_a_piece_does_not_depend_on_the_others() -> None:
    """Large weights are rounded in pieces, by several threads."""
    weight = np.random.default_rng(0).standard_normal((700, 400), np.float32)
    together = rtn(weight, 4, 32)
    for row in (0, 327, 699):
        alone = rtn(weight[row : row + 1], 4, 32)
        np.testing.assert_array_equal(together.codes[row], alone.codes[0])
        np.testing.assert_array_equal(together.scales[row], alone.scales[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_other_element_types_are_rounded_as_float32(dtype: type) -> None:
    weight = np.random.default_rng(0).standard_normal((3, 40)).astype(dtype)
    np.testing.assert_array_equal(rtn(weight, 4, 16).codes, rtn(weight.astype(np.float32), 4, 16).codes)


@pytest.mark.parametrize("shape", [(0, 32), (3, 0)])
def test_weights_without_numbers_have_no_codes(shape: tuple[int, int]) -> None:
    assert rtn(np.zeros(shape, np.float32), 4, 32).codes.shape == shape


@pytest.mark.parametrize("quantise", [rtn, hqq])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2e30, 1e300])
def test_numbers_that_codes_cannot_hold_are_named(value: float, quantise: Callable[..., Blocks]) -> None:
    weight = np.zeros((3, 40))
    weight[2, 33] = value
    with pytest.raises(ValueError, match=r"the weight is .* at \[2, 33\], expected at most 1e30, and finite"):
        quantise(weight, 4, 32)


@in_pairs(
    value=[np.nan, np.inf],
    dtype=[np.float16, ml_dtypes.bfloat16],
    quantise=[rtn, hqq, lambda *args: gptq(args[0], np.eye(4), *args[1:])],
)
def test_also_in_element_types_that_cannot_hold_1e30(
    value: float, dtype: type, quantise: Callable[..., Blocks]
) -> None:
    weight = np.zeros((2, 4), dtype)
    weight[1, 0] = value
    with pytest.raises(ValueError, match=rf"the weight is {value} at \[1, 0\], expected at most 1e30, and finite"):
        quantise(weight, 4, 32)


def test_formats_and_shapes_that_do_not_exist() -> None:
    weight = np.zeros((2, 32), np.float32)
    with pytest.raises(ValueError, match="rtn: bits is 3, expected one of 4, 8"):
        rtn(weight, 3, 32)
    with pytest.raises(ValueError, match="rtn: block is 24, expected a power of two"):
        rtn(weight, 4, 24)
    with pytest.raises(ValueError, match=r"rtn: the weight has shape \[32\], expected \(outputs, inputs\)"):
        rtn(weight[0], 4, 32)
