"""Two hundred random models, each computed on all paths. `.ci/run` has two thousand more; `make fuzz` runs others."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.types import Array, DType, TensorType, bfloat16, float16, float32, float64
from lucid.core.targets.runtimes import ATTENTION_OF_BUFFERS
from lucid.export import Target
from lucid.runtime import installed
from tests.fuzz.checks import Coverage, exported
from tests.fuzz.choices import Choices, smallest
from tests.fuzz.gradients import compare, differentiated
from tests.fuzz.judge import Judge, Verdict
from tests.fuzz.programs import Program
from tests.fuzz.suite import CACHED, EVERY, IN_TESTS, INT8, QUANTIZED, model
from tests.fuzz.values import LOWEST, Recipe, array_of
from tools import fuzz

BATCH = 100


@pytest.mark.parametrize("first", range(0, IN_TESTS, BATCH))
def test_random_models_agree_in_every_form(first: int) -> None:
    coverage = Coverage()
    for number in range(first, first + BATCH):
        try:
            model(Choices(number), number).verify(coverage)
        except Exception as error:
            error.add_note(f"model {number}: python -m tools.fuzz --seed {number} --models 1 --shrink")
            raise
    assert coverage.models > BATCH
    assert coverage.refused < BATCH / 10
    assert coverage.open < coverage.results / 10, "the judge leaves too much open"


def test_gradients_of_random_models_are_those_of_differences() -> None:
    agreements = {number: compare(differentiated(Choices(number), number), number) for number in range(80)}
    assert [number for number, agrees in agreements.items() if agrees is False] == []
    assert sum(agrees is True for agrees in agreements.values()) > 70


# The judge itself --------------------------------------------------------------------------------------------------


def judged(function: object, *arrays: Array, tame: bool = True) -> list[Verdict]:
    kinds = [TensorType(lucid.core.graph.types.as_dtype(a.dtype), a.shape) for a in arrays]
    return Judge(lucid.trace(function, *kinds), tame)(arrays)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16])
def test_the_judge_allows_a_few_roundings_at_every_scale(dtype: DType) -> None:
    x = (np.arange(1, 33) * (1e-3 if dtype is float16 else 1e-30)).astype(dtype.numpy)
    (verdict,) = judged(lambda v: v * 0.3, x)
    unit = float(np.finfo(np.float32).eps) if dtype is float32 else None
    relative = verdict.allowed / np.abs(verdict.expected)
    assert not verdict.differs((Tensor(x) * 0.3).numpy()).any()
    assert unit is None or (relative < 30 * unit).all()
    assert verdict.differs(np.zeros_like(x)).all()


def test_the_judge_knows_the_condition_of_a_sum() -> None:
    (verdict,) = judged(lambda v: v.sum() * 3, np.array([1e8, 1.0, -1e8], np.float32))
    assert 10 < verdict.allowed < 1000  # of 3: the large ones cancel
    (verdict,) = judged(lambda v: v.sum() * 3, np.array([1.0, 1.0, 1.0], np.float32))
    assert verdict.allowed < 1e-4


def test_nan_and_infinities_are_decided_where_rounding_cannot_change_them() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    (verdict,) = judged(lambda v: v * 2, x)
    assert not verdict.open.any()
    assert verdict.differs(np.array([0, 1, np.inf, np.nan], np.float32)).all()
    assert not verdict.differs(x * 2).any()


def test_what_hangs_on_an_overflow_or_a_denormal_is_open() -> None:
    (verdict,) = judged(lambda v: (v * v) / v, np.array([1e30, 2.0], np.float32))
    assert verdict.open.tolist() == [True, False]
    (verdict,) = judged(lambda v: v > 0, np.array([1e-40, 2.0], np.float32))
    assert verdict.open.tolist() == [True, False]


def test_a_mean_whose_sum_overflows_is_open() -> None:
    (verdict,) = judged(lambda v: v.mean(axis=-1), np.array([[-3e38, -3e38, 1.0], [1.0, 2.0, 3.0]], np.float32))
    assert verdict.open.tolist() == [True, False]


@pytest.mark.parametrize("add", [lambda v: v.sum(-1), lambda v: (v[:, None] @ np.ones((4, 1), np.float32))[:, 0, 0]])
def test_a_sum_whose_parts_overflow_beside_an_infinity_of_the_other_sign_is_open(add: object) -> None:
    inf, nan = np.inf, np.nan
    rows = [
        [3e38, 3e38, -inf, 1],
        [-3e38, -3e38, -inf, 1],
        [3, 3, -inf, 1],
        [3e38, 3e38, inf, -inf],
        [3e38, 3e38, nan, 1],
    ]
    (verdict,) = judged(add, np.array(rows, np.float32), tame=False)
    assert verdict.open.tolist() == [True, False, False, False, False]
    np.testing.assert_array_equal(verdict.expected[1:], [-inf, -inf, nan, nan])


def attended_with(scale: float, size: float) -> Verdict:
    """Two positions, the second of a size, of which each sees itself and those before."""
    x = np.ones((1, 1, 2, 4), np.float32)
    x[..., 1, :] = size
    return judged(lambda v: ops.attention(v, v, v, is_causal=True, scale=scale), x, tame=False)[0]


@pytest.mark.parametrize("scale", [50.0, 0.1])
def test_a_hidden_score_that_overflows_before_or_after_it_is_scaled_may_become_nan(scale: float) -> None:
    size = 1e37 if scale > 1 else 2e38
    for right in (1.0, np.nan):
        assert not attended_with(scale, size).differs(np.full((1, 1, 2, 4), right, np.float32))[..., 0, :].any()
    for wrong in (0.0, 2.0):
        assert attended_with(scale, size).differs(np.full((1, 1, 2, 4), wrong, np.float32))[..., 0, :].all()
    assert attended_with(scale, 1e30).differs(np.full((1, 1, 2, 4), np.nan, np.float32))[..., 0, :].all()


def test_the_weights_of_a_query_are_open_where_a_score_overflows_beside_masks_near_the_lowest_number() -> None:
    query, key = np.array([[[[1e30, -1e30]]]], np.float32), np.array([[[[1e30, 5e29], [0, 0]]]], np.float32)
    mask, key_mask = np.array([[[[-3.3895e38, 0]]]], np.float32), np.full((1, 2), 0.5, np.float32)

    def weights(q: Tensor, k: Tensor, *masks: Tensor) -> Tensor:
        return ops.attention(q, k, k, *masks, need_weights=True)[1]

    assert judged(weights, query, key, mask, key_mask, tame=False)[0].open.all()
    (verdict,) = judged(weights, query / 1e30, key, mask, key_mask, tame=False)
    assert verdict.differs(np.full((1, 1, 1, 2), np.nan, np.float32)).all()


def test_what_softmax_computes_of_nothing_is_nothing() -> None:
    (verdict,) = judged(lambda v: ops.softmax(v, axis=0), np.ones((0, 3), np.float32))
    assert verdict.expected.shape == (0, 3)


def attended(query: float, unfilled: float) -> Verdict:
    """Two new positions of a number and then 1, after two of 1 in a buffer of five slots."""
    ones = np.ones((1, 1, 2, 4), np.float32)
    asked, buffer = ones.copy(), np.ones((1, 1, 5, 4), np.float32)
    asked[..., 0, :], buffer[..., 4, 0] = query, unfilled
    return judged(ops.buffered_attention, asked, ones, ones, buffer, buffer, np.array([2]), tame=False)[0]


def test_a_slot_that_is_not_filled_may_be_read_only_as_nan() -> None:
    verdict = attended(1.0, np.inf)
    for right in (1.0, np.nan):
        assert not verdict.differs(np.full((1, 1, 2, 4), right, np.float32)).any()
    for wrong in (0.0, 0.9, np.inf):
        assert verdict.differs(np.full((1, 1, 2, 4), wrong, np.float32)).all()


def test_nan_in_one_of_several_queries_over_a_buffer_may_become_0() -> None:
    verdict = attended(np.nan, 1.0)
    for right in (0.0, np.nan):
        assert not verdict.differs(np.full((1, 1, 2, 4), right, np.float32))[..., 0, :].any()
    for wrong in (1.0, np.inf):
        assert verdict.differs(np.full((1, 1, 2, 4), wrong, np.float32))[..., 0, :].all()
    assert verdict.differs(np.full((1, 1, 2, 4), np.nan, np.float32))[..., 1, :].all()


def test_a_hidden_key_may_overflow_float64() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return ops.attention(q, k, v, None, mask, is_causal=True, scale=50.0)

    query = np.array([[[[1e38], [1.0]]]])
    key, value = np.array([[[[1.0], [1e308]]]]), np.array([[[[2.0], [3.0]]]])
    (verdict,) = judged(attention, query, key, value, np.zeros((1, 2), np.float32), tame=False)
    for right in (2.0, np.nan):
        assert not verdict.differs(np.full((1, 1, 2, 1), right))[..., 0, :].any()
    assert verdict.differs(np.full((1, 1, 2, 1), 3.0))[..., 0, :].all()


def test_functions_are_exact_at_infinity() -> None:
    """GELU of -inf is NaN: infinity times 1 + tanh(-inf), which is 0 in every arithmetic."""
    (verdict,) = judged(lambda v: ops.gelu(v, approximate="tanh"), np.array([-np.inf], np.float32), tame=False)
    assert verdict.differs(np.array([np.inf], np.float32)).all()
    assert not verdict.differs(np.array([np.nan], np.float32)).any()


def test_the_judge_runs_bodies_and_no_fast_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.attention, "_kernel", lambda *_, **__: pytest.fail("a kernel judged"))
    x = np.ones((1, 2, 3, 4), np.float32)
    assert judged(lambda v: ops.attention(v, v, v), x)[0].expected.shape == x.shape


# What it draws -----------------------------------------------------------------------------------------------------


def test_a_model_follows_from_its_number() -> None:
    for number in range(30):
        first = Choices(number)
        drawn = repr(model(first, number))
        assert drawn == repr(model(Choices(number), number))
        assert drawn == repr(model(Choices(recorded=first.taken), number))


def test_caches_are_read_in_every_form_and_written_in_place() -> None:
    """Caches of both kinds; and the form that needs the newest onnxruntime, where that is installed."""
    forms: set[tuple[str, str]] = set()
    kinds: set[str] = set()
    in_place = 0
    for number in (n for n in range(12 * EVERY) if n % EVERY in CACHED):
        drawn = model(Choices(number), number)
        assert isinstance(drawn.what, Program)
        _, decisions, _ = exported(lucid.trace(drawn.what, *drawn.what.kinds), drawn.target)
        forms |= {(decision.op, decision.taken) for decision in decisions}
        kinds |= {kind for kind in ("growing", "fixed") if f"{kind}: " in repr(drawn.what)}
        in_place += len(drawn.what.in_place)
    assert kinds == {"growing", "fixed"}
    assert in_place > 10
    over_buffers = {"attention over what is filled", "com.microsoft GroupQueryAttention", "expanded"}
    if Target("cpu", onnxruntime=installed()).wrong(ATTENTION_OF_BUFFERS):
        over_buffers.remove("com.microsoft GroupQueryAttention")
    assert {form for op, form in forms if op == "buffered_attention"} == over_buffers
    assert {form for op, form in forms if op == "write_at"} == {"ai.onnx ScatterElements", "ai.onnx TensorScatter"}


def test_quantized_weights_are_read_in_every_form_and_at_both_levels() -> None:
    forms: set[tuple[str, int]] = set()
    for number in (n for n in range(24 * EVERY) if n % EVERY in QUANTIZED):
        drawn = model(Choices(number), number)
        assert isinstance(drawn.what, Program)
        _, decisions, target = exported(lucid.trace(drawn.what, *drawn.what.kinds), drawn.target)
        forms |= {(d.taken, target.accuracy_level) for d in decisions if d.op == "quantized_linear"}
    level_0 = {"com.microsoft MatMulNBits", "ai.onnx DequantizeLinear, MatMul", "float32 between casts", "expanded"}
    assert {(form, level) for form in level_0 for level in (0, 4)} <= forms


def test_int8_products_are_read_in_every_form() -> None:
    forms: set[tuple[str, str]] = set()
    for number in (n for n in range(16 * EVERY) if n % EVERY in INT8):
        drawn = model(Choices(number), number)
        assert isinstance(drawn.what, Program)
        _, decisions, _ = exported(lucid.trace(drawn.what, *drawn.what.kinds), drawn.target)
        forms |= {(d.op, d.taken) for d in decisions if d.op.startswith("int8")}
    assert {(op, taken == "expanded") for op, taken in forms} == {
        (f"int8_linear_{way}", expanded) for way in ("dynamic", "rows", "static") for expanded in (True, False)
    }


def test_at_level_4_the_judge_allows_what_rounding_inputs_to_8_bits_can_do() -> None:
    x = np.full((1, 20), 0.3, np.float32)
    x[0, 16:] = 100.0
    weight = lucid.quantize(nn.Linear(20, 1, bias=False), 8, block=16, symmetric=True)
    weight.weight.scales.assign(np.full((1, 2), 1 / 64, np.float32))
    weight.weight.packed.assign(np.full((1, 2, 16), 192, np.uint8))  # each weight is 1
    graph = lucid.trace(weight, ("N", 20))
    (exact,), (rounded,) = (Judge(graph, in_8_bits=level)([x]) for level in (False, True))
    assert exact.allowed.item() < 0.01  # of 404.8
    # Each of the first 16 by up to 0.3 / 254, of the last 4 by up to 100 / 254; ten times the distance of some errors.
    assert 0.5 < rounded.allowed.item() < 20


def test_inputs_hold_what_implementations_part_on() -> None:
    generator = np.random.default_rng(0)
    drawn = array_of(float32, (400, 400), Recipe("special"), generator)
    assert np.isnan(drawn).any()
    assert np.isposinf(drawn).any()
    assert np.isneginf(drawn).any()
    assert (np.signbit(drawn) & (drawn == 0)).any()
    assert ((drawn != 0) & (np.abs(drawn) < np.finfo(np.float32).tiny)).any()
    masks = array_of(float64, (100, 100), Recipe("mask", 1), generator)
    assert all((masks == lowest).any() for lowest in LOWEST)
    assert array_of(float16, (0, 3), Recipe("hot", 4), generator).shape == (0, 3)
    rows = array_of(float64, (50, 5), Recipe("mask", 2), generator)
    assert (rows <= LOWEST[0]).all(1).any()


def test_the_smallest_failure_is_looked_for() -> None:
    shortest = smallest([3, 7, 1, 9, 4], lambda taken: sum(taken) > 8)
    assert sum(shortest) == 9
    assert len(shortest) < 3


# The tool --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["failure", "failure_of_gradient"])
def test_the_tool_prints_the_smallest_failure_that_it_finds(
    check: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(choices: Choices, number: int, coverage: Coverage | None = None) -> Exception | None:
        drawn = [choices.number(0, 9) for _ in range(choices.number(3, 9))]
        return ValueError(f"sum {sum(drawn)} of {len(drawn)}") if sum(drawn) > 8 else None

    monkeypatch.setattr(fuzz, check, fails)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--seed", "3", "--models", "1", "--shrink"])
    assert fuzz.main() == 1
    printed = capsys.readouterr().out
    assert "model 3 failed: ValueError: sum 24 of 4" in printed
    assert "the smallest found: sum 9 of 3" in printed
    assert "1 of them failed" in printed


def test_the_tool_shows_the_program_whose_gradient_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "compare", lambda program, number: False)
    error = fuzz.failure_of_gradient(Choices(3), 3)
    assert isinstance(error, AssertionError)
    assert f"not that of differences\n{differentiated(Choices(3), 3)}" in str(error)
