"""The native form of an op by opset, the reasons against others, and that onnxruntime computes the eager result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import lucid
from lucid import nn
from lucid import ops as ops_
from lucid.core.graph.values import Node
from lucid.export import Target, explain, refuse, to_onnx
from lucid.export.builder import Builder
from lucid.export.form import form
from lucid.export.forms import FORMS
from lucid.nn import functional as F
from lucid.runtime import Session
from lucid.testing import assert_parity
from tests.combinations import in_pairs


def ops(model: Any, *inputs: Any, **options: Any) -> list[str]:
    return [node.op_type for node in to_onnx(model, *inputs, **options).graph.node]


def turned(x: lucid.Tensor) -> lucid.Tensor:
    return lucid.ops.rotary_embedding(
        x, lucid.ones(7, 4), lucid.ones(7, 4), lucid.zeros(1, 1, dtype=lucid.int64), heads=2
    )


SINCE = [
    ("LayerNormalization", 17, nn.LayerNorm(8), ("N", 8)),
    ("BatchNormalization", 17, nn.BatchNorm1d(8), ("N", 8, "L")),
    ("InstanceNormalization", 17, nn.GroupNorm(2, 8), ("N", 8, "L")),
    ("HardSigmoid", 17, F.hardsigmoid, ("N", 8)),
    ("HardSwish", 17, F.hardswish, ("N", 8)),
    ("Gelu", 20, F.gelu, ("N", 8)),
    ("RMSNormalization", 23, nn.RMSNorm(8), ("N", 8)),
    ("RotaryEmbedding", 23, turned, (1, 1, 16)),
    ("Attention", 23, nn.MultiHeadAttention(8, 2), ("N", "L", 8)),
]


@pytest.mark.parametrize(("op_type", "opset", "model", "inputs"), SINCE, ids=[row[0] for row in SINCE])
def test_a_native_op_is_taken_from_its_opset_on(
    op_type: str, opset: int, model: Callable[..., Any], inputs: tuple[Any, ...]
) -> None:
    for asked in range(17, 27):
        operators = ops(model, inputs, opset=asked)
        until = 25 if op_type == "Attention" else 27  # test_targets says why
        assert operators.count(op_type) == int(opset <= asked < until), f"opset {asked}: {operators}"


# Batch normalisation --------------------------------------------------------------------------------------------------


def randomised(norm: nn.BatchNorm1d) -> nn.BatchNorm1d:
    state = {
        key: tensor.numpy() + np.abs(lucid.randn(*tensor.shape).numpy()) for key, tensor in norm.state_dict().items()
    }
    norm.load_state_dict({**state, "num_batches_tracked": np.array(1)})
    return norm.eval()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_batch_normalisation_is_one_node(affine: bool, dtype: str) -> None:
    norm = randomised(nn.BatchNorm1d(6, affine=affine, dtype=dtype))
    exported = to_onnx(norm, lucid.spec("N", 6, "L", dtype=dtype))
    assert [node.op_type for node in exported.graph.node] == ["BatchNormalization"]
    names = {tensor.name for tensor in exported.graph.initializer}
    assert names >= {"running_mean", "running_var"} | ({"weight", "bias"} if affine else set())
    tolerance = 1e-6 if dtype == "float32" else 4e-3
    for shape in ((1, 6, 1), (3, 6, 17), (2, 6, 0)):
        x = (lucid.randn(*shape) * 3 + 5).astype(dtype)
        np.testing.assert_allclose(Session(exported)(x), norm(x), rtol=tolerance, atol=tolerance)


def test_batch_normalisation_in_float64_keeps_its_digits_in_the_body() -> None:
    norm = randomised(nn.BatchNorm1d(6, dtype="float64"))
    spec = lucid.spec("N", 6, dtype="float64")
    assert "BatchNormalization" not in ops(norm, spec)
    assert "epsilon is a float32 number" in str(explain(norm, spec))
    x = lucid.randn(3, 6, dtype="float64")
    np.testing.assert_allclose(Session(to_onnx(norm, spec))(x), norm(x), rtol=1e-14)


# Group normalisation --------------------------------------------------------------------------------------------------


@in_pairs(shape=[(2, 6, 5), (3, 6, 4, 7), (1, 6, 2, 3, 2)], affine=[True, False], target=["any", "cpu", "portable"])
def test_group_normalisation_goes_through_instance_normalisation(
    shape: tuple[int, ...], affine: bool, target: str
) -> None:
    norm = nn.GroupNorm(3, 6, affine=affine)
    for parameter in norm.parameters():
        parameter.assign(lucid.randn(6).numpy())
    spec = ("N", 6, *"LMK"[: len(shape) - 2])
    exported = to_onnx(norm, spec, target=target)
    assert "InstanceNormalization" in [node.op_type for node in exported.graph.node]
    assert [t.name.split("[")[0] for t in exported.graph.initializer if "constant" not in t.name] == (
        ["weight", "bias"] if affine else []
    )
    for offset in (
        0,
        3,
    ):  # for a mean much larger than the deviation the node's error is two or three times that of eager
        x = lucid.randn(*shape) + offset
        np.testing.assert_allclose(Session(exported)(x), norm(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("affine", [True, False])
def test_groups_of_one_channel_are_one_node(affine: bool) -> None:
    norm = nn.GroupNorm(6, 6, affine=affine)
    for parameter in norm.parameters():
        parameter.assign(lucid.randn(6).numpy())
    exported = to_onnx(norm, ("N", 6, "L"))
    assert [node.op_type for node in exported.graph.node] == ["InstanceNormalization"]
    for shape in ((2, 6, 50), (0, 6, 5)):
        x = lucid.randn(*shape) + 3
        np.testing.assert_allclose(Session(exported)(x), norm(x), rtol=1e-5, atol=1e-5)


def test_groups_of_channels_alone_are_too_small_for_it() -> None:
    assert "InstanceNormalization" not in ops(nn.GroupNorm(3, 6), ("N", 6))
    assert "a few numbers close to each other" in str(explain(nn.GroupNorm(3, 6), ("N", 6)))


def test_group_normalization_itself_is_for_other_runtimes_and_explain_says_why() -> None:
    norm, spec = nn.GroupNorm(3, 6), ("N", 6, "L")
    report = str(explain(norm, spec))
    assert "ai.onnx InstanceNormalization: 7 nodes" in report
    assert "ai.onnx InstanceNormalization: 5 nodes" in str(explain(norm, ("N", 6, 4)))
    assert "GroupNormalization: onnxruntime's CPU provider has no kernel" in report
    assert ops(norm, spec, target="openvino", opset=21) == ["GroupNormalization"]


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_groups_far_from_zero_keep_their_digits(target: str) -> None:
    """GroupNormalization's definition computes the variance as a difference of squares: 0.3 of the result was wrong."""
    norm, x = nn.GroupNorm(2, 8), lucid.randn(2, 8, 20) + 1000
    session = Session(to_onnx(norm, ("N", 8, "L"), target=target, opset=21))
    np.testing.assert_allclose(session(x), norm(x), rtol=0, atol=2e-3)


# Without an op of their own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "inputs", "expected"),
    [
        (nn.GLU(), ("N", 8), ["Split", "Sigmoid", "Mul"]),
        (F.silu, ("N", 8), ["Sigmoid", "Mul"]),
        (nn.SwiGLU(8, 12), ("N", "L", 8), ["MatMul", "Sigmoid", "Mul", "MatMul", "Mul", "MatMul"]),
        (nn.ALiBi(4), None, None),
    ],
    ids=["GLU", "SiLU", "SwiGLU", "ALiBi"],
)
def test_what_has_no_op_is_its_body(model: Any, inputs: Any, expected: list[str] | None) -> None:
    if expected is None:
        operators = ops(lambda x: x + model(x.shape[2], x.shape[3]), ("N", 4, "L", "S"))
        assert len(operators) <= 16
    else:
        assert sorted(ops(model, inputs)) == sorted(expected)


# Around a crash -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("axes", [(1, 0, 2), (1, 2, 0), (1, 2, 0, 3), (1, 2, 3, 0)], ids=str)
def test_half_precision_survives_a_product_behind_a_moved_first_axis(axes: tuple[int, ...], dtype: str) -> None:
    """onnxruntime aborts when it loads such a model, unless another node separates the two."""
    weight = lucid.randn(24, 24).astype(dtype)
    split = (-1, 4, 6) if len(axes) == 3 else (-1, 2, 3, 4)

    def model(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        return y @ (x @ weight).reshape(split).permute(axes)

    rows = (7, *split[1:])[axes[-2]]
    sizes = (5, rows if rows != 7 else "N")
    exported = to_onnx(model, lucid.spec("N", 24, dtype=dtype), lucid.spec(*sizes, dtype=dtype))
    kinds = [node.op_type for node in exported.graph.node if node.op_type in ("Transpose", "Reshape")]
    assert kinds == ["Reshape", "Transpose", "Reshape"]
    x, y = lucid.randn(7, 24).astype(dtype), lucid.randn(5, rows).astype(dtype)
    np.testing.assert_array_equal(Session(exported)(x, y).shape, model(x, y).shape)


def test_length_first_attention_in_half_precision() -> None:
    mha = nn.MultiHeadAttention(8, 2, batch_first=False).to(lucid.float16)
    x = lucid.randn(5, 2, 8).astype(lucid.float16)
    np.testing.assert_allclose(Session(to_onnx(mha))(x, x, x), mha(x), atol=2e-3)


# Layer normalisation --------------------------------------------------------------------------------------------------


def optimised(model: onnx.ModelProto, folder: Path) -> list[str]:
    """The operators of a model after onnxruntime's optimizations."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3  # the warning that such a file is only for this machine
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(folder / "optimised.onnx").graph.node]


def test_onnxruntime_does_not_fuse_a_sum_with_its_normalisation_on_a_cpu(tmp_path: Path) -> None:
    """Its fused kernel is the slower one: docs/benchmarks.md."""
    layer = nn.TransformerEncoderLayer(16, 2, 32).eval()
    assert "SkipLayerNormalization" in optimised(to_onnx(layer, ("N", "L", 16)), tmp_path)
    operators = optimised(to_onnx(layer, ("N", "L", 16), target="cpu"), tmp_path)
    assert operators.count("LayerNormalization") == 2 and "SkipLayerNormalization" not in operators
    lucid.testing.assert_parity(layer, ("N", "L", 16), target="cpu")


def test_onnxruntime_joins_a_limit_with_its_convolution(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU6(), nn.Conv2d(16, 8, 1), nn.Hardtanh(-2, 1)).eval()
    exported = to_onnx(model, ("N", 8, 6, 6))
    assert [node.op_type for node in exported.graph.node] == ["Conv", "Clip", "Conv", "Clip"]
    assert optimised(exported, tmp_path).count("Conv") == 2 and "Clip" not in optimised(exported, tmp_path)
    x = 3 * lucid.randn(2, 8, 6, 6).numpy()
    x[0, 0, 2, 2], x[1, 3, 4, 4] = np.nan, np.inf
    np.testing.assert_allclose(Session(exported)(x), model(lucid.tensor(x)).numpy(), atol=1e-6)


CLIPPED: dict[str, tuple[Callable[[lucid.Tensor], lucid.Tensor], list[str], list[str]]] = {
    "two numbers": (lambda x: x.clamp(-1, 1), ["Clip"], ["Clip"]),
    "in the wrong order": (lambda x: x.clamp(1, -1), ["Clip"], ["Clip"]),
    "one number": (lambda x: x.clamp(min=-1), ["Max"], ["Clip"]),
    "another one": (lambda x: x.clamp(max=1), ["Min"], ["Clip"]),
    "a vector": (lambda x: x.clamp(lucid.tensor([-1.0, 0, 1, 2]), 3), ["Max", "Min"], ["Max", "Min"]),
    "a number of the input": (lambda x: x.clamp(x[1, 3], 3), ["Max", "Min"], ["Max", "Min"]),
    "NaN": (lambda x: x.clamp(float("nan"), 3), ["Max", "Min"], ["Max", "Min"]),
}


@pytest.mark.parametrize("name", CLIPPED)
def test_a_limit_by_known_numbers_is_one_node(name: str) -> None:
    """The WebGPU provider has Clip, but neither Max nor Min."""
    function, usual, on_webgpu = CLIPPED[name]
    x = np.array([[np.nan, np.inf, -np.inf, 0.5], [-2, 2, 3.5, -0.5]], np.float32)
    for target, expected in (("any", usual), ("webgpu", on_webgpu)):
        exported = to_onnx(function, ("N", 4), target=target)
        assert [node.op_type for node in exported.graph.node if node.op_type not in ("Slice", "Squeeze")] == expected
        np.testing.assert_array_equal(Session(exported)(x), function(lucid.tensor(x)).numpy())


@pytest.mark.parametrize(
    ("size", "kinds"),
    [
        (lambda n: n // 2, {"Div"}),
        (lambda n: lucid.sym_max(n, 4) // 3, {"Max", "Div"}),
        (lambda n: (lucid.sym_max(n, 4) - 4) // 3, {"Max", "Div"}),
        (lambda n: 5 + (n - 5) // 2, {"Add", "Div"}),
        (lambda n: 9 + (n * n - 9) // (n + 1), {"Mod", "Div"}),
    ],
)
def test_a_quotient_of_sizes_is_one_node_where_none_is_negative(size: Callable[[Any], Any], kinds: set[str]) -> None:
    """ONNX's Div rounds towards 0, and sizes are rounded down."""
    exported = to_onnx(lambda x: lucid.arange(size(x.shape[0])), ("N",))
    others = {"Shape", "Add", "Sub", "Mul", "Range", "Squeeze"}
    assert kinds <= {node.op_type for node in exported.graph.node} <= kinds | others
    for n in range(9):
        assert Session(exported)(np.zeros(n, np.float32)).shape == (max(size(n), 0),)


def test_a_sum_that_is_read_again_is_left_alone() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, norm_first=True)
    assert "Reshape" not in ops(layer, ("N", "L", 16), target="cpu")


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_form_that_is_refused_leaves_no_node_behind(dtype: str) -> None:
    norm = nn.LayerNorm(8).to(dtype)
    specs = [lucid.spec("N", "L", 8, dtype=dtype)] * 2
    model = to_onnx(lambda x, y: norm(x + y), *specs, target="cpu")
    read = {name for node in model.graph.node for name in node.input} | {value.name for value in model.graph.output}
    assert all(set(node.output) & read for node in model.graph.node)


def test_a_form_refuses_before_it_emits(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(build: Builder, node: Node) -> str:
        build.op("Identity", *node.inputs)
        refuse("too late")

    monkeypatch.setitem(FORMS, "relu", (form(ops_.relu, name="late")(late),))
    with pytest.raises(AssertionError, match="late refuses relu with nodes emitted: refuse first"):
        to_onnx(F.relu, ("N",))


# Guards ---------------------------------------------------------------------------------------------------------------


def in_onnxruntime(model: nn.Module, inputs: Any, x: np.ndarray) -> np.ndarray:
    session = Session(to_onnx(model, inputs))
    (output,) = session.run(dict.fromkeys(session.inputs, x)).values()
    return output


def pooled(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(1))


def test_a_mean_over_windows_needs_no_guard_as_a_convolution_without_one_is_an_error() -> None:
    image = ("N", 3, "H", "W")
    convolved = pooled(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 1))
    assert ops(convolved, image) == ["Conv", "Relu", "Conv", "ReduceMean", "Reshape"]
    assert "Where" in ops(pooled(), image)  # an image of no height has the mean NaN
    assert "Where" not in ops(lambda x: lucid.cat([x, lucid.ones(1, 8)]).mean(0), ("L", 8))  # L + 1 is never 0
    line, nothing = np.ones((1, 3, 1, 5), np.float32), np.ones((1, 3, 0, 5), np.float32)
    np.testing.assert_allclose(in_onnxruntime(convolved, image, line), convolved(lucid.tensor(line)).numpy(), rtol=1e-5)
    with pytest.raises(ValueError, match="x has H = 0 at axis 2"):
        in_onnxruntime(convolved, image, nothing)
    with pytest.raises(ValueError, match="less than the 3 that the kernel spans"):
        convolved(lucid.tensor(nothing))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 3e38])
def test_one_sum_finds_what_max_pooling_would_pass_over(wrong: float) -> None:
    image = ("N", 1, "H", "W")
    assert ops(nn.MaxPool2d(2), image) == ["ReduceL1", "Less", "If"]
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    x[0, 0, 2:, 1:] = wrong
    np.testing.assert_array_equal(in_onnxruntime(nn.MaxPool2d(2), image, x), nn.MaxPool2d(2)(lucid.tensor(x)).numpy())


@pytest.mark.parametrize("target", ["any", "portable", "openvino", "webgpu"])
@pytest.mark.parametrize(("mode", "factor"), [("bilinear", 2), ("bicubic", 0.5), ("nearest", (4, 2))])
def test_an_image_of_any_size_is_doubled_or_halved_by_one_node(mode: str, factor: Any, target: str) -> None:
    def model(x: lucid.Tensor) -> lucid.Tensor:
        return F.interpolate(x, scale_factor=factor, mode=mode)

    assert ops(model, ("N", 3, "H", "W"), target=target) == ["Resize"]


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_one_pixel_is_repeated(mode: str) -> None:
    assert ops(lambda x: F.interpolate(x, size=(7, 9), mode=mode), ("N", 3, 1, 1)) == ["Expand"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"scale_factor": 1.5}, "multiplied with a power of two, and it rounds positions differently"),
        ({"size": (7, 9)}, "7 is not H multiplied with a power of two"),
        ({"scale_factor": 2, "mode": "bilinear", "align_corners": True}, "positions differently with align_corners"),
    ],
)
def test_other_sizes_are_read_where_torch_reads_them(options: dict[str, Any], why: str) -> None:
    def model(x: lucid.Tensor) -> lucid.Tensor:
        return F.interpolate(x, **options)

    assert "Resize" not in ops(model, ("N", 3, "H", "W"))
    assert why in str(explain(model, ("N", 3, "H", "W")))


def test_a_size_may_be_a_tensor_whose_value_is_known_or_computed_from_sizes():
    def model(x: lucid.Tensor, height: lucid.Tensor) -> lucid.Tensor:
        return F.interpolate(x, (height, 6), mode="bilinear")

    x = lucid.spec("N", 3, 5, "W")
    assert lucid.trace(lambda x: model(x, lucid.tensor(4)), x).outputs[0].type.shape[2:] == (4, 6)
    assert str(lucid.trace(lambda x: model(x, lucid.tensor(x.shape[3]) * 2), x).outputs[0].type.shape[2]) == "2*W"
    with pytest.raises(lucid.TracedValueError, match=r"traced int64\[\]: its value .* compute sizes from x\.shape"):
        lucid.trace(lambda x: model(x, x.argmax()), x)


def test_a_number_added_to_a_variance_stays_the_same_number() -> None:
    """Of ``sqrt(eps + variance)``, as I-BERT writes it, onnxruntime before 1.32 makes a norm with an eps of 1e-5."""

    def norm(x: Any) -> Any:
        centred = x - x.mean(-1, keepdim=True)
        return centred / lucid.sqrt(0.5 + (centred**2).mean(-1, keepdim=True)) * SCALE + SHIFT

    SCALE, SHIFT = lucid.randn(8), lucid.randn(8)
    assert_parity(norm, ("N", "L", 8))
    for release, before in (("1.20", "ReduceMean"), ("1.31", "ReduceMean"), ("1.32", "constant")):
        nodes = to_onnx(norm, ("N", "L", 8), target=Target(onnxruntime=release)).graph.node
        assert before in next(node.input[0] for node in nodes if node.op_type == "Add")
