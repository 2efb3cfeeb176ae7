"""From sound to text: the segments of transformers, and how windows follow each other.

tests/goldens/transcription holds a "speech" of tones, a tiny model that was trained to write them down, and what
transformers makes of parts of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.export import to_onnx
from lucid.models.whisper import (
    Segment,
    Transcription,
    Whisper,
    WhisperTokenizer,
    log_mel,
    read_wav,
    transcribe,
)
from lucid.nn.model_parts import CacheKind
from lucid.runtime import Session
from tests.models import goldens

FOLDER = goldens.folder("transcription")
CASES = json.loads((FOLDER / "cases.json").read_text())
SOUND = read_wav(FOLDER / "sound.wav")
NOISE = np.random.default_rng(0).standard_normal(16_000)

LANGUAGES = {"en": 12, "de": 13}
TOKENIZER = WhisperTokenizer(
    decode=lambda ids: " ".join("abcdefghij"[token] for token in ids),
    start_of_transcript=11,
    end_of_text=10,
    no_timestamps=19,
    languages=LANGUAGES,
    tasks={"transcribe": 14, "translate": 15},
)
"""Letters, the end of the text, special tokens, and from 20 on timestamps in steps of 0.02 s."""


@cache
def whisper() -> Whisper:
    return Whisper.from_pretrained(FOLDER)


def exported(kind: CacheKind) -> tuple[Session, Session]:
    """The sessions of the encoder and of the decoder, with a cache of this kind."""
    encoder = Session(to_onnx(whisper(), part="encoder", cache="growing"))
    return encoder, Session(to_onnx(whisper(), part="decoder", cache=kind))


@pytest.mark.parametrize(
    ("model", "cases"),
    [(whisper, CASES[:6]), (lambda: exported("growing"), CASES), (lambda: exported("fixed"), CASES[:3])],
    ids=["eager", "growing", "fixed"],
)
def test_the_segments_are_those_of_transformers(model: Callable[[], Any], cases: list[dict[str, Any]]) -> None:
    """Texts and times, the language where it is detected, and which windows are silent."""
    tokenizer = WhisperTokenizer.from_pretrained(FOLDER, lambda ids: " ".join(map(str, ids)))
    runner = model()
    for case in cases:
        options = {"no_speech_threshold": None, "logprob_threshold": None, **case["options"]}
        options["timestamps"] = options.pop("return_timestamps")
        sound = SOUND[case["begin"] : case["end"]]
        transcription = transcribe(runner, tokenizer, sound, max_positions=whisper().config.max_positions, **options)
        expected = [(a, b, [t for t in tokens if t < 20]) for a, b, tokens in case["segments"]]
        segments = [(segment.start, segment.end, segment.tokens) for segment in transcription.segments]
        assert segments == [(a, b, text) for a, b, text in expected if text and a < b], case
        assert transcription.language == case["language"]


def test_the_words_are_those_of_the_tokenizer() -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    chat = import_module("lucid.generation.chat")
    tokenizer = WhisperTokenizer.from_pretrained(FOLDER, chat.load_tokenizer(FOLDER).decode)
    transcription = transcribe(whisper(), tokenizer, SOUND[-12_800:], language="en")
    assert [segment.text for segment in transcription.segments] == ["six sixteen", "seventeen twelve"]
    assert transcription.text == "six sixteen seventeen twelve"


class Text(NamedTuple):
    """What a scripted model writes in a window: tokens, their logit above that of all others, and of silence."""

    tokens: Sequence[int]
    certainty: float = 20
    silence: float = -9


class Scripted(nn.EncoderDecoder):
    """A model that hears windows of 0.4 s and writes a prepared text for each, as far as the rules allow it."""

    cache_shape = nn.CacheShape(1, 1, 1, lucid.float32)

    def __init__(self, *texts: Text | Sequence[int], language: str = "de") -> None:
        self._texts = [text if isinstance(text, Text) else Text(text) for text in texts]
        self._language = language
        self.heard: list[np.ndarray] = []
        self.prompts: list[list[int]] = []

    def encoder_input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {"input_features": lucid.spec("N", 8, 40)}

    def encode(self, input_features: Tensor) -> Tensor:
        self.heard.append(input_features.numpy()[0])
        return lucid.zeros(1, 1, 1)

    def cross_caches(self, encoder_hidden_states: Tensor) -> list[nn.KeyValueCache]:
        return [nn.KeyValueCache(lucid.zeros(1, 1, 1, 1), lucid.zeros(1, 1, 1, 1))]

    def step(
        self, input_ids: Tensor, positions: Tensor, caches: Sequence[nn.EncoderDecoderCache], key_mask: Tensor | None
    ) -> tuple[Tensor, Sequence[nn.Cache | None]]:
        own, text, ids = caches[0].decoder, self._texts[len(self.heard) - 1], input_ids.numpy()[0].tolist()
        logits = np.where(np.arange(50) < TOKENIZER.first_timestamp, 0.0, -20.0)
        if ids == [TOKENIZER.start_of_transcript]:
            logits[[LANGUAGES[self._language], TOKENIZER.no_speech]] = 5, text.silence
        else:
            if len(ids) > 1:
                self.prompts.append(ids)
            written = own.key.shape[2] + len(ids) - len(self.prompts[-1])
            logits[[*text.tokens, TOKENIZER.end_of_text][written]] = text.certainty
        new = lucid.zeros(1, 1, len(ids), 1)
        present = nn.KeyValueCache(*(lucid.ops.concat([past, new], 2) for past in (own.key, own.value)))
        return Tensor(np.broadcast_to(logits, (1, len(ids), 50)).astype(np.float32)), [present]

    def logits(self, x: Tensor) -> Tensor:
        return x


def spans(transcription: Transcription) -> list[tuple[float, float, str]]:
    return [(segment.start, segment.end, segment.text) for segment in transcription.segments]


def test_the_next_window_begins_where_the_last_segment_ended() -> None:
    """Two timestamps in a row end a segment and begin the next, which is left for the next window."""
    model = Scripted([20, 0, 1, 25, 26, 2], [21, 2, 30, 30, 3, 35, 35, 4], [20, 5, 40])
    transcription = transcribe(model, TOKENIZER, NOISE[:12_800], language="en")
    assert spans(transcription) == [(0.0, 0.1, "a b"), (0.12, 0.3, "c"), (0.3, 0.4, "d"), (0.4, 0.8, "f")]
    assert [segment.tokens for segment in transcription.segments] == [[0, 1], [2], [3], [5]]
    assert transcription.text == "a b c d f"
    features = log_mel(NOISE[:12_800], 8, 80)
    for window, begin in zip(model.heard, (0, 10, 40), strict=True):
        np.testing.assert_array_equal(window, features[:, begin : begin + 40])


def test_nobody_speaks_after_a_single_timestamp_at_the_end() -> None:
    transcription = transcribe(Scripted([20, 0, 25, 25, 1, 30], [22, 2, 25]), TOKENIZER, NOISE[:12_800], language="en")
    assert spans(transcription) == [(0.0, 0.1, "a"), (0.1, 0.2, "b"), (0.4, 0.5, "c")]


def test_a_window_without_an_end_is_one_segment() -> None:
    transcription = transcribe(Scripted([20, 0, 1], [20, 2]), TOKENIZER, NOISE[:9_600], language="en")
    assert spans(transcription) == [(0.0, 0.4, "a b"), (0.4, 0.6, "c")], "the last window ends with the sound"


def test_the_end_of_the_last_window_is_padded_with_zeros() -> None:
    model = Scripted([20, 0], [20, 1])
    transcribe(model, TOKENIZER, NOISE[:9_600], language="en")
    assert not model.heard[1][:, 20:].any() and model.heard[1][:, :20].any()


def test_a_sound_shorter_than_a_window_is_padded_with_silence() -> None:
    model = Scripted([20, 0])
    assert spans(transcribe(model, TOKENIZER, NOISE[:1_600], language="en")) == [(0.0, 0.1, "a")]
    np.testing.assert_array_equal(model.heard[0], log_mel(NOISE[:1_600], 8, 40))


def test_segments_without_text_are_left_out() -> None:
    transcription = transcribe(Scripted([20, 16, 25, 25, 1, 30]), TOKENIZER, NOISE[:6_400], language="en")
    assert spans(transcription) == [(0.1, 0.2, "b")]


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        (Text([20, 0, 2, 3, 4, 25], certainty=1, silence=9), False),
        (Text([20, 0, 2, 3, 4, 25], certainty=20, silence=9), True),
        (Text([20, 0, 2, 3, 4, 25], certainty=1, silence=-9), True),
    ],
    ids=["silent", "silent but certain", "uncertain but not silent"],
)
def test_a_window_is_left_out_where_silence_is_probable_and_the_text_is_not(text: Text, heard: bool) -> None:
    transcription = transcribe(Scripted(text, [20, 1, 25]), TOKENIZER, NOISE[:12_800], language="en")
    assert [segment.text for segment in transcription.segments if segment.start > 0.3] == ["b"]
    assert any(segment.start < 0.3 for segment in transcription.segments) is heard


def test_silence_alone_decides_without_a_threshold_for_the_text_and_never_without_one_for_silence() -> None:
    text = Text([20, 0, 25], certainty=20, silence=9)
    options = {"language": "en", "logprob_threshold": None}
    assert transcribe(Scripted(text), TOKENIZER, NOISE[:6_400], **options).segments == []  # type: ignore[arg-type]
    options["no_speech_threshold"] = None
    assert transcribe(Scripted(text), TOKENIZER, NOISE[:6_400], **options).text == "a"  # type: ignore[arg-type]


def test_the_language_of_the_first_window_is_that_of_all() -> None:
    model = Scripted([20, 0, 25], [20, 1, 25], language="de")
    transcription = transcribe(model, TOKENIZER, NOISE[:12_800], task="translate")
    assert transcription.language == "de"
    assert model.prompts == [[11, 13, 15], [11, 13, 15]]


def test_without_timestamps_each_window_is_one_segment() -> None:
    model = Scripted([0, 1], [2])
    transcription = transcribe(model, TOKENIZER, NOISE[:12_800], language="en", timestamps=False)
    assert spans(transcription) == [(0.0, 0.4, "a b"), (0.4, 0.8, "c")]
    assert model.prompts[0] == [11, 12, 14, 19]


def test_a_text_that_ends_where_it_begins_does_not_stop_the_search() -> None:
    """The rules for timestamps forbid it; without them the next window still begins later."""
    model = Scripted([20, 20, 0], [1])
    assert transcribe(model, TOKENIZER, NOISE[:12_800], language="en", timestamps=False).text == "b"


def test_each_segment_is_told_as_soon_as_it_is_known() -> None:
    calls: list[tuple[Segment, int]] = []
    model = Scripted([20, 0, 25, 25, 1, 30], [20, 2, 25])
    transcription = transcribe(
        model, TOKENIZER, NOISE[:12_800], language="en", on_segment=lambda s: calls.append((s, len(model.heard)))
    )
    assert calls == [(transcription.segments[0], 1), (transcription.segments[1], 1), (transcription.segments[2], 2)]


@pytest.mark.parametrize("size", [0, 159])
def test_a_sound_of_less_than_a_frame_has_no_text(size: int) -> None:
    assert transcribe(Scripted(), TOKENIZER, NOISE[:size], language="en") == Transcription("en", "", [])


@pytest.mark.parametrize(
    ("samples", "options", "error", "message"),
    [
        (NOISE, {"language": "xx"}, ValueError, "language is 'xx', expected one of en, de"),
        (NOISE, {"max_positions": 3}, ValueError, "max_positions is 3, expected more than the 3 of the prompt"),
        (NOISE, {"task": "sing"}, ValueError, "task is 'sing', expected one of transcribe, translate"),
        (np.zeros(9, np.int16), {}, TypeError, "samples have dtype int16, expected floating-point"),
        (np.full(9, np.inf), {}, ValueError, "samples hold NaN or infinity"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_computed(
    samples: np.ndarray, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"transcribe: {message}"):
        transcribe(Scripted(), TOKENIZER, samples, **options)


def test_a_model_that_hears_no_sound_is_refused() -> None:
    class Reader(Scripted):
        def encoder_input_specs(self) -> Mapping[str, lucid.TensorType]:
            return {"input_ids": lucid.spec("N", "S", dtype=lucid.int64)}

    with pytest.raises(ValueError, match=r"the encoder takes input_ids, expected input_features \(N, mels, frames\)"):
        transcribe(Reader(), TOKENIZER, NOISE)
