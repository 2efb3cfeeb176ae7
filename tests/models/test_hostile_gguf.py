"""Every hostile GGUF file ends in a clear error, within a second and below 100 MB."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lucid import WeightsError
from lucid.models.checkpoints.gguf_file import read_header
from lucid.models.checkpoints.gguf_tokenizer import read_tokenizer
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.llama import Llama
from tests.cases import case
from tests.hostile import gguf, refused

CASES = gguf.CASES


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_ends_in_a_clear_error(name: str, tmp_path: Path) -> None:
    path = CASES[name][1](tmp_path)
    message = refused(Llama.from_pretrained, path, (WeightsError, ConfigError, KeyError))
    assert re.search("; |expected|supported|nothing loaded", message), message
    assert path.name in message or "nothing loaded" in message
    assert len(message) < 1000


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 100


def test_the_file_that_the_cases_change_is_right(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf.GOOD)
    assert Llama.from_pretrained(path).config.hidden_size == 32


def test_a_header_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for length in range(0, len(gguf.GOOD) - gguf.DATA, 7):
        path.write_bytes(gguf.GOOD[:length])
        with case(f"{length} bytes"), pytest.raises(WeightsError):
            read_header(path)


def test_any_wrong_byte_of_a_header_makes_a_model_or_a_clear_error(tmp_path: Path) -> None:
    good, header = gguf.GOOD, len(gguf.GOOD) - gguf.DATA
    path = tmp_path / "model.gguf"
    for at in range(header):
        path.write_bytes(good[:at] + bytes([good[at] ^ (1, 0xFF)[at % 2]]) + good[at + 1 :])
        try:
            Llama.from_pretrained(path)
        except (WeightsError, ConfigError, KeyError) as error:
            assert str(error).isprintable(), error


# The tokenizer --------------------------------------------------------------------------------------------------------


def words(**changes: bytes | None) -> dict[str, bytes]:
    """The metadata of a tiny tokenizer, with changes: a name after tokenizer.ggml, None for what is missing."""
    text, string, array = gguf.text, gguf.string, gguf.array
    fields = {
        "model": text("gpt2"),
        "pre": text("gpt-2"),
        "tokens": array(gguf.STRING, 4, b"".join(string(token) for token in ("a", "b", "ab", "<end>"))),
        "merges": array(gguf.STRING, 1, string("a b")),
        "token_type": array(gguf.U32, 4, gguf.number("4I", 1, 1, 1, 3)),
        **changes,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items() if value is not None}


def read_words(folder: Path, **changes: bytes | None) -> object:
    path = folder / "model.gguf"
    path.write_bytes(gguf.gguf(words(**changes), []))
    return read_tokenizer(path).tokenizer.encode("abab<end>a").ids


def strings(*values: str) -> bytes:
    data: bytes = gguf.array(gguf.STRING, len(values), b"".join(gguf.string(value) for value in values))
    return data


def test_a_tiny_tokenizer(tmp_path: Path) -> None:
    assert read_words(tmp_path) == [2, 2, 3, 0]


@pytest.mark.parametrize(
    ("message", "changes"),
    {
        "another_model": (r"ggml\.model is 'llama', supported: gpt2; get", {"model": gguf.text("llama")}),
        "no_model": (r"tokenizer\.ggml\.model is None, supported: gpt2", {"model": None}),
        "unknown_split": (r"tokenizer\.ggml\.pre is 'x', supported: default, gpt-2, smo", {"pre": gguf.text("x")}),
        "no_tokens": (r"tokenizer\.ggml\.tokens is missing, expected a list of strings", {"tokens": None}),
        "numbers": (r"tokenizer\.ggml\.tokens is 7, expected a list of strings", {"tokens": gguf.u32(7)}),
        "twice": (r"tokenizer\.ggml\.tokens holds 1 tokens twice", {"tokens": strings("a", "b", "ab", "a")}),
        "no_merges": (r"tokenizer\.ggml\.merges is missing", {"merges": None}),
        "merge_unknown": (r"merges has 'a c', expected two tokens that make a third", {"merges": strings("a c")}),
        "merge_of_one": (r"merges has 'ab', expected two tokens", {"merges": strings("ab")}),
        "merge_of_three": (r"merges has 'a b b', expected two tokens", {"merges": strings("a b b")}),
        "merge_of_none": (r"merges has '', expected two tokens", {"merges": strings("")}),
        "types": (r"token_type is array\(.*\), expected 4", {"token_type": gguf.array(gguf.U8, 1, b"\1")}),
        "type_text": (r"token_type is 'x', expected 4 whole numbers", {"token_type": gguf.text("x")}),
        "id": (r"eos_token_id is 4, expected the id of one of 4 tokens", {"eos_token_id": gguf.u32(4)}),
        "flag": (r"add_eos_token is 1, exp", dict.fromkeys(("eos_token_id", "add_eos_token"), gguf.u32(1))),
    }.values(),
)  # fmt: skip
def test_a_wrong_tokenizer_is_a_clear_error(message: str, changes: dict[str, bytes | None], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"model\.gguf: metadata .*{message}"):
        read_words(tmp_path, **changes)
