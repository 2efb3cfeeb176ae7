"""Convolution, pooling, batch and group normalisation, gated units: by the definition, and exported."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucid
from lucid import nn, ops
from lucid.core.sizes.dims import SymbolicSizeError
from lucid.nn import functional as F
from lucid.ops.kernels.convolution import depthwise
from lucid.runtime import Session
from lucid.testing import assert_parity

Array = np.ndarray[Any, Any]


def convolve(
    x: Array, weight: Array, bias: Array | None, stride: int, padding: int, dilation: int, groups: int
) -> Array:
    """Convolution over any number of axes, one output at a time, in float64."""
    axes = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *[(padding, padding)] * axes])
    kernel, per_group = weight.shape[2:], weight.shape[0] // groups
    out = [(size - dilation * (k - 1) - 1) // stride + 1 for size, k in zip(x.shape[2:], kernel, strict=True)]
    result = np.zeros((x.shape[0], weight.shape[0], *out))
    for n, o, *place in np.ndindex(*result.shape):
        first = o // per_group * weight.shape[1]
        for c, *tap in np.ndindex(*weight.shape[1:]):
            at = tuple(p * stride + t * dilation for p, t in zip(place, tap, strict=True))
            result[n, o, *place] += weight[o, c, *tap] * x[n, first + c, *at]
    return result if bias is None else result + bias.reshape(-1, *[1] * axes)


@given(
    axes=st.sampled_from([1, 2]),
    size=st.integers(5, 8),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
)
def test_convolution_is_its_definition(
    axes: int, size: int, kernel: int, stride: int, padding: int, dilation: int, groups: int, bias: bool
) -> None:
    kind = (nn.Conv1d, nn.Conv2d)[axes - 1]
    module = kind(4, 8, kernel, stride, padding, dilation, groups, bias)
    x = lucid.randn(2, 4, *range(size, size + axes))
    expected = convolve(
        x.numpy(),
        module.weight.numpy(),
        None if module.bias is None else module.bias.numpy(),
        stride,
        padding,
        dilation,
        groups,
    )
    np.testing.assert_allclose(module(x), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("sizes", "kernel"), [((9,), (4,)), ((40,), (3,)), ((7, 9), (3, 2)), ((5, 80), (2, 3)), ((4, 5, 6), (2, 1, 3))]
)
def test_channels_on_their_own_with_short_and_long_lines(sizes: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    x, weight = lucid.randn(2, 3, *sizes).numpy(), lucid.randn(3, 1, *kernel).numpy()
    dilations = (2, 1, 1)[: len(sizes)]
    output = depthwise(x, weight[:, 0], dilations)
    windows = np.lib.stride_tricks.sliding_window_view(
        x.astype(np.float64), [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)], tuple(range(2, x.ndim))
    )
    taken = windows[(..., *(slice(None, None, d) for d in dilations))]
    axes = tuple(range(-len(sizes), 0))
    expected = (taken * weight[:, 0].reshape(3, *[1] * len(sizes), *kernel)).sum(axes)
    np.testing.assert_allclose(output, expected, atol=2e-6)


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("size", [9, 90])
def test_what_is_not_finite_reaches_only_the_windows_that_see_it(number: float, size: int) -> None:
    x = np.ones((1, 2, size), np.float32)
    x[0, 0, 4] = number
    output = depthwise(x, np.ones((2, 3), np.float32), (1,))
    assert np.flatnonzero(~np.isfinite(output[0, 0])).tolist() == [2, 3, 4]
    assert np.isfinite(output[0, 1]).all()


def test_same_padding_keeps_the_length() -> None:
    for kernel in (1, 2, 3, 4):
        assert nn.Conv1d(2, 3, kernel, padding="same", dilation=2)(lucid.zeros(1, 2, 9)).shape == (1, 3, 9)


def test_half_precision_is_rounded_once() -> None:
    x, weight = lucid.randn(1, 8, 9), lucid.randn(4, 8, 3)
    options = {"strides": (1,), "pads": (0, 0), "dilations": (1,)}
    half = ops.conv(x.astype("float16"), weight.astype("float16"), **options)
    whole = ops.conv(x.astype("float16").astype("float32"), weight.astype("float16").astype("float32"), **options)
    np.testing.assert_array_equal(half, whole.astype("float16"))


def test_an_empty_batch() -> None:
    assert nn.Conv2d(3, 4, 2)(lucid.zeros(0, 3, 5, 6)).shape == (0, 4, 4, 5)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, None, 0), (3, 2, 1), (3, 1, 0), (2, 3, 1)])
def test_pooling_is_its_definition(kernel: int, stride: int | None, padding: int) -> None:
    x = lucid.randn(2, 3, 8, 9)
    step = kernel if stride is None else stride
    largest, mean = nn.MaxPool2d(kernel, stride, padding)(x), nn.AvgPool2d(kernel, stride, padding)(x)
    inside = nn.AvgPool2d(kernel, stride, padding, count_include_pad=False)(x)
    padded = np.pad(x.numpy(), [(0, 0), (0, 0), (padding, padding), (padding, padding)], constant_values=np.nan)
    for i, j in np.ndindex(*mean.shape[2:]):
        window = padded[:, :, i * step : i * step + kernel, j * step : j * step + kernel]
        np.testing.assert_array_equal(largest[:, :, i, j], np.nanmax(window, (2, 3)))
        np.testing.assert_allclose(mean[:, :, i, j], np.nansum(window, (2, 3)) / kernel**2, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(inside[:, :, i, j], np.nanmean(window, (2, 3)), rtol=1e-5, atol=1e-6)


def test_pooling_along_one_axis() -> None:
    x = lucid.tensor([[[1.0, 5.0, 2.0, 4.0]]])
    assert nn.MaxPool1d(2)(x).tolist() == [[[5.0, 4.0]]]
    assert nn.MaxPool1d(2, stride=1, dilation=2)(x).tolist() == [[[2.0, 5.0]]]
    assert nn.AvgPool1d(2)(x).tolist() == [[[3.0, 3.0]]]


@pytest.mark.parametrize("cells", [1, 2, 3, 5, 7, 9])
def test_adaptive_pooling_divides_an_axis_as_evenly_as_possible(cells: int) -> None:
    x = lucid.randn(2, 3, 7)
    pooled = nn.AdaptiveAvgPool1d(cells)(x)
    for i in range(cells):
        window = x.numpy()[:, :, math.floor(i * 7 / cells) : math.ceil((i + 1) * 7 / cells)]
        np.testing.assert_allclose(pooled[:, :, i], window.mean(-1), rtol=1e-5, atol=1e-6)


def test_adaptive_pooling_of_images() -> None:
    x = lucid.randn(2, 3, 4, 6)
    pooled = nn.AdaptiveAvgPool2d((2, 3))(x)
    np.testing.assert_allclose(pooled, nn.AvgPool2d(2)(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(nn.AdaptiveAvgPool2d(1)(x)[:, :, 0, 0], x.mean((2, 3)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cells", [(None, 1), (1, None), (None, 3), (None, None)])
def test_adaptive_pooling_keeps_an_axis_of_any_size(cells: tuple[int | None, int | None]) -> None:
    def pooled(x: lucid.Tensor) -> Any:
        return F.adaptive_avg_pool2d(x, cells), F.adaptive_max_pool2d(x, cells, return_indices=True)

    session = Session(lucid.export.to_onnx(pooled, lucid.spec("N", 3, "H", "W")))
    for shape in ((2, 3, 4, 6), (1, 3, 7, 5), (1, 3, 1, 1)):
        x = lucid.randn(*shape)
        mean, (maximum, place) = pooled(x)
        for own, exported in zip((mean, maximum, place), session.run({"x": x.numpy()}).values(), strict=True):
            np.testing.assert_allclose(own.numpy(), exported, rtol=1e-5, atol=1e-6)
        assert mean.shape == maximum.shape == (*shape[:2], cells[0] or shape[2], cells[1] or shape[3])
        if cells == (1, None):
            np.testing.assert_allclose(mean, x.numpy().mean(2, keepdims=True), rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(maximum, x.numpy().max(2, keepdims=True))
            np.testing.assert_array_equal(place[:, :, 0] // shape[3], x.numpy().argmax(2))


def test_area_resizing_of_any_size() -> None:
    session = Session(
        lucid.export.to_onnx(lambda x: F.interpolate(x, scale_factor=0.5, mode="area"), lucid.spec(1, 1, "L"))
    )
    for size in (2, 7, 10):
        x = np.random.default_rng(size).standard_normal((1, 1, size)).astype(np.float32)
        np.testing.assert_allclose(session(x), F.interpolate(lucid.tensor(x), scale_factor=0.5, mode="area"), atol=1e-6)


# normalisation ----------------------------------------------------------------------------------------------------


def test_batch_norm_uses_the_running_statistics_in_evaluation() -> None:
    module = nn.BatchNorm1d(3).eval()
    mean, variance = np.array([1.0, 2.0, 3.0], np.float32), np.array([4.0, 9.0, 16.0], np.float32)
    weight, bias = np.array([2.0, 1.0, 0.5], np.float32), np.array([0.1, 0.2, 0.3], np.float32)
    state = {"running_mean": mean, "running_var": variance, "weight": weight, "bias": bias}
    module.load_state_dict(state | {"num_batches_tracked": np.asarray(7)})
    x = lucid.randn(2, 3, 5)
    expected = (x.numpy() - mean[:, None]) / np.sqrt(variance + 1e-5)[:, None] * weight[:, None] + bias[:, None]
    np.testing.assert_allclose(module(x), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(module(x[:, :, 0]), expected[:, :, 0], rtol=1e-5, atol=1e-6)


def test_batch_norm_learns_the_statistics_in_training() -> None:
    module = nn.BatchNorm1d(3, momentum=0.5).train()
    x = lucid.randn(4, 3, 5) * 2 + 1
    y = module(x)
    np.testing.assert_allclose(y.mean((0, 2)), np.zeros(3), atol=1e-6)
    np.testing.assert_allclose(module.running_mean, 0.5 * x.numpy().mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(module.running_var, 0.5 + 0.5 * x.numpy().var((0, 2), ddof=1), rtol=1e-5)
    assert module.num_batches_tracked.item() == 1


def test_group_norm_is_its_definition() -> None:
    module, x = nn.GroupNorm(2, 6), lucid.randn(3, 6, 4, 5) * 3 + 1
    module.load_state_dict({"weight": np.arange(6, dtype=np.float32), "bias": -np.arange(6, dtype=np.float32)})
    groups = x.numpy().reshape(3, 2, -1).astype(np.float64)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    expected = normal.reshape(3, 6, 4, 5) * np.arange(6).reshape(-1, 1, 1) - np.arange(6).reshape(-1, 1, 1)
    np.testing.assert_allclose(module(x), expected, rtol=1e-5, atol=1e-5)


def test_gated_units() -> None:
    x = lucid.randn(2, 3, 8)
    a, b = x.numpy()[..., :4], x.numpy()[..., 4:]
    np.testing.assert_allclose(nn.GLU()(x), a / (1 + np.exp(-b)), rtol=1e-5, atol=1e-6)
    module = nn.SwiGLU(8, 12)
    gate, up, down = (module.state_dict()[f"{name}_proj.weight"].numpy() for name in ("gate", "up", "down"))
    gated = x.numpy() @ gate.T
    np.testing.assert_allclose(
        module(x), (gated / (1 + np.exp(-gated)) * (x.numpy() @ up.T)) @ down.T, rtol=1e-4, atol=1e-6
    )


# exported ---------------------------------------------------------------------------------------------------------

LONGER = [{"N": 2, "L": 7, "H": 8, "W": 9, "C": 3}, {"N": 1, "L": 6, "H": 6, "W": 6, "C": 1}]


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv1d(4, 6, 3, stride=2, padding=1),
        nn.Conv1d(4, 4, 3, padding="same", dilation=2, groups=4, bias=False),
        nn.Conv2d(3, 8, (2, 3), stride=(2, 3), padding=(0, 1)),
        nn.MaxPool1d(3, 2, 1),
        nn.MaxPool2d(2),
        nn.AvgPool1d(3, 2, 1),
        nn.AvgPool2d(2, 1, 1, count_include_pad=False),
        nn.AdaptiveAvgPool1d(1),
        nn.AdaptiveAvgPool1d(4),
        nn.AdaptiveAvgPool2d((3, 2)),
        nn.BatchNorm1d(4),
        nn.GroupNorm(2, 4),
        nn.SwiGLU(6, 8),
    ],
    ids=lambda module: type(module).__name__,
)
@pytest.mark.parametrize("opset", [17, 23])
def test_modules_export_with_any_sizes(module: nn.Module, opset: int) -> None:
    used = lucid.trace(module).sizes()
    sizes = [{name: size for name, size in run.items() if name in used} for run in LONGER]
    assert_parity(module, sizes=sizes, opset=opset)


@pytest.mark.parametrize(
    ("name", "module"), [("conv", nn.Conv1d(4, 6, 3)), ("max_pool", nn.MaxPool1d(3)), ("average_pool", nn.AvgPool1d(3))]
)
def test_an_input_shorter_than_the_kernel_is_named_also_where_the_trace_had_no_sizes(
    name: str, module: nn.Module
) -> None:
    message = re.escape(f"{name}: input [1, 4, 2]: axis 2 has size 2 with its padding, less than the 3")
    with pytest.raises(ValueError, match=message):
        module(lucid.zeros(1, 4, 2))
    with pytest.raises(ValueError, match=message):
        lucid.trace(module, ("N", 4, "L")).run([np.zeros((1, 4, 2), np.float32)])


def test_a_window_of_a_symbolic_size_says_how_to_fix_it() -> None:
    for call in (lambda x: F.avg_pool2d(x, x.shape[2:]), lambda x: F.max_pool2d(x, x.shape[2])):
        with pytest.raises(SymbolicSizeError, match=r"fix the size with a number in lucid\.spec"):
            lucid.trace(call, (1, 3, "H", "W"))


def test_glu_exports() -> None:
    assert_parity(nn.GLU(), ("N", "L", 6))


# errors -----------------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="groups 3 must divide in_channels 4 and out_channels 6"):
        nn.Conv1d(4, 6, 3, groups=3)
    with pytest.raises(ValueError, match=r"kernel_size is \[3, 3, 3\], expected one number or 2"):
        nn.Conv2d(4, 6, [3, 3, 3])
    with pytest.raises(ValueError, match="padding is 'same' with stride \\(2,\\), expected numbers, \"valid\""):
        nn.Conv1d(4, 6, 3, stride=2, padding="same")
    with pytest.raises(ValueError, match=r"Conv1d: got shape \[1, 5, 9\], expected \(N, 4, L\)"):
        nn.Conv1d(4, 6, 3)(lucid.zeros(1, 5, 9))
    with pytest.raises(ValueError, match=r"Conv2d: got shape \[1, 4, 9\], expected \(N, 4, H, W\)"):
        nn.Conv2d(4, 6, 3)(lucid.zeros(1, 4, 9))
    with pytest.raises(ValueError, match=r"pads \(2, 2\) must be smaller than the kernel \(2,\)"):
        nn.MaxPool1d(2, padding=2)(lucid.zeros(1, 1, 5))
    with pytest.raises(ValueError, match="num_groups 3 does not divide num_channels 4"):
        nn.GroupNorm(3, 4)
    with pytest.raises(ValueError, match=r"BatchNorm1d: got shape \[2, 3\], expected \(N, 4\) or \(N, 4, L\)"):
        nn.BatchNorm1d(4)(lucid.zeros(2, 3))
    with pytest.raises(ValueError, match=r"got 1 value\(s\) per channel in training"):
        nn.BatchNorm1d(3).train()(lucid.zeros(1, 3))
    with pytest.raises(ValueError, match=r"axis -1 of \[2, 5\] has an odd size, expected an even one"):
        nn.GLU()(lucid.zeros(2, 5))


@pytest.mark.parametrize("output_size", [(3, 4), (5, 2), (3, 3), (1, 4), (7, 8)])
@pytest.mark.parametrize("shape", [("N", 1, 5, 6), ("N", 1, "H", "W")])
def test_an_adaptive_mean_keeps_infinity_in_its_cells(output_size: tuple[int, int], shape: tuple[Any, ...]) -> None:
    x = np.ones((3, 1, 5, 6), np.float32)
    x[0, 0, 1, 2], x[1, 0, 4, 5], x[2, 0, 2, 3] = math.inf, -math.inf, math.nan
    cells = [
        [(i * size // n, -(-(i + 1) * size // n)) for i in range(n)]
        for n, size in zip(output_size, (5, 6), strict=True)
    ]
    expected = [[[x[n, 0, a:b, c:d].mean() for c, d in cells[1]] for a, b in cells[0]] for n in range(3)]
    pool = nn.AdaptiveAvgPool2d(output_size)
    for got in (pool(lucid.Tensor(x)), Session(lucid.export.to_onnx(pool, shape))(x)):
        np.testing.assert_allclose(np.asarray(got)[:, 0], expected, rtol=1e-6)
