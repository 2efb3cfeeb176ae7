"""How a token is chosen from logits: penalties, functions of the user's, filters in transformers' order, draws."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from lucid.generation import LogitsError, TokenLogprob, sampling
from lucid.generation.choice import Chooser
from lucid.generation.logits import Logits, checked
from lucid.generation.options import Options
from tests.models import goldens

INF = np.inf


def of_probabilities(*values: float) -> Logits:
    """Logits (V,) whose softmax is this."""
    with np.errstate(divide="ignore"):
        return np.log(np.array(values))


def kept(logits: Logits) -> list[int]:
    """The tokens that a filter left."""
    return np.flatnonzero(np.isfinite(logits)).tolist()


def after(logits: Any, ids: Any = (), start: int = 0, **options: Any) -> list[float]:
    """The logits after what options do to them before a token is drawn."""
    chooser = Chooser(Options(**{"max_new_tokens": 100, **options}), start)
    return chooser.process(np.array(ids, np.int64), np.asarray(logits, np.float64)).tolist()


# Filters --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "expected"), [(1, [2]), (2, [0, 2]), (3, [0, 2, 3]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3])]
)
def test_top_k_keeps_the_k_likeliest(k: int, expected: list[int]) -> None:
    assert kept(sampling.top_k(np.array([3.0, -1, 5, 0]), k)) == expected


def test_top_k_keeps_what_is_as_likely_as_the_last() -> None:
    assert kept(sampling.top_k(np.array([2.0, 1, 2, 0, 2]), 1)) == [0, 2, 4]


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
    assert kept(sampling.top_p(np.zeros(4), p)) == expected


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999, 1.0])
def test_top_p_is_what_sorting_all_tokens_gives(p: float) -> None:
    logits = np.random.default_rng(0).normal(size=(5, 1000)) * 4
    for row in logits:
        order = np.argsort(row)
        cumulative = np.cumsum(np.exp(row[order]) / np.exp(row).sum())
        assert set(kept(sampling.top_p(row, p))) == set(order[cumulative > 1 - p])


@pytest.mark.parametrize(
    ("p", "expected"), [(0.0, [0, 1, 2, 3]), (0.2, [0, 1, 3]), (0.5, [1, 3]), (0.7, [1]), (1.0, [1])]
)
def test_min_p_keeps_what_is_p_times_as_likely_as_the_likeliest(p: float, expected: list[int]) -> None:
    assert kept(sampling.min_p(of_probabilities(0.15, 0.5, 0.05, 0.3), p)) == expected


def test_what_was_removed_stays_removed() -> None:
    logits = of_probabilities(0.0, 0.5, 0.5, 0.0)
    for filtered in (
        sampling.top_k(logits, 3),
        sampling.top_p(logits, 1.0),
        sampling.min_p(logits, 0.0),
        sampling.typical_p(logits, 0.9),
    ):
        np.testing.assert_array_equal(filtered, logits)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_each_filter_leaves_at_least_as_many_as_it_must_keep(keep: int) -> None:
    logits = of_probabilities(0.9, 0.07, 0.03)
    for filtered in (
        sampling.top_k(logits, 1, keep),
        sampling.top_p(logits, 0.1, keep),
        sampling.min_p(logits, 1.0, keep),
        sampling.typical_p(logits, 0.01, keep),
    ):
        assert kept(filtered) == list(range(keep))


@pytest.mark.parametrize(("p", "expected"), [(0.01, [1]), (0.31, [1, 2]), (0.51, [0, 1, 2]), (0.95, [0, 1, 2, 3])])
def test_typical_p_keeps_what_is_about_as_surprising_as_expected(p: float, expected: list[int]) -> None:
    """Surprises of 0.9, 1.2, 1.6 and 2.3, expected 1.3: the likeliest token is not the most typical."""
    assert kept(sampling.typical_p(of_probabilities(0.4, 0.3, 0.2, 0.1), p)) == expected


def test_filters_come_in_the_order_of_transformers() -> None:
    """Temperature changes what top_p and min_p keep; top_p counts the probabilities among the top_k alone."""
    logits = of_probabilities(0.4, 0.3, 0.2, 0.1)

    def left(**options: Any) -> list[int]:
        return kept(sampling.filtered(logits, Options(max_new_tokens=1, do_sample=True, **options)))

    assert left(top_p=0.65) == [0, 1]
    assert left(top_p=0.65, temperature=0.5) == [0, 1]  # squares: 16/30, 9/30, 4/30, 1/30
    assert left(top_p=0.5, temperature=0.5) == [0]
    assert left(top_p=0.65, temperature=10.0) == [0, 1, 2]
    assert left(top_k=3, top_p=0.75) == [0, 1]  # 4/9, 3/9, 2/9; of all four tokens it would be three
    assert left(top_p=0.75) == [0, 1, 2]
    assert left(min_p=0.6) == [0, 1]
    assert left(min_p=0.6, temperature=0.5) == [0]
    assert left() == [0, 1, 2, 3]


# Draws ----------------------------------------------------------------------------------------------------------------


def test_draws_follow_the_probabilities() -> None:
    logits, random = of_probabilities(0.5, 0.0, 0.3, 0.2), np.random.default_rng(0)
    counts = np.bincount([sampling.draw(logits, random) for _ in range(4000)], minlength=4)
    np.testing.assert_allclose(counts / 4000, [0.5, 0, 0.3, 0.2], atol=0.02)


def drawn(logits: Logits, seed: int, row: int = 0) -> list[int]:
    chooser = Chooser(Options(max_new_tokens=50, do_sample=True, seed=seed), 0, row)
    return [chooser.choose(np.zeros(0, np.int64), one) for one in logits]


def test_a_seed_gives_the_same_draws_and_small_errors_do_not_matter() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 20))
    assert drawn(logits, 7) == drawn(logits + 1e-9, 7) != drawn(logits, 8)


def test_each_row_of_a_batch_has_draws_of_its_own() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 20))
    assert drawn(logits, 7, row=1) == drawn(logits, 7, row=1) != drawn(logits, 7, row=2) != drawn(logits, 7)


def test_distinct_draws_are_those_of_one_draw_after_the_other() -> None:
    """The first by its probability; the second by what is left, divided by 1 minus the first's."""
    logits = np.repeat(of_probabilities(0.6, 0.0, 0.3, 0.1)[None], 20000, axis=0)
    pairs = sampling.draw_distinct(logits, 2, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(pairs[:, 0], minlength=4) / 20000, [0.6, 0, 0.3, 0.1], atol=0.01)
    after_first = pairs[pairs[:, 0] == 0, 1]
    np.testing.assert_allclose(np.bincount(after_first, minlength=4) / len(after_first), [0, 0, 0.75, 0.25], atol=0.01)


def test_the_largest_come_in_order_and_of_equal_ones_the_first() -> None:
    values = np.array([[1.0, 3, 3, -INF, 2], [0, 0, 0, 0, 0]])
    assert sampling.largest(values, 3).tolist() == [[1, 2, 4], [0, 1, 2]]
    assert sampling.largest(values, 9).shape == (2, 5)


# What changes logits before a draw ------------------------------------------------------------------------------------

PROCESSED = json.loads((goldens.folder("generation") / "processors.json").read_text())


@pytest.mark.parametrize("case", PROCESSED, ids=lambda case: "+".join(case["options"]))
def test_logits_become_those_of_transformers(case: dict[str, Any]) -> None:
    """Each option alone and mixtures of them, in transformers' order."""
    options = dict(case["options"])
    if "logit_bias" in options:
        options["logit_bias"] = {int(token): bias for token, bias in options["logit_bias"].items()}
    checked_options = Options(**{"max_new_tokens": 20, "do_sample": True, **options})
    processed = Chooser(checked_options, case["start"]).process(np.array(case["ids"]), np.array(case["logits"]))
    filtered = sampling.filtered(processed, checked_options)
    assert {str(token): pytest.approx(filtered[token], abs=2e-4) for token in kept(filtered)} == case["kept"]


def test_the_repetition_penalty_divides_positive_logits_and_multiplies_negative_ones() -> None:
    assert after([4.0, -4, 4, -4, 0], [0, 1, 1, 4], repetition_penalty=2.0) == [2, -8, 4, -4, 0]


def test_a_frequency_penalty_counts_new_tokens_and_a_presence_penalty_does_not() -> None:
    """The first two tokens are the prompt's."""
    ids = [0, 1, 1, 1, 2]
    assert after(np.zeros(4), ids, 2, frequency_penalty=0.5) == [0, -1, -0.5, 0]
    assert after(np.zeros(4), ids, 2, presence_penalty=0.5) == [0, -0.5, -0.5, 0]
    assert after(np.zeros(4), ids, 2, presence_penalty=-1.0, frequency_penalty=0.25) == [0, 0.5, 0.75, 0]


def test_penalties_beyond_all_numbers_are_infinite() -> None:
    assert after([1e10, -1e10, 3.0], [0, 1], repetition_penalty=1e300) == [1e10 / 1e300, -INF, 3]
    assert after([1.0, 2.0, 3.0], [0, 1, 1, 1], start=0, frequency_penalty=1e308) == [-1e308, -INF, 3]
    assert after([1.0, 2.0, 3.0], [0, 1], start=0, presence_penalty=10**30) == [-1e30, -1e30, 3]


def test_no_ngram_comes_twice() -> None:
    ids = [1, 2, 3, 1, 2]
    assert kept(np.array(after(np.zeros(5), ids, no_repeat_ngram_size=3))) == [0, 1, 2, 4]
    assert kept(np.array(after(np.zeros(5), ids, no_repeat_ngram_size=1))) == [0, 4]
    assert kept(np.array(after(np.zeros(5), ids, no_repeat_ngram_size=6))) == [0, 1, 2, 3, 4]


def test_a_bad_word_is_never_completed_and_the_end_is_no_bad_word() -> None:
    words = {"bad_words_ids": [[4], [1, 2, 3], [0]], "eos_token_id": 0}
    assert kept(np.array(after(np.zeros(5), [1, 2], **words))) == [0, 1, 2]
    assert kept(np.array(after(np.zeros(5), [2], **words))) == [0, 1, 2, 3]


def test_the_end_comes_after_so_many_new_tokens() -> None:
    options = {"min_new_tokens": 2, "eos_token_id": [0, 2]}
    assert kept(np.array(after(np.zeros(3), [1, 1, 1], 2, **options))) == [1]
    assert kept(np.array(after(np.zeros(3), [1, 1, 1], 1, **options))) == [0, 1, 2]


def test_functions_of_the_users_come_one_after_the_other() -> None:
    seen = []

    def add(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        seen.append(ids.tolist())
        return logits + 1

    assert after([0.0, 0], [1, 2], logits_processors=[add, lambda ids, logits: logits * 10]) == [10, 10]
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
        after(np.zeros(3), [0], logits_processors=[lambda ids, logits: result])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"logit_bias": {7: 1.0}}, ValueError, "logit_bias has 7, but the model has 3 tokens, from 0 on"),
        ({"bad_words_ids": [[1, 9]]}, ValueError, "bad_words_ids has 9, but the model has 3 tokens"),
        ({"bad_words_ids": [[0], [1], [2]]}, LogitsError, "bad_words_ids gave -inf as the largest of 3 logits"),
        ({"no_repeat_ngram_size": 1}, LogitsError, "no_repeat_ngram_size gave -inf .* in row 0, expected a finite one"),
    ],
)
def test_options_that_do_not_fit_the_vocabulary(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        after(np.zeros(3), [0, 1, 2], **options)


# Log probabilities ----------------------------------------------------------------------------------------------------


def test_log_probabilities_are_those_of_the_model_before_options_change_them() -> None:
    chooser = Chooser(Options(max_new_tokens=1, suppress_tokens=[1], logprobs=2), 0)
    assert chooser.choose(np.zeros(1, np.int64), of_probabilities(0.2, 0.5, 0.3)) == 2
    (scored,) = chooser.logprobs or []
    assert scored == TokenLogprob(
        2, pytest.approx(np.log(0.3)), ((1, pytest.approx(np.log(0.5))), (2, pytest.approx(np.log(0.3))))
    )


# Logits that no token can be chosen from ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([1, np.nan, 2], "the model gave NaN for 1 of 3 tokens in row 1, expected a finite one; check the weights"),
        ([-INF, -INF, -INF], "the model gave -inf as the largest of 3 logits in row 1, expected a finite one"),
        ([1, INF, 2], r"the model gave \+inf as the largest of 3 logits in row 1"),
    ],
)
def test_logits_without_a_token_to_choose_are_errors(logits: list[float], message: str) -> None:
    with pytest.raises(LogitsError, match=message):
        checked(np.array(logits), 1)
    for options in ({}, {"do_sample": True}, {"suppress_tokens": [0]}):
        chooser = Chooser(Options(max_new_tokens=1, **options), 0, row=1)  # type: ignore[arg-type]
        with pytest.raises(LogitsError, match=message):
            chooser.choose(np.zeros(1, np.int64), np.array(logits, np.float32))


def test_the_lowest_number_may_stand_for_minus_infinity() -> None:
    lowest = np.finfo(np.float64).min
    options = Options(max_new_tokens=1, do_sample=True, temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, typical_p=0.9)
    assert sampling.draw(sampling.filtered(np.array([lowest, 1.0, lowest]), options), np.random.default_rng(0)) == 1
