"""Parity: it passes, it fails, it never passes on an empty comparison; bisect finds the first node that differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.types import TensorType
from lucid.core.graph.values import Node
from lucid.export import to_onnx
from lucid.export.builder import Builder
from lucid.export.form import form
from lucid.export.forms import FORMS
from lucid.nn import functional as F
from lucid.ops.op import composite_with
from lucid.runtime import ProviderError
from lucid.testing import ParityError, assert_parity, bisect
from lucid.testing import runs as parity_runs
from lucid.testing.tolerance import compare


class Block(nn.Module):
    """Layers with names that can be recognised."""

    def __init__(self) -> None:
        self.first = nn.Linear(6, 6)
        self.attn = nn.MultiHeadAttention(6, 2)
        self.last = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + self.attn(self.first(x)))


SPEC = lucid.spec("N", "L", 6)


def tampered(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model with one number of one weight changed."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    (tensor,) = (tensor for tensor in changed.graph.initializer if tensor.name == name)
    array = onnx.numpy_helper.to_array(tensor).copy()
    array.flat[0] += 0.5
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, name))
    return changed


# Parity ---------------------------------------------------------------------------------------------------------------


def test_a_correct_export_passes_at_several_sizes() -> None:
    report = assert_parity(Block(), SPEC)
    assert report.passed
    assert report.max_abs < 1e-5
    assert report.max_rel < 1
    assert [dict(c.sizes) for c in report.comparisons if c.provider == "CPUExecutionProvider"] == [
        {"L": 1, "N": 1},
        {"L": 3, "N": 5},
        {"L": 2, "N": 3},
    ]
    assert all(line.startswith("ok  ") for line in str(report).splitlines() if not line.startswith("note"))


def test_sizes_and_options_can_be_given() -> None:
    report = assert_parity(Block(), SPEC, sizes=[{"N": 2, "L": 9}], providers=["cpu"], opset=18, attention="expanded")
    assert [dict(c.sizes) for c in report.comparisons] == [{"N": 2, "L": 9}]
    assert [c.provider for c in report.comparisons] == ["cpu"]


def test_a_provider_that_does_not_start_is_named_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with onnxruntime-gpu but without a GPU; TensorRT takes minutes to build an engine, so it is left out."""
    built_in = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(parity_runs, "available", lambda: built_in)
    report = assert_parity(Block(), SPEC)
    assert report.passed and {c.provider for c in report.comparisons} == {"CPUExecutionProvider"}
    assert set(report.not_run) == {"CUDAExecutionProvider"}
    assert "note  CUDAExecutionProvider was not run: " in str(report)
    with pytest.raises(ProviderError):
        assert_parity(Block(), SPEC, providers=["cuda"])


def test_examples_are_run_as_they_are() -> None:
    x = lucid.full((2, 3), 7.0)
    report = assert_parity(lambda a: (a * 2, a > 5), x)
    assert [c.output for c in report.comparisons if c.provider == "CPUExecutionProvider"] == ["output_0", "output_1"]


def test_a_model_in_training_mode_is_compared_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.9)).train()
    assert_parity(model, ("N", 3))
    assert model.training


def test_the_eager_run_is_no_trace() -> None:
    """It was once traced, to be in evaluation mode: an op that tracing does not fold then had no value."""

    @composite_with(folded=False)
    def unfolded(packed: Tensor) -> Tensor:
        return packed.astype("float32") * 0.5

    weight = lucid.tensor([[-4, 3]], dtype="int8")
    assert_parity(lambda x: x + unfolded(weight), ("N", 2))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_tolerances_follow_the_element_type(dtype: str) -> None:
    assert_parity(nn.Linear(6, 3, dtype=dtype))


def test_a_difference_is_an_error_that_tells_where_and_how_much() -> None:
    model = nn.Linear(6, 3)
    assert_parity(model, exported=to_onnx(model))
    message = r"FAIL  CPUExecutionProvider +N=1 +output: max abs 5.00e-01, max rel .*; at \[0, 0\] 5.00e-01 where"
    with pytest.raises(ParityError, match=message):
        assert_parity(model, exported=tampered(to_onnx(model), "bias"))


def test_a_strict_tolerance_fails_what_the_default_passes() -> None:
    assert_parity(Block(), SPEC)
    with pytest.raises(ParityError):
        assert_parity(Block(), SPEC, rtol=0, atol=1e-12)


def test_a_tolerance_is_a_number() -> None:
    with pytest.raises(ValueError, match="assert_parity: rtol is -1, expected a finite number of 0 or more"):
        assert_parity(nn.Linear(3, 2), ("N", 3), rtol=-1)
    with pytest.raises(TypeError, match="assert_parity: atol is 'small', expected a number"):
        assert_parity(nn.Linear(3, 2), ("N", 3), atol="small")  # type: ignore[arg-type]


def test_nan_is_never_parity() -> None:
    with pytest.raises(ParityError, match="NaN in the exported and the eager result"):
        assert_parity(lambda x: (x * 0 - 1).log(), ("N",))


def test_the_largest_difference_beside_nan_is_nan() -> None:
    with pytest.raises(ParityError) as caught:
        assert_parity(lambda x: (x + 1, (x * 0 - 1).log()), ("N", 3), providers=["cpu"])
    assert np.isnan(caught.value.report.max_abs) and np.isnan(caught.value.report.max_rel)


def test_nothing_to_compare_is_never_parity() -> None:
    with pytest.raises(ParityError, match="nothing was compared"):
        assert_parity(lambda x: x[:0], (3,))


def test_comparing_arrays() -> None:
    one = np.ones(3, np.float32)
    assert compare(one, one, "y").passed
    assert compare(one * np.inf, one * np.inf, "y").passed
    assert not compare(one * np.inf, one, "y").passed
    assert "got float64[3], eager float32[3]" in compare(one.astype("float64"), one, "y").problem
    assert not compare(one[:2], one, "y").passed
    assert not compare(one * np.nan, one * np.nan, "y").passed
    off = one.copy()
    off[1] += 0.5
    comparison = compare(off, one, "y")
    assert (comparison.passed, comparison.max_abs, comparison.max_rel, comparison.where) == (False, 0.5, 0.5, (1,))
    assert compare(off, one, "y", atol=0.6).passed


# Bisect ---------------------------------------------------------------------------------------------------------------


def test_bisect_finds_nothing_in_a_correct_export() -> None:
    assert bisect(Block(), SPEC) is None


@pytest.mark.parametrize(
    ("weight", "node", "module"),
    [
        ("first.bias", "first/linear/Add", "first"),
        ("attn.in_proj_weight[k].T", "attn/linear/Add_2", "attn"),
        ("attn.out_proj.bias", "attn/linear/Add_4", "attn"),
        ("last.0.weight", "last.0/layer_norm/LayerNormalization", "last.0"),
        ("last.1.bias", "output", "last.1"),
    ],
)
def test_bisect_finds_the_layer_whose_weight_was_changed(weight: str, node: str, module: str) -> None:
    model = Block()
    difference = bisect(model, SPEC, exported=tampered(to_onnx(model, SPEC), weight))
    assert difference is not None
    assert (difference.node, difference.module) == (node, module)
    assert difference.max_abs > 0.1
    assert str(difference).startswith(f"first difference: {node} in {module}, max abs")


def test_bisect_finds_an_op_that_is_lowered_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(build: Builder, node: Node) -> str:
        return build.op("Sigmoid", *node.inputs)

    monkeypatch.setitem(FORMS, "silu", (form(ops.silu)(wrong),))
    model = nn.Sequential(nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 3))
    with pytest.raises(ParityError):
        assert_parity(model, ("N", 3))
    difference = bisect(model, ("N", 3))
    assert difference is not None
    assert (difference.node, difference.module) == ("1/silu/Sigmoid", "1")


def test_bisect_examines_nodes_that_compute_the_same() -> None:
    """They are one node in the exported model."""
    right = lambda x: (x.exp() + 1) * (x.exp() + 2)  # noqa: E731
    assert bisect(right, ("N", "L")) is None
    wrong = to_onnx(lambda x: (x.exp() + 1) * (x.exp() + 2.5), ("N", "L"))
    difference = bisect(right, ("N", "L"), exported=wrong)
    assert difference is not None
    assert difference.node == "Add_2"


@pytest.mark.parametrize(("name", "value"), [("cache", "growing"), ("part", "encoder"), ("capacity", 4)])
def test_parts_and_caches_are_refused(name: str, value: Any) -> None:
    options = {name: value}
    with pytest.raises(ValueError, match=f"got {name}, expected a model as it is called; lucid verify compares"):
        assert_parity(Block(), SPEC, **options)


def test_bisect_takes_the_arguments_of_the_export() -> None:
    def model(x: Tensor, *, scale: float) -> Any:
        return F.scaled_dot_product_attention(x, x, x, scale=scale)

    options: dict[str, Any] = {"kwargs": {"scale": 0.5}, "opset": 18, "attention": "expanded"}
    assert bisect(model, ("N", 2, "L", 4), **options) is None


def test_default_sizes_hold_a_window_of_each_convolution_and_pooling() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 10, stride=5), nn.AvgPool1d(4))  # four windows of 10, 5 apart
    runs = [dict(c.sizes) for c in assert_parity(model, ("N", 2, "L"), providers=["cpu"]).comparisons]
    assert runs == [{"N": 1, "L": 27}, {"N": 5, "L": 27}, {"N": 3, "L": 54}]


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        (lucid.spec("N <= 4", 2), [{"N": 1}, {"N": 3}, {"N": 2}, {"N": 4}]),
        (lucid.spec("N", "1 <= L <= 2"), [{"L": 1, "N": 1}, {"L": 2, "N": 5}, {"L": 2, "N": 3}, {"L": 2, "N": 1}]),
        (lucid.spec("3 <= N <= 4", 2), [{"N": 3}, {"N": 3}, {"N": 4}, {"N": 4}]),
    ],
)
def test_runs_are_within_the_limits_of_sizes(spec: TensorType, sizes: list[dict[str, int]]) -> None:
    report = assert_parity(lambda x: x * 2, spec, providers=["cpu"])
    assert [comparison.sizes for comparison in report.comparisons] == sizes


def test_runs_are_as_long_as_a_short_table() -> None:
    table = nn.Embedding(2, 4)
    report = assert_parity(lambda x: x + table.weight[: x.shape[1]], ("N", "L", 4), providers=["cpu"])
    assert [comparison.sizes["L"] for comparison in report.comparisons] == [1, 2, 2, 2]
