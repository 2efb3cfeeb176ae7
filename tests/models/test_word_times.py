"""When words are spoken: the times of transformers' `return_token_timestamps`, and its words."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from lucid.export import to_onnx
from lucid.models.speech.word_times import token_ends, words_of
from lucid.models.whisper import Whisper, WhisperTokenizer, read_wav, transcribe
from lucid.runtime import Session
from tests.models import goldens

FOLDER = goldens.folder("transcription")
EXPECTED = json.loads((FOLDER / "words.json").read_text())
SOUND = read_wav(FOLDER / "sound.wav")


@cache
def whisper() -> Whisper:
    return Whisper.from_pretrained(FOLDER)


def tokenizer(heads: Any = EXPECTED["alignment_heads"]) -> WhisperTokenizer:
    base = WhisperTokenizer.from_pretrained(FOLDER, lambda ids: "".join(f" {token}" for token in ids))
    return replace(base, alignment_heads=tuple(map(tuple, heads)))


def expected_words(case: Any) -> list[tuple[float, float, str]]:
    words = []
    for tokens, times in case["segments"]:
        places = [place for place, token in enumerate(tokens) if token < 20]
        words += [(times[place - 1], times[place], f" {tokens[place]}") for place in places]
    return words


def transcribed_words(case: Any, model: Any, words: Any) -> list[tuple[float, float, str]]:
    options: dict[str, Any] = {"no_speech_threshold": None, "language": "en", "words": words}
    most = whisper().config.max_positions
    transcription = transcribe(model, tokenizer(), SOUND[case["begin"] : case["end"]], max_positions=most, **options)
    return [tuple(word) for segment in transcription.segments for word in segment.words]


@pytest.mark.parametrize("case", EXPECTED["times"])
def test_the_times_are_those_of_transformers(case: Any) -> None:
    assert transcribed_words(case, whisper(), True) == expected_words(case)


def test_a_position_that_all_tokens_read_alike_tells_nothing() -> None:
    """As where half precision rounds the weights to 0; transformers gives NaN, and the words after it no time."""
    weights = np.full((2, 4, 40), 1e-4, np.float32)
    for token in range(4):
        weights[:, token, 10 * token : 10 * token + 10] = 3e-4 + 1e-4 * token
    expected = token_ends(weights, 1)
    np.testing.assert_allclose(expected, [0, 0.2, 0.4, 0.6])
    np.testing.assert_array_equal(token_ends(weights.astype(np.float16), 1), expected)
    weights[:, :, 25] = 0
    np.testing.assert_array_equal(token_ends(weights, 1), expected)
    np.testing.assert_array_equal(token_ends(weights[:, :, :0], 1), np.zeros(4))  # of a window of 10 ms


def test_sessions_give_them_with_one_of_the_whole_model_that_shows_its_attention() -> None:
    case, parts = EXPECTED["times"][1], []
    for part in ("encoder", "decoder"):
        parts.append(Session(to_onnx(whisper(), part=part, cache="growing")))  # type: ignore[arg-type]
    whole = Session(to_onnx(whisper(), outputs=["attentions"]))
    assert transcribed_words(case, tuple(parts), whole) == expected_words(case)
    with pytest.raises(ValueError, match=r"two sessions give no attention; give a third: words=Session\(path\)"):
        transcribed_words(case, tuple(parts), True)
    with pytest.raises(ValueError, match=r"the model has no output decoder\.cross_attentions\.0"):
        transcribed_words(case, tuple(parts), Session(to_onnx(whisper())))


def test_a_checkpoint_that_does_not_say_which_heads_attend_is_refused() -> None:
    with pytest.raises(ValueError, match=r"generation_config\.json has no alignment_heads"):
        transcribe(whisper(), tokenizer(()), SOUND, words=True)


@pytest.mark.parametrize(("language", "pieces", "words", "places"), EXPECTED["split"])
def test_words_are_those_of_transformers(language: str, pieces: Any, words: Any, places: Any) -> None:
    parts = [each.encode("latin-1") if len(each) == 1 and 127 < ord(each) < 256 else each.encode() for each in pieces]
    times = [(float(place), place + 0.5) for place in range(len(pieces))]
    code = {"english": "en", "japanese": "ja"}[language]
    result = words_of(
        range(len(pieces)), times, lambda ids: b"".join(parts[token] for token in ids).decode(errors="replace"), code
    )
    assert [word.text for word in result] == words
    assert [(word.start, word.end) for word in result] == [(at[0], at[-1] + 0.5) for at in places]


def test_tokens_follow_what_their_heads_attend_to() -> None:
    """Each token attends to four positions after those of the token before; it lasts until the next one's begin."""
    weights = np.repeat(np.eye(3, dtype=np.float32), 4, axis=1)[None] + 0.01
    np.testing.assert_allclose(token_ends(weights, 3), [0, 0.08, 0.16])
    assert token_ends(weights[:, :1], 3).tolist() == [0]
