"""The default tolerance: as wide as rounding at the tensor's magnitude, no wider; a given one is applied as it is."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import Tensor, nn
from lucid.core.graph.types import Array, TensorType, bfloat16, float16, float32, float64
from lucid.export import to_onnx
from lucid.models.gpt2 import GPT2, GPT2Config
from lucid.models.llama import Llama, LlamaConfig
from lucid.ops import Op
from lucid.testing import Comparison, ParityError, assert_parity, bisect
from lucid.testing.in_float64 import NarrowOpError, in_float64, run_in_float64
from lucid.testing.tolerance import UNITS, compare
from tests.cases import in_one_test
from tests.samples import SAMPLES, Sample
from tests.test_ops import arrays_of, attributes_of, traced, widened

NORMAL = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
RUN: dict[str, Any] = {"sizes": [{"N": 2, "L": 24}]}


def off(want: Array, index: int, by: float) -> Comparison:
    """One element of it changed, and compared."""
    got = want.copy()
    got[index] += np.asarray(by, want.dtype)
    return compare(got, want, "y")


# The scale ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-6, 1.0, 384.0, 1e20])
def test_the_tolerance_grows_and_shrinks_with_the_tensor(scale: float) -> None:
    want = NORMAL * np.float32(scale)
    assert off(want, 0, 4e-6 * scale).passed
    assert not off(want, 0, 3e-5 * scale).passed


def test_an_outlier_does_not_hide_an_error_beside_it() -> None:
    want = NORMAL.copy()
    want[:300] = np.finfo(np.float32).min  # as a mask gives them
    assert off(want, 500, 4e-6).passed
    assert not off(want, 500, 3e-5).passed


def test_an_outlier_itself_is_rounded_as_one() -> None:
    want = NORMAL.copy()
    want[7] = 1e6
    assert off(want, 7, 1.0).passed
    assert not off(want, 7, 100.0).passed


def test_zeros_do_not_make_a_tensor_smaller() -> None:
    assert off(np.maximum(NORMAL, 0) * (NORMAL > 1), 0, 4e-6).passed
    nothing = np.zeros(5, np.float32)
    assert off(nothing, 0, 9e-6).passed
    assert not off(nothing, 0, 2e-5).passed


@pytest.mark.parametrize("dtype", [float16, float32, bfloat16, float64])
def test_the_unit_is_that_of_the_element_type(dtype: lucid.DType) -> None:
    want = np.ones(8, dtype.numpy)
    unit = UNITS[dtype.name]
    assert off(want, 0, unit).passed
    assert not off(want, 0, 4 * unit).passed


def test_numbers_below_the_smallest_normal_one_are_rounded_alike() -> None:
    want = np.full(8, 1e-6, np.float16)
    assert off(want, 0, 1.2e-7).passed
    assert not off(want, 0, 1e-6).passed


def test_a_given_tolerance_means_what_it_says() -> None:
    large = np.full(3, 1000, np.float32)
    assert off(large, 0, 0.5).passed is False
    assert off(large, 0, 0.005).passed
    got = large + np.float32(0.005)
    for atol, rtol, allowed in ((0.0, 1e-6, 1e-3), (2e-3, 0.0, 2e-3)):
        assert compare(large, large, "y", atol=atol, rtol=rtol).allowed == pytest.approx(allowed)
        assert not compare(got, large, "y", atol=atol, rtol=rtol, exact=got.astype(np.float64)).passed
    assert compare(large, large, "y", atol=1.0).allowed == pytest.approx(1.01)  # rtol is the unit


def test_the_worst_element_is_told_with_what_it_was_held_against() -> None:
    want = np.array([1, 1, 1000], np.float32)
    comparison = compare(want + np.array([0, 1e-4, 1e-3], np.float32), want, "y")
    assert comparison.where == (1,)
    assert comparison.max_abs > comparison.error == pytest.approx(1e-4, rel=1e-2)
    assert comparison.allowed == pytest.approx(2e-5)
    assert comparison.share == pytest.approx(5, rel=1e-2)
    assert str(comparison).endswith(
        "; at [1] 1.00e-04 where 2.00e-05 is allowed (1.0e-05 + 1e-05 * |eager|; typical magnitude 1)"
    )


# float64 --------------------------------------------------------------------------------------------------------------


def test_what_is_as_near_to_the_exact_result_as_eager_passes() -> None:
    exact = np.zeros(4)
    want, got = np.full(4, 1e-4, np.float32), np.full(4, -1e-4, np.float32)
    exact[0] = want[0] = got[0] = 1
    assert not compare(got, want, "y").passed
    comparison = compare(got, want, "y", exact=exact)
    assert comparison.passed
    assert "from the result in float64, of which eager is up to 1.0e-04 off" in str(comparison)
    assert not compare(got * np.array([1, 4, 1, 1], np.float32), want, "y", exact=exact).passed


def test_few_elements_may_be_right_by_luck() -> None:
    exact = np.full(1, 1e-4)
    want = exact.astype(np.float32)
    got = want + np.float32(3e-7)
    assert compare(got, want, "y", exact=exact).passed
    assert not compare(got.repeat(50), want.repeat(50), "y", exact=exact.repeat(50)).passed


def test_an_eager_result_that_is_far_from_the_exact_one_excuses_nothing() -> None:
    want = np.ones(4, np.float32)
    assert not compare(want * 2, want, "y", exact=np.full(4, 2.0)).passed
    assert not compare(want, want * np.inf, "y", exact=np.ones(4)).passed
    assert not compare(want * 2, want, "y", exact=np.full(4, np.nan)).passed


def test_the_rounding_of_an_outlier_excuses_nothing_beside_it() -> None:
    want = np.array([1, 1, -1e9], np.float32)
    exact = want + np.array([0, 0, 30.0])
    assert not compare(want + np.array([3e-4, 0, 0], np.float32), want, "y", exact=exact).passed


@in_one_test(SAMPLES, attrgetter("name"))
def test_every_op_can_be_computed_in_float64(s: Sample) -> None:
    narrow = next((d for d in s.dtypes if d.kind == "float" and d != float64), s.dtypes[0])
    graph = in_float64(traced(s, narrow))
    graph.verify()
    assert all(r.type.dtype.kind != "float" or r.type.dtype == float64 for r in graph.outputs)
    arrays = arrays_of(s, narrow, s.sizes[0])
    expected = s.reference(*map(widened, arrays[: len(s.inputs)]), **attributes_of(s, s.sizes[0]))
    expected = expected if isinstance(expected, tuple) else (expected,)
    if s.op.name != "cast":  # which does nothing there, between floating-point types
        for got, want in zip(
            run_in_float64(traced(s, narrow), [a for a in arrays if a is not None]), expected, strict=True
        ):
            np.testing.assert_allclose(got, np.asarray(want), rtol=1e-9, atol=1e-9)


# Models ---------------------------------------------------------------------------------------------------------------


def scaled(model: nn.Module, factor: float) -> nn.Module:
    """A model whose matrices are multiplied by a factor: activations and logits become large."""
    weights = {name: p.numpy() for name, p in model.state_dict().items()}
    model.load_state_dict(
        {n: lucid.tensor((w * factor).astype(w.dtype) if w.ndim > 1 else w) for n, w in weights.items()}
    )
    return model


def llama(dtype: lucid.DType) -> Llama:
    return Llama(LlamaConfig(300, 64, 172, 4, 2, 16, (None,) * 6, dtype=dtype))


def test_a_gpt2_with_large_logits_passes() -> None:
    model = scaled(GPT2(GPT2Config(300, 64, 4, 4, max_positions=64)), 20.0)
    report = assert_parity(model, **RUN)
    assert report.max_abs > 1e-4  # more than a tolerance for numbers around 1 allows
    assert report.worst is not None and report.worst.share < 1


@pytest.mark.parametrize("dtype", [float16, bfloat16])
def test_a_llama_in_half_precision_passes(dtype: lucid.DType) -> None:
    assert_parity(llama(dtype), **RUN)


def test_an_output_is_held_to_the_coarsest_type_behind_it() -> None:
    model = llama(float16)
    assert_parity(lambda tokens: model(tokens).astype(float32), lucid.spec("N", "L", dtype="int64"), **RUN)


@pytest.mark.parametrize(("dtype", "by"), [(float32, 1e-3), (float16, 1.0), (bfloat16, 10.0)])
def test_a_small_fault_in_one_weight_is_found(dtype: lucid.DType, by: float) -> None:
    """One of 4096 numbers of one matrix in the middle, whose matrices' numbers are around 0.1."""
    model = llama(dtype)
    exported = to_onnx(model)
    (tensor,) = (t for t in exported.graph.initializer if "layers.2" in t.name and "gate_proj" in t.name)
    array = onnx.numpy_helper.to_array(tensor).copy()
    array[3, 5] += np.asarray(by, array.dtype)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    with pytest.raises(ParityError):
        assert_parity(model, exported=exported, **RUN)


def test_an_op_that_does_not_take_float64_leaves_the_magnitudes() -> None:
    def rule(x: TensorType) -> TensorType:
        if x.dtype != float32:
            raise TypeError(f"wrong_sine: got {x}, expected float32")
        return x

    def call(x: Tensor) -> Tensor: ...  # type: ignore[empty-body]

    wrong = Op(call, name="wrong_sine", kernel=lambda x: np.sin(x) * np.float32(1.001), rule=rule, onnx="Sin")
    with pytest.raises(NarrowOpError, match="wrong_sine is not computed in float64: wrong_sine: got float64"):
        in_float64(lucid.trace(wrong, (5,)))
    with pytest.raises(ParityError, match="typical magnitude"):
        assert_parity(wrong, (5,))


def test_nothing_is_computed_in_float64_where_the_results_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("computed in float64")

    monkeypatch.setattr("lucid.testing.outputs.run_in_float64", never)
    assert_parity(nn.Linear(30, 3))
    with pytest.raises(ParityError):  # nor if the tolerance is given
        assert_parity(nn.Linear(300, 30), rtol=0, atol=0)


def test_bisect_holds_nodes_to_the_same_tolerance() -> None:
    def cancels(x: Tensor) -> Tensor:
        large = (x * 1000).softmax(axis=-1) + 1000 * x
        return (large - large.mean(axis=-1, keepdims=True)).softmax(axis=-1)

    lucid.manual_seed(1)
    assert_parity(cancels, ("N", 50))
    assert bisect(cancels, ("N", 50)) is None
