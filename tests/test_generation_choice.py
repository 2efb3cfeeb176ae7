"""How a token is chosen from logits: penalties, functions of the user's, filters in transformers' order, draws."""

from __future__ import annotations

import numpy as np
import pytest

from lucid.generation import LogitsError, sampling
from lucid.generation.logits import Logits, checked, processed, repetition_penalised
from lucid.generation.options import Options

INF = np.inf
ALL = np.ones(1, bool)  # the one row is running


def of_probabilities(*values: float) -> Logits:
    """Logits (1, V) whose softmax is this."""
    with np.errstate(divide="ignore"):
        return np.log(np.array([values]))


def kept(logits: Logits) -> list[int]:
    """The tokens that a filter left in the one row."""
    return np.flatnonzero(np.isfinite(logits[0])).tolist()


# Filters --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "expected"), [(1, [2]), (2, [0, 2]), (3, [0, 2, 3]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3])]
)
def test_top_k_keeps_the_k_likeliest(k: int, expected: list[int]) -> None:
    assert kept(sampling.top_k(np.array([[3.0, -1, 5, 0]]), k)) == expected


def test_top_k_keeps_what_is_as_likely_as_the_last() -> None:
    assert kept(sampling.top_k(np.array([[2.0, 1, 2, 0, 2]]), 1)) == [0, 2, 4]


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.05, [1]),
        (0.49, [1]),
        (0.51, [1, 3]),
        (0.79, [1, 3]),
        (0.81, [0, 1, 3]),
        (0.96, [0, 1, 2, 3]),
        (1.0, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_fewest_that_sum_to_p(p: float, expected: list[int]) -> None:
    assert kept(sampling.top_p(of_probabilities(0.15, 0.5, 0.05, 0.3), p)) == expected


@pytest.mark.parametrize(("p", "expected"), [(0.2, [0]), (0.4, [0, 1]), (0.6, [0, 1, 2]), (1.0, [0, 1, 2, 3])])
def test_of_equally_likely_tokens_top_p_keeps_those_of_lower_id(p: float, expected: list[int]) -> None:
    assert kept(sampling.top_p(np.zeros((1, 4)), p)) == expected


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999, 1.0])
def test_top_p_is_what_sorting_all_tokens_gives(p: float) -> None:
    logits = np.random.default_rng(0).normal(size=(5, 1000)) * 4
    for row, found in zip(logits, sampling.top_p(logits, p), strict=True):
        order = np.argsort(row)
        cumulative = np.cumsum(np.exp(row[order]) / np.exp(row).sum())
        assert set(np.flatnonzero(np.isfinite(found))) == set(order[cumulative > 1 - p])


@pytest.mark.parametrize(
    ("p", "expected"), [(0.0, [0, 1, 2, 3]), (0.2, [0, 1, 3]), (0.5, [1, 3]), (0.7, [1]), (1.0, [1])]
)
def test_min_p_keeps_what_is_p_times_as_likely_as_the_likeliest(p: float, expected: list[int]) -> None:
    assert kept(sampling.min_p(of_probabilities(0.15, 0.5, 0.05, 0.3), p)) == expected


def test_what_was_removed_stays_removed() -> None:
    logits = of_probabilities(0.0, 0.5, 0.5, 0.0)
    for found in (sampling.top_k(logits, 3), sampling.top_p(logits, 1.0), sampling.min_p(logits, 0.0)):
        np.testing.assert_array_equal(found, logits)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_each_filter_leaves_at_least_as_many_as_it_must_keep(keep: int) -> None:
    logits = of_probabilities(0.9, 0.07, 0.03)
    for found in (
        sampling.top_k(logits, 1, keep),
        sampling.top_p(logits, 0.1, keep),
        sampling.min_p(logits, 1.0, keep),
    ):
        assert kept(found) == list(range(keep))


def test_filters_come_in_the_order_of_transformers() -> None:
    """Temperature changes what top_p and min_p keep; top_p counts the probabilities among the top_k alone."""
    logits = of_probabilities(0.4, 0.3, 0.2, 0.1)

    def after(**options: float | int) -> list[int]:
        return kept(sampling.filtered(logits, Options(max_new_tokens=1, do_sample=True, **options)))  # type: ignore[arg-type]

    assert after(top_p=0.65) == [0, 1]
    assert after(top_p=0.65, temperature=0.5) == [0, 1]  # squares: 16/30, 9/30, 4/30, 1/30
    assert after(top_p=0.5, temperature=0.5) == [0]
    assert after(top_p=0.65, temperature=10.0) == [0, 1, 2]
    assert after(top_k=3, top_p=0.75) == [0, 1]  # 4/9, 3/9, 2/9; of all four tokens it would be three
    assert after(top_p=0.75) == [0, 1, 2]
    assert after(min_p=0.6) == [0, 1]
    assert after(min_p=0.6, temperature=0.5) == [0]
    assert after() == [0, 1, 2, 3]


# Draws ----------------------------------------------------------------------------------------------------------------


def test_draws_follow_the_probabilities() -> None:
    logits = np.repeat(of_probabilities(0.5, 0.0, 0.3, 0.2), 20000, axis=0)
    counts = np.bincount(sampling.draw(logits, np.random.default_rng(0)), minlength=4)
    np.testing.assert_allclose(counts / 20000, [0.5, 0, 0.3, 0.2], atol=0.01)


def test_a_seed_gives_the_same_draws_and_small_errors_do_not_matter() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 20))
    first = sampling.draw(logits, np.random.default_rng(7))
    np.testing.assert_array_equal(first, sampling.draw(logits + 1e-9, np.random.default_rng(7)))
    assert (first != sampling.draw(logits, np.random.default_rng(8))).any()


def test_a_rows_draw_does_not_depend_on_the_other_rows() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 20))
    changed = logits.copy()
    changed[[0, 2]] = 0
    assert sampling.draw(logits, np.random.default_rng(1))[1] == sampling.draw(changed, np.random.default_rng(1))[1]


def test_distinct_draws_are_those_of_one_draw_after_the_other() -> None:
    """The first by its probability; the second by what is left, divided by 1 minus the first's."""
    logits = np.repeat(of_probabilities(0.6, 0.0, 0.3, 0.1), 20000, axis=0)
    pairs = sampling.draw_distinct(logits, 2, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(pairs[:, 0], minlength=4) / 20000, [0.6, 0, 0.3, 0.1], atol=0.01)
    after_first = pairs[pairs[:, 0] == 0, 1]
    np.testing.assert_allclose(np.bincount(after_first, minlength=4) / len(after_first), [0, 0, 0.75, 0.25], atol=0.01)


def test_the_largest_come_in_order_and_of_equal_ones_the_first() -> None:
    values = np.array([[1.0, 3, 3, -INF, 2], [0, 0, 0, 0, 0]])
    assert sampling.largest(values, 3).tolist() == [[1, 2, 4], [0, 1, 2]]
    assert sampling.largest(values, 9).shape == (2, 5)


# Penalties and the user's functions -----------------------------------------------------------------------------------


def test_the_repetition_penalty_divides_positive_logits_and_multiplies_negative_ones() -> None:
    logits = np.array([[4.0, -4, 4, -4, 0]])
    found = repetition_penalised(logits, np.array([[0, 1, 1, 4]]), np.ones((1, 4), np.int64), 2.0)
    assert found.tolist() == [[2, -8, 4, -4, 0]]


def test_padding_is_not_penalised() -> None:
    logits = np.ones((2, 3))
    found = repetition_penalised(logits, np.array([[0, 0, 1], [0, 2, 1]]), np.array([[0, 0, 1], [1, 1, 1]]), 2.0)
    assert found.tolist() == [[1, 0.5, 1], [0.5, 0.5, 0.5]]


def test_functions_of_the_users_come_one_after_the_other() -> None:
    ids = np.array([[1, 2]])
    seen = []

    def add(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        seen.append(ids.tolist())
        return logits + 1

    found = processed(np.zeros((1, 2)), ids, ALL, [add, lambda ids, logits: logits * 10])
    assert found.tolist() == [[10, 10]]
    assert seen == [[[1, 2]]]


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (
            None,
            TypeError,
            "logits processor 0 returned type NoneType, expected a NumPy array of floating-point numbers",
        ),
        (np.zeros((1, 3), int), TypeError, "logits processor 0 returned dtype int64"),
        (np.zeros(3), ValueError, r"logits processor 0 returned shape \[3\], expected \[1, 3\] as it was given"),
        (np.full((1, 3), np.nan), LogitsError, "logits processor 0 gave NaN for 3 of 3 tokens in row 0"),
        (np.full((1, 3), -INF), LogitsError, "gave -inf as the largest of 3 logits in row 0.*leave at least one token"),
    ],
)
def test_what_a_function_must_not_return(result: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        processed(np.zeros((1, 3)), np.zeros((1, 1), np.int64), ALL, [lambda ids, logits: result])  # type: ignore[list-item, return-value]


# Logits that no token can be chosen from ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1, np.nan, 2], "the model gave NaN for 1 of 3 tokens in row 1, expected a finite one; check the weights"),
        ([-INF, -INF, -INF], "the model gave -inf as the largest of 3 logits in row 1, expected a finite one"),
        ([1, INF, 2], r"the model gave \+inf as the largest of 3 logits in row 1"),
    ],
)
def test_logits_without_a_token_to_choose_are_errors(row: list[float], message: str) -> None:
    with pytest.raises(LogitsError, match=message):
        checked(np.array([[0, 0, 0], row]), np.ones(2, bool), "the model")


def test_rows_that_have_ended_may_have_any_logits() -> None:
    logits = np.array([[1, -INF, 2], [np.nan, 0, 0]], np.float16)
    assert checked(logits, np.array([True, False]), "the model").tolist() == [[1, -INF, 2], [0, 0, 0]]


def test_the_lowest_number_may_stand_for_minus_infinity() -> None:
    lowest = np.finfo(np.float64).min
    options = Options(max_new_tokens=1, do_sample=True, temperature=0.5, top_k=3, top_p=0.9, min_p=0.1)
    assert sampling.draw(sampling.filtered(np.array([[lowest, 1.0, lowest]]), options), np.random.default_rng(0)) == [1]
