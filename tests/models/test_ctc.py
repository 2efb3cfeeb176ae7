"""From sound to text by CTC, compared with transformers' tokenizer and feature extractor."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.wav2vec2 import CTCProcessor, Segment, transcribe
from tests.models import goldens

FOLDER = goldens.folder("ctc")
CASES: list[dict[str, Any]] = json.loads((FOLDER / "cases.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in FOLDER.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("lower_case", [False, True])
def test_texts_and_words_are_those_of_transformers(folder: Path, lower_case: bool) -> None:
    """Except several spaces in a row, which transformers writes where blanks separate delimiters."""
    rewrite(folder / "tokenizer_config.json", do_lower_case=lower_case)
    processor = CTCProcessor.from_pretrained(folder)
    cases = [case for case in CASES if case["lower_case"] is lower_case]
    assert len(cases) == 20
    for case in cases:
        assert processor.decode(case["ids"]) == " ".join(case["text"].split())
        words = [[word.text, word.start, word.end] for word in processor.words(case["ids"])]
        assert words == [[word.lower() if lower_case else word, *frames] for word, *frames in case["words"]]


def test_input_values_are_those_of_transformers(folder: Path) -> None:
    stored = lucid.load(FOLDER / "sound.safetensors")
    values = CTCProcessor.from_pretrained(folder).input_values(stored["sound"])
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, stored["input_values"], rtol=1e-5, atol=1e-6)
    rewrite(folder / "preprocessor_config.json", do_normalize=False)
    assert np.array_equal(CTCProcessor.from_pretrained(folder).input_values(stored["sound"]), stored["sound"][None])


@pytest.mark.parametrize("variant", ["wav2vec2/ctc", "hubert/ctc"])
def test_eager_and_exported_models_write_the_same(folder: Path, variant: str) -> None:
    shutil.copy(goldens.folder(variant) / "config.json", folder)
    processor, model = CTCProcessor.from_pretrained(folder), lucid.models.load(goldens.folder(variant))
    sound = lucid.load(FOLDER / "sound.safetensors")["sound"]
    transcription = transcribe(model, processor, sound)
    assert transcribe(lucid.runtime.Session(lucid.export.to_onnx(model)), processor, sound) == transcription
    logits: Any = model(lucid.Tensor(processor.input_values(sound)))
    words = processor.words(logits.argmax(-1)[0])
    assert transcription.text == " ".join(word.text for word in words) != ""
    frame = 6 / 16_000  # strides of 3 and 2
    assert transcription.segments == [Segment(w.start * frame, w.end * frame, w.text, w.tokens) for w in words]


def test_tokens_beside_the_vocabulary_are_read(folder: Path) -> None:
    (folder / "added_tokens.json").write_text('{"<y>": 11}')
    rewrite(folder / "tokenizer_config.json", pad_token={"content": "E"})
    processor = CTCProcessor.from_pretrained(folder)
    assert processor.decode([11, 5, 12]) == "<y><unk>"  # E, which has the id 5, is the blank
    (folder / "tokenizer_config.json").unlink()
    assert CTCProcessor.from_pretrained(folder).blank == 0


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("vocab.json", {"eng": {"a": 1}}, "vocab.json: has a vocabulary for each language, expected one"),
        ("vocab.json", {"A": -1}, "vocab.json: the id of 'A' is -1, expected 0 or more"),
        ("vocab.json", {"A": "7"}, "vocab.json: the id of 'A' is '7', expected 0 or more"),
        ("tokenizer_config.json", {"pad_token": "[PAD]"}, r"vocab.json: has no '\[PAD\]', the pad_token, which is the"),
        ("preprocessor_config.json", {"sampling_rate": 8000}, "sampling_rate is 8000, supported: 16000"),
    ],
)
def test_files_that_are_not_understood_are_errors(
    folder: Path, file: str, changes: dict[str, Any], message: str
) -> None:
    rewrite(folder / file, **changes)
    with pytest.raises(ConfigError, match=message):
        CTCProcessor.from_pretrained(folder)


def test_a_model_that_hears_something_else_is_refused(folder: Path) -> None:
    processor = CTCProcessor.from_pretrained(folder)
    with pytest.raises(ValueError, match=r"takes input_features, .*, expected input_values; give a Wav2Vec2"):
        transcribe(lucid.models.load(goldens.folder("whisper/base")), processor, np.zeros(400, np.float32))


def test_a_sound_shorter_than_a_frame_is_refused(folder: Path) -> None:
    processor, model = CTCProcessor.from_pretrained(folder), lucid.models.load(goldens.folder("wav2vec2/ctc"))
    with pytest.raises(ValueError, match="has size 4 with its padding, less than the 5 that the kernel spans"):
        transcribe(model, processor, np.zeros(4, np.float32))
