"""Convolutions over one axis on target "cpu": over images of one line where these are faster, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucid
from lucid import nn, ops
from lucid.export import explain, to_onnx
from lucid.export.forms import convolution
from lucid.runtime import Session
from lucid.testing import assert_parity

LINE = ["Unsqueeze", "Unsqueeze", "Conv", "Squeeze"]


def nodes(model: Any, *inputs: Any, **options: Any) -> list[str]:
    return [node.op_type for node in to_onnx(model, *inputs, **options).graph.node]


@pytest.mark.parametrize(
    ("model", "form"),
    [
        (nn.Conv1d(128, 16, 3), LINE),
        (nn.Conv1d(128, 128, 3, stride=2, padding=1, dilation=2), LINE),
        (nn.Conv1d(64, 64, 7, groups=64), LINE),  # each channel
        (nn.Conv1d(128, 64, 12, groups=4), LINE),
        (nn.Conv1d(64, 64, 5), ["Conv"]),  # windows of 320 numbers
        (nn.Conv1d(1, 512, 400), ["Conv"]),
        (nn.Conv1d(512, 512, 1), ["Conv"]),  # a product
        (nn.Conv1d(512, 8, 3), ["Conv"]),  # less than a block of channels
        (nn.Conv1d(64, 64, 5, groups=64), ["Conv"]),
        (nn.Conv1d(96, 96, 31, groups=4), ["Conv"]),  # groups of 24 channels
        (nn.Conv1d(128, 128, 3, dtype="float16"), ["Conv"]),
    ],
    ids=lambda x: str(x) if isinstance(x, nn.Module) else "",
)
def test_windows_of_many_numbers_are_lines_of_images(model: nn.Conv1d, form: list[str]) -> None:
    spec = lucid.spec("N", model.weight.shape[1] * model.groups, "L", dtype=model.weight.dtype)
    operators = [node for node in nodes(model, spec, target="cpu") if node != "Cast"]
    assert operators == form
    assert "Unsqueeze" not in nodes(model, spec)  # of target "any"
    if form == LINE:
        assert_parity(model, spec, target="cpu")


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, int], lucid.Tensor, lucid.Tensor | None, dict[str, Any]]:
    """The channels and length of an input, a weight, a bias and attributes; pads may differ at the two ends."""
    group, channels, out, kernel = (draw(st.integers(1, 3)) for _ in range(4))
    stride, dilation, before, after = (draw(st.integers(low, 3)) for low in (1, 1, 0, 0))
    length = draw(st.integers(dilation * (kernel - 1) + 1, 12))
    bias = lucid.randn(group * out) if draw(st.booleans()) else None
    places = {"strides": (stride,), "pads": (before, after), "dilations": (dilation,), "group": group}
    return (group * channels, length), lucid.randn(group * out, channels, kernel), bias, places


@settings(max_examples=60, deadline=None, derandomize=True)
@given(convolutions())
def test_any_convolution_may_be_over_images(drawn: Any) -> None:
    (channels, length), weight, bias, places = drawn

    def model(x: lucid.Tensor) -> lucid.Tensor:
        return ops.conv(x, weight, bias, **places)

    with pytest.MonkeyPatch.context() as patch:
        for name, limit in {"BLOCK": 1, "DEEP": 1, "LONG": 1}.items():
            patch.setattr(convolution, name, limit)
        exported = to_onnx(model, ("N", channels, "L"), target="cpu")
    each_channel = places["group"] == channels == weight.shape[0]
    squeezed = "Squeeze" in [node.op_type for node in exported.graph.node]
    assert squeezed == (weight.shape[2] > 1 or each_channel)
    x = lucid.randn(2, channels, length)
    np.testing.assert_allclose(Session(exported)(x), model(x), rtol=1e-5, atol=1e-5)


def test_a_weight_keeps_its_name_and_shape() -> None:
    exported = to_onnx(nn.Conv1d(128, 128, 3), ("N", 128, "L"), target="cpu")
    shapes = {tensor.name: list(tensor.dims) for tensor in exported.graph.initializer}
    assert shapes["weight"] == [128, 128, 3]
    assert shapes["bias"] == [128]


def test_a_weight_that_is_an_input_stays() -> None:
    def called(x: lucid.Tensor, weight: lucid.Tensor) -> lucid.Tensor:
        return ops.conv(x, weight, strides=(1,), pads=(0, 0), dilations=(1,))

    assert nodes(called, (1, 128, 9), (128, 128, 3), target="cpu") == ["Conv"]


def test_explain_says_why() -> None:
    report = str(explain(nn.Sequential(nn.Conv1d(128, 64, 3), nn.Conv1d(64, 64, 3)), ("N", 128, "L"), target="cpu"))
    assert "convolution over images of one line: 4 nodes" in report
    assert "because   onnxruntime has faster kernels for images" in report
    assert "windows of 3 x 64 numbers for 64 channels are too few" in report
