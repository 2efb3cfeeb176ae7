"""Nothing is silently ignored: invalid weights, numbers that do not fit, empty comparisons."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.export import ExportError, WeightWarning, to_onnx
from lucid.nn import functional as F
from lucid.runtime import Session
from lucid.testing import Comparison, ParityError, ParityReport, assert_parity
from lucid.testing.tolerance import compare

X = ("N", 64)
NAN, INF = math.nan, math.inf


# Weights ----------------------------------------------------------------------------------------------------------


def linear_with(array: np.ndarray[Any, Any]) -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model[1].weight.assign(array.astype(np.float32))
    return model


GOOD = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


@pytest.mark.parametrize("number", [NAN, INF, -INF])
def test_nan_and_infinity_in_a_weight_are_named(number: float) -> None:
    bad = GOOD.copy()
    bad[3, 5] = number
    with pytest.warns(WeightWarning, match=r"NaN or infinity: 1\.weight"):
        to_onnx(linear_with(bad), X)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_nan_is_found_in_weights_of_every_element_type(dtype: str) -> None:
    model = nn.Linear(64, 64).to(dtype)
    model.weight.numpy()[1, 1] = NAN
    with pytest.warns(WeightWarning, match="NaN or infinity: weight"):
        to_onnx(model, lucid.spec("N", 64, dtype=dtype))


def test_a_mask_that_the_model_computes_is_no_weight() -> None:
    def masked(x: lucid.Tensor, bad: lucid.Tensor) -> lucid.Tensor:
        later = lucid.triu(lucid.ones(7, 7, dtype=lucid.bool), 1)
        scores = (x @ x.mT).masked_fill(later, -INF).masked_fill(bad[:, None, :], lucid.finfo(x.dtype).min)
        return nn.functional.softmax(scores, -1) @ x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_onnx(masked, (2, 7, 64), lucid.spec(2, 7, dtype=lucid.bool))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_nan_in_a_constant_is_named(dtype: str) -> None:
    constant = lucid.tensor([[NAN, 1.0], [2.0, 3.0]]).to(dtype)
    with pytest.warns(WeightWarning, match="NaN or infinity: constant"):
        to_onnx(lambda x: x + constant, lucid.spec(2, 2, dtype=dtype))


def test_weights_whose_sum_overflows_are_not_reported() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_onnx(linear_with(GOOD * np.float32(1e37)), X)


def test_a_matrix_of_zeros_is_named_and_a_bias_of_zeros_is_not() -> None:
    model = linear_with(np.zeros((64, 64)))
    model[0].bias.assign(np.zeros(64, np.float32))
    with pytest.warns(WeightWarning, match=r"all zero: 1\.weight\.T; they were probably not") as caught:
        to_onnx(model, X)
    assert len(caught) == 1


def test_a_mask_of_zeros_is_no_weight() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_onnx(lambda x: x + np.zeros((64, 64), np.float32), (64, 64))


def test_many_denormal_numbers_are_named_and_a_few_are_not() -> None:
    few, many = GOOD.copy(), GOOD.copy()
    few[0, :5] = 1e-40
    many[0:8] = 1e-40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_onnx(linear_with(few), X)
    with pytest.warns(WeightWarning, match=r"denormal numbers: 1\.weight"):
        to_onnx(linear_with(many), X)


def test_a_long_list_of_weights_is_cut() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(9)))
    for layer in model:
        layer.weight.assign(np.full((4, 4), NAN, np.float32))
    with pytest.warns(WeightWarning, match="and 4 more"):
        to_onnx(model, ("N", 4))


# Numbers that do not fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (300, "int8"),
        (-1, "uint8"),
        (2**31, "int32"),
        (2.0**63, "int64"),
        (2**63, "int64"),
        (NAN, "int8"),
        (INF, "int32"),
        (70000.0, "float16"),
        (1e39, "float32"),
        (-1e39, "bfloat16"),
    ],
)
def test_a_number_that_an_element_type_cannot_hold_is_an_error(number: float, dtype: str) -> None:
    for make in (
        lambda: lucid.tensor(number, dtype=dtype),
        lambda: lucid.tensor([0, number], dtype=dtype),
        lambda: lucid.tensor([[number]], dtype=dtype),
        lambda: lucid.full((2,), number, dtype=dtype),
    ):
        with pytest.raises(OverflowError, match=f"does not fit {dtype}"):
            make()


@pytest.mark.parametrize(
    ("number", "dtype", "target"),
    [
        *((200, "uint8", "int8"), (-1, "int8", "uint8"), (2**31, "uint32", "int32"), (2**63, "uint64", "int64")),
        (2.0**31, "float32", "int32"),  # that casts to the largest number on some processors, and back to itself
        (2.0**63, "float64", "int64"),
    ],
)
def test_numbers_of_the_same_width_do_not_wrap_around(number: int, dtype: str, target: str) -> None:
    array = np.array([0, number], dtype)
    with pytest.raises(OverflowError, match=re.escape(f"{number} does not fit {target}")):
        lucid.tensor(array, dtype=target)
    np.testing.assert_array_equal(lucid.tensor(array[:1], dtype=target).numpy(), [0])


@pytest.mark.parametrize(
    ("number", "dtype", "kept"),
    [
        (127, "int8", 127),
        (255, "uint8", 255),
        (1.9, "int8", 1),
        (-1.9, "int8", -1),
        (65504.0, "float16", 65504.0),
        (65519.0, "float16", 65504.0),
        (INF, "float16", INF),
        (1e-09, "float16", 0.0),
        (0.1, "float32", np.float32(0.1)),
        (2**63 - 1, "int64", 2**63 - 1),
        (2**63 - 1, "float32", 2.0**63),
        (True, "int8", 1),
        (3, "bool", True),
    ],
)
def test_rounding_is_not_an_error(number: float, dtype: str, kept: Any) -> None:
    assert lucid.tensor(number, dtype=dtype).numpy() == kept
    assert lucid.tensor([number], dtype=dtype).numpy()[0] == kept


def test_a_python_number_beside_a_tensor_must_fit_its_type() -> None:
    half = lucid.ones(2, dtype="float16")
    with pytest.raises(OverflowError, match=r"1000000\.0 does not fit float16"):
        lucid.where(half > 0, half, 1e6)
    assert np.isinf((half * 1e6).numpy()).all(), "arithmetic with numbers is in float32, rounded once, as in torch"
    assert ((half * 1e6) / 1e6).dtype == lucid.float16
    with pytest.raises(OverflowError, match=r"1e\+300 does not fit float32"):
        lucid.ones(2) * 1e300
    with pytest.raises(OverflowError, match="9223372036854775808 does not fit int64"):
        lucid.tensor([1]) + 2**63
    with pytest.raises(OverflowError, match="300 does not fit int8"):
        to_onnx(lambda x: x + 300, lucid.spec("N", dtype="int8"))


def test_weights_that_overflow_when_converted_are_named_and_nothing_changes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight.assign(np.full((2, 2), 1e5, np.float32))
    with pytest.raises(OverflowError, match=r"1\.weight: 100000\.0 does not fit float16"):
        model.to("float16")
    assert {t.dtype for t in model.parameters()} == {lucid.float32}
    half = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to("float16")
    before = half[0].weight.numpy().copy()
    with pytest.raises(OverflowError, match=r"1\.weight"):
        half.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(half[0].weight.numpy(), before)


def test_what_a_model_computes_overflows_to_infinity_as_on_every_backend() -> None:
    x = lucid.tensor([1e5, -1e5, 1.0])
    assert x.astype("float16").tolist() == [INF, -INF, 1.0]
    assert_parity(lambda x: x.astype("float16"), x)


# Comparisons ------------------------------------------------------------------------------------------------------


def test_nan_on_both_sides_does_not_pass() -> None:
    with pytest.raises(ParityError, match="NaN in the exported and the eager result, first at"):
        assert_parity(lambda x: (x - 1e6).log(), ("N", 3))


def test_nan_on_one_side_says_which() -> None:
    comparison = compare(np.array([1.0, NAN]), np.array([1.0, 2.0]), "y")
    assert not comparison.passed
    assert "NaN in the exported result" in comparison.problem
    comparison = compare(np.array([1.0, 2.0]), np.array([NAN, 2.0]), "y")
    assert not comparison.passed
    assert "NaN in the eager result" in comparison.problem


def test_infinities_agree_only_with_themselves() -> None:
    assert compare(np.array([INF, -INF]), np.array([INF, -INF]), "y").passed
    assert not compare(np.array([INF]), np.array([-INF]), "y").passed
    assert not compare(np.array([1e30]), np.array([INF]), "y").passed
    assert not compare(np.array([INF]), np.array([1e30]), "y").passed


def test_outputs_that_are_always_empty_do_not_pass() -> None:
    with pytest.raises(ParityError, match="nothing was compared"):
        assert_parity(lambda x: x[:, :0], ("N", 3))
    with pytest.raises(ParityError, match="nothing was compared"):
        assert_parity(lambda x: x + 1, ("N", 3), sizes=[{"N": 0}])


def test_an_empty_run_beside_others_is_told_apart() -> None:
    report = assert_parity(lambda x: x + 1, ("N", 3), sizes=[{"N": 0}, {"N": 2}])
    assert [c.problem for c in report.comparisons] == ["empty", ""]
    assert "empty" in str(report)


@pytest.mark.parametrize("wrong", [NAN, INF, -1.0])
def test_a_tolerance_that_everything_passes_is_an_error(wrong: float) -> None:
    for name in ("rtol", "atol"):
        with pytest.raises(ValueError, match=f"{name} is {wrong}, expected a finite number"):
            assert_parity(lambda x: x + 1, X, **{name: wrong})


@pytest.mark.parametrize("sizes", [[], [{}], [{"M": 2}], [{"N": 2, "M": 1}], [{"N": -1}], [{"N": 2.0}]])
def test_sizes_that_the_inputs_do_not_have_are_an_error(sizes: Any) -> None:
    with pytest.raises(ValueError, match="sizes"):
        assert_parity(lambda x: x + 1, X, sizes=sizes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"providers": "cpu"}, r"providers is 'cpu', expected a list, such as \['cpu'\]"),
        ({"sizes": {"N": 3}}, r"sizes is {'N': 3}, expected a list, such as \[{'N': 2}\]"),
        ({"sizes": [3]}, r"sizes is \[3\], expected a list, such as"),
    ],
)
def test_what_parity_takes_in_lists_is_asked_for_in_lists(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        assert_parity(nn.Linear(3, 2), ("N", 3), **options)


def test_no_providers_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="providers is empty"):
        assert_parity(lambda x: x + 1, X, providers=[])


def test_large_integers_are_compared_exactly() -> None:
    """float64 holds 53 bits: 2**53 and 2**53 + 1 are the same there."""
    x, y = np.array([2**53]), np.array([2**53 + 1])
    assert compare(x, x, "y").passed
    comparison = compare(x, y, "y")
    assert not comparison.passed
    assert comparison.max_abs == 1
    assert "got 9007199254740992, eager 9007199254740993" in comparison.problem


def test_shapes_and_types_must_be_equal() -> None:
    assert not compare(np.ones((2, 1)), np.ones((1, 2)), "y").passed
    assert not compare(np.ones(2, np.float32), np.ones(2, np.float64), "y").passed
    assert not compare(np.ones((0, 2)), np.ones((0, 3)), "y").passed


def test_a_model_that_is_exported_wrongly_is_found() -> None:
    calls: list[int] = []

    def changing(x: Tensor) -> Tensor:
        calls.append(1)
        return x * float(len(calls))

    with pytest.raises(ParityError, match="FAIL"):
        assert_parity(changing, X)


def test_a_node_that_another_provider_computes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "placement", lambda self: {"Add": "OtherProvider", "Mul": "CPUExecutionProvider"})
    report = assert_parity(lambda x: x + 1, X)
    assert report.elsewhere == {"CPUExecutionProvider": {"Add": "OtherProvider"}}
    assert "1 nodes are computed elsewhere: Add on OtherProvider" in str(report)


def test_a_report_of_nothing_has_not_passed() -> None:
    assert not ParityReport((), {}).passed
    assert not ParityReport((Comparison("cpu", {}, "y", 0, 0.0, 0.0, (), True, "empty"),), {}).passed


# Options ----------------------------------------------------------------------------------------------------------

Q = lucid.zeros(1, 2, 3, 4)
P = lucid.zeros(1, 3, 8)
ROW = lucid.zeros(2, 4)
WRONG: dict[str, Any] = {
    **{f"layer_norm eps {eps}": lambda eps=eps: ops.layer_norm(ROW, eps=eps) for eps in (-1.0, NAN, INF)},
    **{f"rms_norm eps {eps}": lambda eps=eps: ops.rms_norm(ROW, eps=eps) for eps in (-1.0, NAN, INF)},
    "batch_norm eps": lambda: ops.batch_norm(ROW, lucid.zeros(4), lucid.ones(4), eps=-1.0),
    "group_norm eps": lambda: ops.group_norm(ROW, groups=2, eps=NAN),
    **{
        f"scale {s}": lambda s=s: F.scaled_dot_product_attention(Q, Q, Q, scale=s)
        for s in (NAN, INF, 1j, complex(NAN, 0))
    },
    **{f"attention scale {s}": lambda s=s: ops.attention(Q, Q, Q, scale=s) for s in (NAN, -INF)},
    **{f"softcap {s}": lambda s=s: ops.attention(Q, Q, Q, softcap=s) for s in (-1.0, NAN, INF)},
    **{f"window {w}": lambda w=w: ops.attention(Q, Q, Q, window=w) for w in (0, -1, 1.5, True)},
    **{f"heads {h}": lambda h=h: ops.attention(P, P, P, heads=h) for h in (0, -2, 2.0)},
    "kv_heads": lambda: ops.attention(P, P, P, heads=4, kv_heads=0),
    **{f"dropout {p}": lambda p=p: nn.Dropout(p) for p in (-0.1, 1.1, NAN)},
    **{f"F.dropout {p}": lambda p=p: F.dropout(ROW, p) for p in (-0.1, 1.1, NAN)},
    **{f"Linear {n}": lambda n=n: nn.Linear(n, 2) for n in (0, -1, 2.0, True)},
    **{f"threads {n}": lambda n=n: Session(b"", threads=n) for n in (0, -1, 1.5, True)},
    **{f"opset {n}": lambda n=n: to_onnx(lambda x: x, X, opset=n) for n in (16, 27, 23.0, "23", True, -1)},
    "external_data": lambda: to_onnx(lambda x: x, X, external_data="yes"),
    **{f"arange step {n}": lambda n=n: lucid.arange(0, 4, n) for n in (0, True)},
    **{f"chunk {n}": lambda n=n: ROW.chunk(n) for n in (0, -1)},
    **{f"split {n}": lambda n=n: ROW.split(n) for n in (0, -1, [3, -1])},
    "repeat": lambda: ROW.repeat(-1, 1),
    "zeros": lambda: lucid.zeros(2, -1),
    "one_hot": lambda: ops.one_hot(lucid.arange(2), 0),
    "argmax": lambda: ops.argmax(lucid.zeros(2, 0)),
    "max": lambda: lucid.zeros(2, 0).max(axis=1),
    "spec": lambda: lucid.spec("N", -1),
    "seed": lambda: lucid.manual_seed(-1),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_option_out_of_range_is_an_error(case: str) -> None:
    with pytest.raises((ValueError, ExportError)) as caught:
        WRONG[case]()
    assert len(str(caught.value)) > 20
    assert not isinstance(caught.value, ZeroDivisionError)


def test_a_size_that_is_no_whole_number_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"stop is '3', expected a number or a size"):
        lucid.arange("3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is float"):
        lucid.spec("N", 2.5)
