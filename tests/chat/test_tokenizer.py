"""The text side of a checkpoint: where its tokenizer, the ids that end a text and its chat template are found."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders

from lucid.generation.chat import load_tokenizer, save_tokenizer, tokenizer_files
from lucid.models.checkpoints.pretrained import ConfigError
from tests.chat.checkpoints import checkpoint
from tests.models import goldens
from tests.smollm2 import smollm2


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def test_text_becomes_ids_and_ids_text(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(checkpoint(tmp_path))
    ids = tokenizer.encode("a b é東.")
    assert len(ids) == 10 and tokenizer.decode(ids) == "a b é東."
    assert tokenizer.decode([1, *ids, 2]) == "a b é東."  # special tokens are no text


def test_a_tokenizer_that_pads_gives_the_text_alone(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(checkpoint(tmp_path))
    alone = tokenizer.encode("ab")
    tokenizer.library.enable_padding(length=16)
    assert len(tokenizer.library.encode("ab").ids) == 16 and tokenizer.encode("ab") == alone


def test_tokens_have_the_bytes_that_they_add_to_a_text(tmp_path: Path) -> None:
    """Also a part of a character, and the space before a word, in both kinds of tokenizers."""
    byte_level = load_tokenizer(checkpoint(tmp_path))
    assert b"".join(map(byte_level.bytes_of, byte_level.encode("a é東"))) == "a é東".encode()
    assert byte_level.bytes_of(1) == b""  # special
    names = ["▁a", "b", *(f"<0x{byte:02X}>" for byte in "é\n".encode())]
    library = tokenizers.Tokenizer(tokenizers.models.BPE({name: n for n, name in enumerate(names)}, []))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(parts)
    by_fallback = replace(byte_level, library=library)
    assert [*map(by_fallback.bytes_of, range(5))] == [b" a", b"b", b"\xc3", b"\xa9", b"\n"]


def test_a_conversation_is_rendered_and_its_special_tokens_are_tokens(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(checkpoint(tmp_path))
    ids = tokenizer.encode_chat([{"role": "user", "content": "ab"}])
    assert ids == [1, 3, *tokenizer.encode("ab\n")]
    assert tokenizer.chat_template is not None
    assert tokenizer.chat_template.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_gguf_files_have_tokenizer_template_and_positions() -> None:
    tokenizer = load_tokenizer(smollm2())
    assert (tokenizer.eos_token_ids, tokenizer.max_positions) == ((2,), 8192)
    cases = json.loads((goldens.folder("smollm2") / "greedy.json").read_text(encoding="utf-8"))["cases"]
    question = "What is the capital of France?"
    assert tokenizer.encode_chat([{"role": "user", "content": question}]) == cases[0]["ids"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (2,)),  # config.json of the checkpoint
        ({"generation_config.json": {"eos_token_id": [7, 2]}}, (7, 2)),
        ({"generation_config.json": {}}, (2,)),
        ({"genai_config.json": {"model": {"eos_token_id": 9}}, "generation_config.json": {"eos_token_id": 7}}, (9,)),
        ({"config.json": {}}, (2,)),  # the token that tokenizer_config.json names
        ({"config.json": {}, "tokenizer_config.json": {}}, ()),
        ({"config.json": {}, "tokenizer_config.json": {"eos_token": "nothing"}}, ()),
        ({"config.json": {}, "tokenizer_config.json": {}, "special_tokens_map.json": {"eos_token": "<s>"}}, (1,)),
    ],
)
def test_the_ids_that_end_a_text(files: dict[str, object], expected: tuple[int, ...], tmp_path: Path) -> None:
    checkpoint(tmp_path)
    for name, content in files.items():
        write(tmp_path / name, content)
    assert load_tokenizer(tmp_path).eos_token_ids == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"config.json": {"max_position_embeddings": 64}}, 64),
        ({"config.json": {"n_positions": 24}}, 24),
        ({"genai_config.json": {"model": {"context_length": 32}}, "config.json": {"n_positions": 24}}, 32),
        ({"config.json": {"n_positions": "many"}}, None),
        ({"config.json": {}, "tokenizer_config.json": {"model_max_length": 2048}}, 2048),
        ({"config.json": {}, "tokenizer_config.json": {"model_max_length": 10**30}}, None),
    ],
)
def test_the_number_of_positions(files: dict[str, object], expected: int | None, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    for name, content in files.items():
        write(tmp_path / name, content)
    assert load_tokenizer(tmp_path).max_positions == expected


@pytest.mark.parametrize("source", ["folder", "GGUF file"])
def test_what_is_saved_is_read_back(source: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "source", tokenizer_class="LlamaTokenizer", add_prefix_space=False)
    tokenizer = load_tokenizer(smollm2() if source == "GGUF file" else folder)
    (tmp_path / "saved").mkdir()
    save_tokenizer(tokenizer, tmp_path / "saved")
    loaded = load_tokenizer(tmp_path / "saved")
    assert loaded.library.to_str() == tokenizer.library.to_str()
    for name in ("eos_token_ids", "special_tokens", "max_positions"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    assert tokenizer.chat_template is not None
    assert loaded.chat_template == replace(
        tokenizer.chat_template, where=loaded.chat_template and loaded.chat_template.where
    )
    about = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    expected = "PreTrainedTokenizerFast" if source == "GGUF file" else "LlamaTokenizer"
    assert about["tokenizer_class"] == expected and about.get("add_prefix_space") is tokenizer.options.get(
        "add_prefix_space"
    )


@pytest.mark.parametrize(
    ("option", "file", "expected"),
    [
        ("text", None, "text"),
        ([{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "text"}], None, "text"),
        ("old", "new", "new"),
        (None, None, None),
    ],
)
def test_where_the_chat_template_is(option: Any, file: str | None, expected: str | None, tmp_path: Path) -> None:
    checkpoint(tmp_path, chat_template=option)
    if file is not None:
        (tmp_path / "chat_template.jinja").write_text(file)
    template = load_tokenizer(tmp_path).chat_template
    assert (template and template.text) == expected
    assert template is None or Path(template.where) == tmp_path / (
        "tokenizer_config.json" if file is None else "chat_template.jinja"
    )


def test_without_a_chat_template_a_conversation_is_an_error(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(checkpoint(tmp_path, chat_template=None))
    with pytest.raises(ValueError, match="has no chat template, .* continue a text instead, or take the instruct"):
        tokenizer.encode_chat([{"role": "user", "content": "a"}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty, expected at least one token"),
        ("ABC", "no token of the model is in the text"),
        ("a\udce9", "not valid Unicode: surrogates not allowed at character 1; give it in UTF-8"),
    ],
)
def test_text_that_has_no_ids_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_tokenizer(checkpoint(tmp_path)).encode(text)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", r"config\.json: not valid JSON \(.*\); download it again"),
        ("config.json", "[]", r"config\.json: holds a JSON list, expected an object"),
        ("config.json", "[" * 100_000, r"config\.json: not valid JSON \(nested too deeply.*\); download"),
        ("generation_config.json", '{"eos_token_id": "</s>"}', "eos_token_id is </s>, expected an id or a list of ids"),
        ("generation_config.json", '{"eos_token_id": [1, -1]}', r"eos_token_id is \[1, -1\], expected"),
        ("tokenizer_config.json", '{"chat_template": 3}', "chat_template is a int, expected text, or a list of named"),
        ("tokenizer_config.json", '{"chat_template": [{"name": "rag"}]}', "names rag, expected .* the name default"),
        ("tokenizer.json", "\udce9", r"tokenizer\.json: not text in UTF-8 \(byte 0\); download it again"),
    ],
)
def test_a_file_that_is_not_what_its_name_says(name: str, content: str, message: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_file_that_is_too_large_is_named_with_the_most_that_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a file was called a config of a few kilobytes."""
    monkeypatch.setattr(tokenizer_files, "MAX_TOKENIZER", 1 << 20)
    checkpoint(tmp_path)
    (tmp_path / name).write_bytes(b" " * (1 << 20) + b"{}")
    with pytest.raises(ValueError, match=f"{name}: more than 1 MiB, the most that is read of it; download it again"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["{}", "not JSON", '{"model": {"type": "BPE", "vocab": {}, "merges": [1]}}'])
def test_a_tokenizer_json_that_the_library_refuses_is_named(content: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the library's error
        load_tokenizer(tmp_path)
    assert caught.value.__notes__[0].startswith(f"{tmp_path / 'tokenizer.json'}: the library tokenizers ")


def test_without_a_tokenizer_the_error_says_what_is_expected(tmp_path: Path) -> None:
    shutil.copy(goldens.folder("llama/llama3") / "config.json", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json and no GGUF file; expected one of them"):
        load_tokenizer(tmp_path)


def test_a_file_that_is_no_gguf_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"not a GGUF file at all, but long enough to be read")
    with pytest.raises((ConfigError, ValueError), match=r"model\.gguf"):
        load_tokenizer(tmp_path)
