"""What Whisper may write next. Ids here: text 0 to 9, end of text 10, other special tokens, timestamps from 20 on."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lucid
from lucid.models.speech.whisper_rules import only, suppress, timestamp_rules
from lucid.models.speech.whisper_tokens import WhisperTokenizer
from tests.models import goldens

TOKENIZER = WhisperTokenizer(
    decode=str, start_of_transcript=11, end_of_text=10, no_timestamps=19, max_first_timestamp=3
)
PROMPT = [11, 12]
TEXT, SPECIAL, STAMPS = set(range(10)), set(range(10, 19)), set(range(20, 30))


def possible(*written: int, stamps: float = -9) -> set[int]:
    """The tokens that may follow; all text is equally likely, and each timestamp by `stamps` more (as a logarithm)."""
    logits = np.zeros((1, 30))
    logits[:, 20:] = stamps
    ids = np.array([[*PROMPT, *written]])
    scores = timestamp_rules(TOKENIZER, len(PROMPT))(ids, logits)
    return set(np.flatnonzero(np.isfinite(scores[0])).tolist())


def test_a_text_begins_with_a_timestamp_that_is_not_too_late() -> None:
    assert possible() == {20, 21, 22, 23}


def test_text_follows_the_timestamp_that_begins_a_segment() -> None:
    assert possible(22) == TEXT | SPECIAL
    assert possible(22, 1, 24, 24) == TEXT | SPECIAL


def test_a_segment_ends_later_than_it_begins() -> None:
    assert possible(22, 1) == TEXT | SPECIAL | set(range(23, 30))


def test_after_the_end_of_a_segment_the_next_begins_no_earlier_or_the_text_ends() -> None:
    assert possible(22, 1, 24) == SPECIAL | set(range(24, 30))


def test_a_later_segment_ends_after_the_last_timestamp() -> None:
    assert possible(22, 1, 24, 25, 1) == TEXT | SPECIAL | set(range(26, 30))


def test_a_timestamp_is_written_if_all_together_are_more_probable_than_any_text() -> None:
    """Ten timestamps of a tenth each are as probable as one text token; 7 of them may follow here."""
    assert possible(22, 1, stamps=-np.log(6.9)) == set(range(23, 30))
    assert possible(22, 1, stamps=-np.log(7.1)) == TEXT | SPECIAL | set(range(23, 30))


def test_rows_have_their_own_rules() -> None:
    ids = np.array([[*PROMPT, 22, 1], [*PROMPT, 1, 22]])
    allowed = np.isfinite(timestamp_rules(TOKENIZER, 2)(ids, np.tile(np.where(np.arange(30) < 20, 0, -9.0), (2, 1))))
    assert allowed[0, :10].all() and not allowed[1, :10].any()


def test_suppressed_tokens_are_impossible_always_or_at_one_position() -> None:
    logits = np.zeros((2, 5))
    for ids, at, count in [((2, 3), None, 0), ((2, 3), 3, 0), ((2, 4), 3, 2)]:
        scores = suppress([1, 4], at)(np.zeros(ids, np.int64), logits)
        assert np.isfinite(scores[:, [1, 4]]).sum(axis=1).tolist() == [count] * 2
        assert np.isfinite(scores[:, [0, 2, 3]]).all()
    assert np.isfinite(logits).all(), "the logits given are not changed"


def test_only_some_tokens_may_be_written() -> None:
    assert only([2, 3])(np.zeros((1, 1), np.int64), np.zeros((1, 5))).tolist() == [[-np.inf, -np.inf, 0, 0, -np.inf]]


@pytest.mark.parametrize("rule", [suppress([1, 20]), only([1, 20]), timestamp_rules(TOKENIZER, 1)])
def test_tokens_of_another_model_are_an_error(rule: lucid.generation.LogitsProcessor) -> None:
    with pytest.raises(ValueError, match="token 20 is a special one, the model has 20 tokens; use the generation_conf"):
        rule(np.zeros((1, 1), np.int64), np.zeros((1, 20)))


def test_the_rules_of_transformers_on_random_texts() -> None:
    """The logits of random texts before and after `WhisperTimeStampLogitsProcessor`: which tokens are possible."""
    for case in json.loads((goldens.folder("transcription") / "rules.json").read_text()):
        logits = np.random.default_rng(case["seed"]).normal(size=(1, 30)) * case["scale"]
        ids = np.array([PROMPT + case["written"]])
        scores = timestamp_rules(TOKENIZER, len(PROMPT))(ids, logits)
        assert np.flatnonzero(np.isfinite(scores[0])).tolist() == case["possible"], case
