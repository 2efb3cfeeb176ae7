"""A language model: the text that follows a text, from every kind of source, and what an answer tells of itself."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import lucid
from lucid.generation import Generator
from lucid.generation.chat import LanguageModel, load_language_model
from lucid.runtime import ProviderError, RunCancelled
from tests.chat.checkpoints import checkpoint

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a Llama with a tokenizer."""
    return checkpoint(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return load_language_model(folder)


def saying(prompt: int, tokens: list[int]) -> Callable[[Array, Array], Array]:
    """A function of logits that makes these tokens follow a prompt of this length."""
    return lambda ids, logits: np.where(np.arange(40) == tokens[ids.shape[1] - prompt], logits, -np.inf)


def test_the_pieces_are_the_text_of_the_generators_tokens(model: LanguageModel, folder: Path) -> None:
    ids = model.tokenizer.encode("abc")
    expected = Generator(load_decoder(folder)).generate(ids, max_new_tokens=12, eos_token_id=2)[0].tolist()
    answer = model.answer(ids, max_new_tokens=12)
    pieces = list(answer)
    assert answer.ids == expected
    assert "".join(pieces) == answer.text == model.tokenizer.decode(expected)
    assert (len(pieces), answer.prompt_tokens, answer.ended_by) == (12, 3, "length")


def load_decoder(folder: Path) -> lucid.nn.CausalDecoder:
    decoder = lucid.models.load(folder)
    assert isinstance(decoder, lucid.nn.CausalDecoder)
    return decoder


@pytest.mark.parametrize("variant", ["llama/llama3", "gpt2/base"])
def test_eager_and_exported_say_the_same(variant: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, variant)
    options: dict[str, Any] = {"max_new_tokens": 9, "do_sample": True, "seed": 3}
    models = [load_language_model(tmp_path, eager=eager) for eager in (False, True)]
    exported, eager = ("".join(one.answer(one.tokenizer.encode("hello"), **options)) for one in models)
    assert exported == eager != ""


@pytest.mark.parametrize(
    ("layout", "cache"), [("folder", "growing"), ("file", "fixed"), ("other name", "growing"), ("genai", "growing")]
)
def test_an_exported_model_answers_with_the_tokenizer_in_its_folder(
    layout: str, cache: Literal["growing", "fixed"], folder: Path, model: LanguageModel, tmp_path: Path
) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(folder / name, tmp_path / name)
    path = tmp_path / ("model.onnx" if layout in ("folder", "file") else "decoder.onnx")
    lucid.export.to_onnx(lucid.models.load(folder), path=path, cache=cache)
    if layout == "genai":
        (tmp_path / "another.onnx").write_bytes(b"")
        config = {"model": {"decoder": {"filename": path.name}, "eos_token_id": 2, "context_length": 128}}
        (tmp_path / "genai_config.json").write_text(json.dumps(config))
    loaded = load_language_model(path if layout == "file" else tmp_path)
    assert loaded.max_positions == (128 if layout == "genai" else 64)
    texts = ["".join(one.answer(one.tokenizer.encode("abc"), max_new_tokens=9)) for one in (loaded, model)]
    assert texts[0] == texts[1] != ""


def test_the_buffers_of_an_exported_model_are_its_positions(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    lucid.export.to_onnx(lucid.models.load(folder), path=tmp_path / "model.onnx", cache="fixed", capacity=16)
    model = load_language_model(tmp_path)  # the exported one, although the checkpoint is there
    assert model.max_positions == 16
    answer = model.answer([4, 5, 6])
    assert len(list(answer)) == 13


def test_the_end_of_a_text_is_not_shown(model: LanguageModel) -> None:
    answer = model.answer([1, 2, 3], logits_processors=[saying(3, [4, 5, 2])])
    assert "".join(answer) == answer.text == "ab"
    assert (answer.ids, answer.ended_by) == ([4, 5, 2], "eos")


def test_a_stop_string_ends_an_answer(model: LanguageModel) -> None:
    tokens = model.tokenizer.encode("ab. cd.\nef")
    answer = model.answer([1], stop=["\n", "d.x"], logits_processors=[saying(1, tokens)])
    assert "".join(answer) == answer.text == "ab. cd."
    assert (len(answer.ids), answer.ended_by) == (8, "stop")
    answer = model.answer([1], stop="d.", logits_processors=[saying(1, tokens)])
    assert "".join(answer) == "ab. c"
    with pytest.raises(ValueError, match="stop has an empty string"):
        model.answer([1], stop=[""])


def test_characters_of_several_tokens_come_whole(model: LanguageModel) -> None:
    tokens = [*model.tokenizer.encode("é東"), 2]
    assert list(model.answer([1], logits_processors=[saying(1, tokens)])) == ["é", "東"]


def test_an_answer_tells_how_long_it_took(model: LanguageModel) -> None:
    answer = model.answer([4, 5], max_new_tokens=5)
    assert (answer.seconds_to_first, answer.tokens_per_second) == (None, None)
    pieces = iter(answer)
    next(pieces)
    assert answer.seconds_to_first is not None and answer.tokens_per_second is None
    assert list(pieces) and answer.tokens_per_second is not None
    assert answer.tokens_per_second == pytest.approx(4 / (answer.seconds - answer.seconds_to_first))


def test_an_answer_that_nobody_reads_on_has_the_text_so_far(model: LanguageModel) -> None:
    answer = model.answer([6], max_new_tokens=9)
    shown = next(iter(answer))
    assert (answer.text, answer.ended_by) == (shown, None)


def test_without_a_number_an_answer_takes_the_positions_that_are_left(model: LanguageModel) -> None:
    assert len(list(model.answer([6] * 60))) == 4


@pytest.mark.parametrize("length", [64, 200])
def test_a_prompt_that_takes_all_positions_is_an_error(length: int, model: LanguageModel) -> None:
    expected = f"the prompt has {length} tokens and the model 64 positions, which leaves none for an answer; shorten"
    with pytest.raises(ValueError, match=expected):
        model.answer([6] * length, max_new_tokens=1)


def test_more_new_tokens_than_there_are_positions_are_an_error(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="max_new_tokens=62 take 65 positions, the model has 64; shorten"):
        model.answer([4, 5, 6], max_new_tokens=62)


def test_a_cancelled_step_ends_the_answer(model: LanguageModel) -> None:
    def cancelling(ids: Array, logits: Array) -> Array:
        raise RunCancelled("as from another thread")

    with pytest.raises(RunCancelled):
        list(model.answer([4], logits_processors=[cancelling]))
    model.cancel()  # without a step that is running nothing happens
    assert len(list(model.answer([4], max_new_tokens=2))) == 2


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("bert/base", "is the checkpoint of a Bert, which does not continue texts; expected a decoder, such as GPT2"),
        ("whisper/base", "is the checkpoint of a Whisper, which does not continue texts"),
    ],
)
def test_a_model_of_another_kind_is_an_error(variant: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_language_model(checkpoint(tmp_path, variant))


def test_an_export_without_a_cache_is_an_error(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    lucid.export.to_onnx(lucid.models.load(folder), path=tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r'expected .*; export with to_onnx\(model, cache="growing"\)'):
        load_language_model(tmp_path)


def test_of_several_onnx_files_one_must_be_named(folder: Path, tmp_path: Path) -> None:
    for name in ("encoder.onnx", "decoder.onnx"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"holds 2 ONNX files \(decoder.onnx, encoder.onnx\), expected one; give the path"
    ):
        load_language_model(tmp_path)


def test_an_encoder_with_its_decoder_is_named_as_such(tmp_path: Path) -> None:
    """The decoder's file alone, which the error of several files asks for, would not continue texts."""
    for name in ("encoder_model.onnx", "decoder_model_merged.onnx"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match="has an encoder and a decoder, which do not continue texts; lucid map runs"):
        load_language_model(tmp_path)


@pytest.mark.parametrize("name", ["../decoder.onnx", 3, ""])
def test_a_config_cannot_name_a_file_elsewhere(name: object, tmp_path: Path) -> None:
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"decoder": {"filename": name}}}))
    with pytest.raises(
        ValueError, match=r"genai_config\.json: the decoder's filename is .*, expected the name of a file in"
    ):
        load_language_model(tmp_path)


def test_nothing_at_a_path_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="there is no file or folder 'nothing'; check the path"):
        load_language_model("nothing")


def test_a_provider_that_does_not_exist_is_an_error(folder: Path) -> None:
    with pytest.raises(ProviderError, match="provider 'gpu' does not exist"):
        load_language_model(folder, providers=["gpu"])


def test_a_quantized_model_answers(tmp_path: Path) -> None:
    """A block of this checkpoint's small layers is padded; 8 bits change none of these tokens."""
    path = checkpoint(tmp_path)
    texts = []
    for options in ({}, {"bits": 8}, {"bits": 8, "eager": True}):
        one = load_language_model(path, **options)
        texts.append("".join(one.answer(one.tokenizer.encode("abc"), max_new_tokens=4)))
    assert texts[0] == texts[1] == texts[2] != ""
    with pytest.raises(ValueError, match="quantize: bits is 5, expected one of 4, 8"):
        load_language_model(path, bits=5)
    lucid.export.to_onnx(lucid.models.load(path), path=path / "model.onnx", cache="growing")
    with pytest.raises(ValueError, match="is an exported model, whose weights stay as they are; leave out bits=4"):
        load_language_model(path, bits=4)


def test_an_answer_matches_its_constraint_or_says_what_ended_it(model: LanguageModel) -> None:
    constraint = model.tokenizer.constraint(regex="a{5}[bc]{3}")
    answer = model.answer([5, 6], constraint=constraint)
    assert re.fullmatch("a{5}[bc]{3}", "".join(answer)) and (answer.constrained, answer.ended_by) == (True, "eos")
    answer = model.answer([5, 6], constraint=constraint, max_new_tokens=6)
    assert re.fullmatch("a{5}[bc]", "".join(answer)) and answer.ended_by == "length"
    with pytest.raises(ValueError, match="constraint: got regex and grammar, expected one of them"):
        model.tokenizer.constraint(regex="a", grammar="start: 'a'")
    assert model.tokenizer.constraint() is None
