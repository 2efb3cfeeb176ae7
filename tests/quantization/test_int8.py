"""Weights in signed bytes by row, and the codes of their inputs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx.reference.ops.op_dynamic_quantize_linear import DynamicQuantizeLinear

from lucid.quantization import by_row, grid_between


@pytest.mark.parametrize("size", [1.0, 1e28, 1e-30, 1e-44])
def test_numbers_move_by_half_a_scale_at_most(size: float) -> None:
    weight = (np.random.default_rng(0).standard_normal((5, 40)) * size).astype(np.float32)
    weight[3] = 0
    rows = by_row(weight)
    assert rows.codes.dtype == np.int8 and rows.scales.dtype == np.float32 and rows.scales.min() > 0
    assert rows.codes.min() >= -127
    off = np.abs(rows.codes * rows.scales.astype(np.float64)[:, None] - weight)
    assert (off <= rows.scales[:, None] * 0.5001).all()
    assert (np.abs(rows.codes).max(axis=1)[[0, 1, 2, 4]] == 127).all() or size == 1e-44
    assert not rows.codes[3].any()


def test_half_precision_is_rounded_as_float32() -> None:
    weight = np.random.default_rng(0).standard_normal((3, 8)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(by_row(weight).codes, by_row(weight.astype(np.float32)).codes)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e31])
def test_weights_that_cannot_be_rounded(value: float) -> None:
    weight = np.zeros((2, 3))
    weight[1, 2] = value
    with pytest.raises(ValueError, match=r"by_row: the weight is .* at \[1, 2\], expected at most 1e30, and finite"):
        by_row(weight)
    with pytest.raises(ValueError, match=r"by_row: the weight has shape \[3\], expected \(outputs, inputs\)"):
        by_row(np.zeros(3))


@pytest.mark.parametrize(("low", "high"), [(-1, 2), (0.5, 2), (-3, -1), (-7.25, 0.01)])
def test_the_codes_of_a_range_are_those_of_onnx(low: float, high: float) -> None:
    expected = DynamicQuantizeLinear.eval(np.array([low, high], np.float32))
    grid = grid_between(low, high)
    assert (grid.scale, grid.zero) == (expected[1], expected[2])


def test_a_range_of_zero_alone() -> None:
    assert tuple(map(float, grid_between(0, 0))) == (1, 0)
