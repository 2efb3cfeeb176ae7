"""The options that a checkpoint recommends, and a request's options over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lucid.batch import Predictor
from lucid.generation.chat import load_language_model, load_tokenizer, save_tokenizer
from lucid.generation.defaults import from_config, from_gguf, over, shown
from tests.chat.checkpoints import checkpoint
from tests.console import in_process
from tests.serving.servers import decoder

DRAWN = {"do_sample": True, "temperature": 0.6, "top_p": 0.9}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"bos_token_id": 1, "eos_token_id": 2, "transformers_version": "4.51"}, {}),
        (DRAWN, DRAWN),
        ({"do_sample": True, "top_k": 0, "top_p": 1.0, "min_p": None}, {"do_sample": True, "top_p": 1.0}),
        ({"temperature": 0.6, "top_p": 0.9}, {}),  # without do_sample they have no effect in transformers either
        ({"temperature": 0.0, "do_sample": False}, {}),
        ({"repetition_penalty": 1.1, "max_new_tokens": 2048}, {"max_new_tokens": 2048, "repetition_penalty": 1.1}),
        ({"bad_words_ids": [[3]], "no_repeat_ngram_size": 0}, {"bad_words_ids": [[3]]}),
    ],
    ids=str,
)
def test_what_a_generation_config_recommends(config: dict[str, Any], expected: dict[str, Any]) -> None:
    assert from_config(config, "generation_config.json") == expected


def test_what_a_gguf_file_recommends() -> None:
    metadata = {"general.sampling.temp": 0.7, "general.sampling.top_k": 20, "general.sampling.penalty_repeat": 1.0}
    assert from_gguf(metadata, "x.gguf") == {"do_sample": True, "temperature": 0.7, "top_k": 20}
    assert from_gguf({"general.name": "x"}, "x.gguf") == {}
    for wrong in ("hot", [1.0], -1.0):
        with pytest.raises(ValueError, match="x.gguf: temperature is .*, expected"):
            from_gguf({"general.sampling.temp": wrong}, "x.gguf")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, DRAWN),
        ({"temperature": 0.3}, {**DRAWN, "temperature": 0.3}),
        ({"temperature": 0}, {"do_sample": False}),
        ({"do_sample": False, "top_k": 3}, {"do_sample": False}),
        ({"temperature": None, "seed": 3}, {**DRAWN, "seed": 3}),
        ({"frequency_penalty": 0.5}, {**DRAWN, "frequency_penalty": 0.5}),
    ],
    ids=str,
)
def test_a_request_has_its_options_over_those_of_the_checkpoint(options: Any, expected: dict[str, Any]) -> None:
    assert over(DRAWN, options) == expected
    assert over(DRAWN, over(DRAWN, options)) == expected


def test_an_option_for_sampling_draws_where_the_checkpoint_does_not() -> None:
    assert over({}, {"top_k": 5}) == {"do_sample": True, "top_k": 5}
    assert over({}, {"seed": 5, "repetition_penalty": 1.2}) == {"repetition_penalty": 1.2}


def test_a_wrong_value_names_the_file(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    (folder / "generation_config.json").write_text('{"do_sample": true, "temperature": -1}')
    with pytest.raises(ValueError, match=r"generation_config.json: temperature is -1, expected at least 1e-6"):
        load_tokenizer(folder)


def test_answers_have_the_options_of_the_checkpoint_and_saved_files_too(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint")
    (folder / "generation_config.json").write_text(json.dumps({**DRAWN, "temperature": 3.0, "eos_token_id": 2}))
    (tmp_path / "saved").mkdir()
    save_tokenizer(load_tokenizer(folder), tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").defaults == {**DRAWN, "temperature": 3.0}
    model = load_language_model(folder)
    greedy, again, drawn, other = (
        "".join(model.answer([5], max_new_tokens=20, **options))
        for options in ({"temperature": 0}, {"do_sample": False}, {"seed": 1}, {"seed": 2})
    )
    assert greedy == again != drawn != other != greedy


def test_a_job_takes_the_options_of_the_checkpoint_and_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = decoder(tmp_path)
    (folder / "generation_config.json").write_text(
        '{"repetition_penalty": 1.8, "max_new_tokens": 9, "eos_token_id": 2, "temperature": 2.0}'
    )
    (tmp_path / "in.jsonl").write_text('{"text": "abc"}\n')
    assert in_process(["map", folder, tmp_path / "in.jsonl", "-o", tmp_path / "out"], monkeypatch) == 0
    assert "options     of the checkpoint: max_new_tokens=9, repetition_penalty=1.8\n" in capsys.readouterr().out
    model = load_language_model(folder)
    (answer,) = Predictor(folder)({"text": ["abc"]})["answer"]
    assert answer == "".join(model.answer(model.tokenizer.encode("abc")))
    assert len(model.tokenizer.encode(answer)) <= 9


def test_a_job_takes_the_options_of_answers_that_lucid_generate_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, rows = decoder(tmp_path), tmp_path / "in.jsonl"
    rows.write_text('{"text": "abc"}\n')
    few = ["--temperature", "2", "--seed", "3", "--repetition-penalty", "1.8", "-n", "7"]
    assert in_process(["map", folder, rows, "-o", tmp_path / "out", *few], monkeypatch) == 0
    model = load_language_model(folder)
    options = {"temperature": 2.0, "seed": 3, "repetition_penalty": 1.8, "max_new_tokens": 7}
    expected = "".join(model.answer(model.tokenizer.encode("abc"), **options))
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file)["answer"].to_pylist() == [expected]
    for wrong in (["--temperature", "-1"], ["--json-schema", rows.with_name("none.json")]):
        assert in_process(["map", folder, rows, "-o", tmp_path / "no", *wrong], monkeypatch) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "for the likeliest token use do_sample=False, on the command line --temperature 0" in error


def test_options_are_shown_on_one_line() -> None:
    assert shown(DRAWN) == "do_sample=True, temperature=0.6, top_p=0.9"
    assert "\n" not in shown({"suppress_tokens": "a\nb"})
