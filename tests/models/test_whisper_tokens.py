"""Whisper's special tokens: read from generation_config.json, and put together as a prompt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lucid.models.checkpoints.config import ConfigError
from lucid.models.speech.whisper_tokens import WhisperTokenizer
from tests.models import goldens

FOLDER = goldens.folder("transcription")
ENGLISH = WhisperTokenizer(decode=str, start_of_transcript=11, end_of_text=10, no_timestamps=19)


def edited(folder: Path, **changes: object) -> Path:
    """A folder whose generation_config.json has some options changed; None removes one."""
    options = json.loads((FOLDER / "generation_config.json").read_text()) | changes
    kept = {name: value for name, value in options.items() if value is not None}
    (folder / "generation_config.json").write_text(json.dumps(kept))
    return folder


def test_the_tokens_are_those_of_the_checkpoint() -> None:
    tokenizer = WhisperTokenizer.from_pretrained(FOLDER, str)
    assert tokenizer.decode([15, 2]) == "[15, 2]"
    assert tokenizer.languages == {"en": 22, "de": 23, "fr": 24}
    assert tokenizer.tasks == {"translate": 25, "transcribe": 26}
    assert (tokenizer.start_of_transcript, tokenizer.end_of_text) == (21, 20)
    assert (tokenizer.no_speech, tokenizer.no_timestamps, tokenizer.first_timestamp) == (29, 30, 31)
    assert tokenizer.suppressed[:2] == (3, 8)
    assert tokenizer.suppressed_first == (5, 20)
    assert tokenizer.max_first_timestamp == 5


def test_a_checkpoint_of_english_has_neither_languages_nor_tasks(tmp_path: Path) -> None:
    folder = edited(tmp_path, lang_to_id=None, task_to_id=None, is_multilingual=False, max_initial_timestamp_index=None)
    tokenizer = WhisperTokenizer.from_pretrained(folder, str)
    assert not tokenizer.languages and not tokenizer.tasks
    assert tokenizer.max_first_timestamp == 50, "one second"


def test_a_prompt_tells_language_task_and_timestamps() -> None:
    tokenizer = WhisperTokenizer.from_pretrained(FOLDER, str)
    assert tokenizer.prompt("de", "transcribe", timestamps=True) == [21, 23, 26]
    assert tokenizer.prompt("en", "translate", timestamps=False) == [21, 22, 25, 30]
    assert ENGLISH.prompt(None, "transcribe", timestamps=True) == [11]
    assert ENGLISH.prompt("en", "transcribe", timestamps=False) == [11, 19]


@pytest.mark.parametrize(
    ("language", "task", "message"),
    [
        ("xx", "transcribe", "language is 'xx', expected one of en, de, fr"),
        (None, "transcribe", "language is None, expected one of en, de, fr"),
        ("en", "summarize", "task is 'summarize', expected one of translate, transcribe"),
    ],
)
def test_a_prompt_that_the_model_does_not_know_is_refused(language: str | None, task: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"transcribe: {message}"):
        WhisperTokenizer.from_pretrained(FOLDER, str).prompt(language, task, timestamps=True)


@pytest.mark.parametrize(("language", "task"), [("de", "transcribe"), (None, "translate")])
def test_a_model_of_english_cannot_translate(language: str | None, task: str) -> None:
    with pytest.raises(ValueError, match="for a model that knows English only; leave them out"):
        ENGLISH.prompt(language, task, timestamps=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"no_timestamps_token_id": None}, "option no_timestamps_token_id is missing, expected int"),
        ({"no_timestamps_token_id": 0}, "option no_timestamps_token_id is 0, expected a whole number from 1"),
        ({"eos_token_id": [1, 2]}, r"option eos_token_id is \[1, 2\], expected int"),
        ({"lang_to_id": {"<|en|>": "22"}}, "lang_to_id: option <.en.> is '22', expected int"),
        ({"suppress_tokens": [1, -1]}, r"option suppress_tokens is \[1, -1\], expected token ids"),
        ({"suppress_tokens": [True]}, r"option suppress_tokens is \[True\], expected token ids"),
        ({"max_initial_timestamp_index": -1}, "option max_initial_timestamp_index is -1, expected a whole number"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"generation_config.json.*{message}"):
        WhisperTokenizer.from_pretrained(edited(tmp_path, **changes), str)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "not valid JSON"), (b"[]", "holds a JSON list, expected an object"), (b"\xff", "not valid JSON")],
)
def test_a_file_that_holds_no_options_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "generation_config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        WhisperTokenizer.from_pretrained(tmp_path, str)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file .*generation_config.json"):
        WhisperTokenizer.from_pretrained(tmp_path, str)
