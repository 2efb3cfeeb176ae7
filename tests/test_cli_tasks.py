"""Commands over checkpoint folders: `--task`, files named after the folder, and folders that are not whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid.models.checkpoints.pretrained import ADAPTERS
from lucid.runtime import Session
from tests.chat.checkpoints import checkpoint
from tests.console import in_process
from tests.layout_checkpoints import whole
from tests.models import goldens
from tests.models.test_adapters import pair, write


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """A command in this process, in the temporary folder: its exit code, what it prints, and what it says on stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = in_process(arguments, monkeypatch, tmp_path)
        out, err = capsys.readouterr()
        return code, out, " ".join(err.split())

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkpoint for fill-mask."""
    return shutil.copytree(goldens.folder("bert/masked_lm"), tmp_path / "filler")


def outputs(path: Path) -> list[str]:
    return [value.name for value in onnx.load(path).graph.output]


def test_export_of_a_folder_writes_a_file_beside_it_named_after_it(call: Any, source: Path, tmp_path: Path) -> None:
    code, out, err = call("export", "filler")
    assert (code, err) == (0, "") and "filler.onnx" in out
    assert outputs(tmp_path / "filler.onnx") == ["logits"]
    code, _, err = call("export", source)
    assert code == 2 and "filler.onnx exists; give -o with this name to overwrite it, or with another name" in err


def test_a_folder_for_a_runtime_is_written_next_to_the_checkpoint(call: Any, tmp_path: Path) -> None:
    (tmp_path / "llama").mkdir()
    checkpoint(tmp_path / "llama")
    assert call("export", "llama", "--for", "genai", "--no-check")[0] == 0
    assert (tmp_path / "llama-genai" / "genai_config.json").is_file()
    assert call("export", "llama", "--for", "genai", "--no-check")[0] == 0  # what it wrote it may replace
    (tmp_path / "llama-genai" / "notes.txt").write_text("mine")
    again = ["export", "llama", "--for", "genai", "--no-check"]
    code, _, err = call(*again)
    assert code == 2 and "it holds notes.txt, which Lucid did not write" in err
    assert call(*again, "--force")[0] == 0 and not (tmp_path / "llama-genai" / "notes.txt").exists()
    code, _, err = call("export", "llama", "--force", "-o", "llama.onnx")
    assert code == 2 and "--force is for folders, which --for writes" in err


def test_a_link_to_a_folder_gets_the_file_beside_the_link(call: Any, source: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "short").symlink_to(source)
    assert call("export", tmp_path / "links" / "short", "--no-check")[0] == 0
    assert (tmp_path / "links" / "short.onnx").is_file() and not (tmp_path / "filler.onnx").exists()


def test_the_commands_take_the_task(call: Any, source: Path, tmp_path: Path) -> None:
    asked = ["--task", "feature-extraction"]
    assert call("export", source, *asked, "-o", "states.onnx")[0] == 0
    assert outputs(tmp_path / "states.onnx") == ["last_hidden_state"]
    assert call("verify", source, "states.onnx", *asked, "--size", "N=1,L=3")[0] == 0
    assert call("verify", source, "states.onnx", "--size", "N=1,L=3")[0] != 0  # the logits are not in it
    assert call("quantize", source, *asked, "--bits", "8", "--block", "16", "-o", "small")[0] == 0
    assert type(lucid.models.load(tmp_path / "small")).__name__ == "Bert"
    report = ["report", source, *asked, "-o", "page.html", "--size", "L=3", "--seconds", "0.01", "--target", "any"]
    assert call(*report)[0] == 0
    assert "last_hidden_state" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_quantised_sentence_encoder_keeps_its_layers(call: Any, tmp_path: Path) -> None:
    folder = goldens.folder("sentences/cls")
    code, out, _ = call("quantize", folder, "--bits", "8", "--block", "16", "--verbose", "-o", "small")
    assert code == 0 and "            1_Pooling/config.json, " in out
    again: Any = lucid.models.load(tmp_path / "small")
    assert again.sentence_layers["1_Pooling"].modes == ("cls",)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--task", "question-answering"], 2, "no weights for task 'question-answering'; give a task that it has: fe"),
        (
            ["--task", "poetry"],
            2,
            "task 'poetry' is not known for model_type bert; give a task that it has: feature-ex",
        ),
    ],
)
def test_a_task_that_is_not_there_is_an_error(
    call: Any, source: Path, arguments: list[str], code: int, message: str
) -> None:
    exit_code, _, err = call("export", source, *arguments)
    assert exit_code == code and message in err
    assert not source.with_suffix(".onnx").exists()


def test_the_commands_take_the_class_of_a_checkpoint(call: Any, source: Path, tmp_path: Path) -> None:
    config = source / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "architectures": ["OwnBert"]}))
    code, _, err = call("export", source)
    assert code == 2 and "architectures has 'OwnBert', which transformers" in err
    assert "lucid export --architecture NAME: BertForMaskedLM, BertForMultipleChoice, " in err
    named = ["--architecture", "BertForMaskedLM"]
    assert call("export", source, *named, "-o", "filler.onnx")[0] == 0
    assert call("verify", source, "filler.onnx", *named, "--size", "N=1,L=3")[0] == 0
    assert call("quantize", source, *named, "--bits", "8", "--block", "16", "-o", "small")[0] == 0
    assert type(lucid.models.load(tmp_path / "small")).__name__ == "BertForMaskedLM"
    code, _, err = call("export", "lucid.models.bert:Bert", *named, "-o", "a.onnx")
    assert code == 2 and "--architecture BertForMaskedLM: SOURCE 'lucid.models.bert:Bert' is no checkpoint" in err


def test_an_error_names_the_checkpoint_and_not_its_export_in_the_cache(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCID_CACHE", str(tmp_path / "caches"))
    source = whole(tmp_path / "filler", "bert/masked_lm")
    (tmp_path / "rows.csv").write_text("text\na")
    code, _, err = call("map", source, "rows.csv", "-o", "out")
    assert code == 2 and "lucid: filler: its model makes logits of input_ids" in err


def test_an_adapter_is_merged_for_every_command(call: Any, source: Path, tmp_path: Path) -> None:
    adapter = write(tmp_path / "a:dapter", pair("bert.encoder.layer.0.attention.self.query", 16, 16))
    half = ["--adapter", f"{adapter}:0.5"]
    code, _, err = call("export", source, *half, "--verbose")
    assert code == 0 and "merged the adapter" in err and "with weight 0.5: 1 layers" in err
    notes = {entry.key: entry.value for entry in onnx.load(tmp_path / "filler.onnx").metadata_props}
    assert notes[ADAPTERS] == "a:dapter (weight 0.5)"
    assert call("verify", source, "filler.onnx", *half, "--size", "N=1,L=3")[0] == 0
    assert call("quantize", source, *half, "--bits", "8", "--block", "16", "-o", "small")[0] == 0
    code, _, err = call("export", source, "--adapter", "a:dapte", "-o", "b.onnx")
    assert code == 2 and "--adapter a:dapte: there is no folder 'a:dapte'; did you mean a:dapter?" in err
    code, _, err = call("export", source, *half, "--adapter", adapter, "-o", "b.onnx")
    assert code == 2 and "is given twice; give it once, with the sum of the weights" in err
    code, _, err = call("export", "lucid.models.bert:Bert", *half, "-o", "a.onnx")
    assert code == 2 and "SOURCE 'lucid.models.bert:Bert' is no checkpoint" in err


def test_a_folder_of_an_adapter_has_its_own_tokenizer_and_the_rest_of_its_base_model(call: Any, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    checkpoint(tmp_path / "base")
    options = json.loads((tmp_path / "base" / "config.json").read_text())
    layer = pair("model.layers.0.self_attn.q_proj")
    adapter = write(tmp_path / "sql", layer, base=tmp_path / "base")
    (adapter / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert call("export", adapter, "--for", "onnxruntime", "--no-check")[0] == 0
    folder = tmp_path / "sql-onnxruntime"
    assert json.loads((folder / "config.json").read_text()) == options
    assert (folder / "chat_template.jinja").read_text() == "{{ messages[0].content }}!"
    assert (folder / "tokenizer.json").read_bytes() == (tmp_path / "base" / "tokenizer.json").read_bytes()
    card = (folder / "README.md").read_text()
    assert "Adapters that were merged into the weights: sql." in card
    assert "| base/model.safetensors |" in card and "| sql/adapter_model.safetensors |" in card
    answer = ["--max-new-tokens", "3", "--json"]
    merged = json.loads(call("generate", adapter, "a b", *answer)[1])["ids"]
    assert merged == json.loads(call("generate", "base", "a b", "--adapter", adapter, *answer)[1])["ids"]


def test_adapters_as_inputs_are_written_beside_the_model(call: Any, source: Path, tmp_path: Path) -> None:
    for name in ("sql", "polite"):
        write(tmp_path / name, pair("bert.encoder.layer.0.attention.self.query", 16, 16))
    kept = ["--adapter", "sql", "--adapter", "polite", "--adapter-inputs"]
    code, out, _ = call("export", source, *kept)
    assert code == 0 and "sql.onnx_adapter" in out and "lora_A" not in out
    assert (tmp_path / "polite.onnx_adapter").is_file()
    assert call("verify", source, "filler.onnx", *kept, "--size", "N=1,L=3")[0] == 0
    assert call("export", source, *kept, "--for", "onnxruntime", "--no-check")[0] == 0
    folder = tmp_path / "filler-onnxruntime"
    assert (folder / "sql.onnx_adapter").is_file()
    assert "Adapters for runs: sql, polite." in (folder / "README.md").read_text()
    write(tmp_path / "other" / "sql", pair("bert.encoder.layer.0.attention.self.query", 16, 16))
    again = ["--adapter", "sql", "--adapter", "other/sql", "--adapter-inputs", "-o", "again.onnx", "--no-check"]
    code, _, err = call("export", source, *again)
    assert code == 2 and "two adapters would be written as one file: sql, other/sql; rename a folder" in err
    code, _, err = call("export", source, "--adapter-inputs", "-o", "a.onnx")
    assert code == 2 and "--adapter-inputs: for a checkpoint and adapters that fit it; name these with --adapter" in err


def test_an_adapter_without_its_base_model_is_an_error_for_the_commands(call: Any, source: Path) -> None:
    (source / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base"}))
    for command in (["export"], ["report"], ["quantize", "--bits", "8", "-o", "s"]):
        code, _, err = call(command[0], source, *command[1:])
        assert code == 2 and "has an adapter (PEFT's adapter_config.json) beside its base model" in err
    (source / "config.json").unlink()
    code, _, err = call("export", source)
    assert code == 2 and "is an adapter of 'org/base', which is no folder of a model here" in err


def test_a_task_of_a_class_is_an_error(call: Any) -> None:
    code, _, err = call("export", "lucid.models.bert:Bert", "--task", "fill-mask", "-o", "a.onnx")
    assert code == 2 and "--task fill-mask: SOURCE 'lucid.models.bert:Bert' is no checkpoint" in err


# Folders that are not whole -------------------------------------------------------------------------------------------


def test_a_folder_without_a_config_is_an_error(call: Any, source: Path) -> None:
    (source / "config.json").unlink()
    code, _, err = call("export", source)
    assert code == 2 and "filler: has no config.json; give the folder of a checkpoint, as it was downloaded" in err


def test_a_folder_without_weights_is_an_error(call: Any, source: Path) -> None:
    (source / "model.safetensors").unlink()
    code, _, err = call("export", source)
    assert code == 2 and "expected a folder with model.safetensors, pytorch_model.bin or an index of shards" in err


def test_beside_pickles_the_safetensors_are_read_and_this_is_said(call: Any, source: Path) -> None:
    (source / "pytorch_model.bin").write_bytes(b"not read")
    code, _, err = call("export", source, "--no-check")
    assert code == 0 and "filler: the safetensors files are read, not pytorch_model.bin" in err
    assert type(lucid.models.load(source)).__name__ == "BertForMaskedLM"
    (source / "model.safetensors").unlink()
    code, _, err = call("export", source, "-o", "again.onnx")
    assert code == 2 and "pytorch_model.bin': 8 bytes, expected at least 10" in err


def test_a_shard_that_is_missing_or_cut_is_an_error_that_names_it(call: Any, source: Path) -> None:
    arrays = dict(lucid.load(source))
    (source / "model.safetensors").unlink()
    shard = "model-00001-of-00001.safetensors"
    index = {"metadata": {}, "weight_map": dict.fromkeys(arrays, shard)}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    code, _, err = call("export", source)
    assert code == 2 and f"shard '{shard}': No such file or directory; download it again" in err
    lucid.save(source / shard, arrays)
    (source / shard).write_bytes((source / shard).read_bytes()[:-100])
    code, _, err = call("export", source)
    assert code == 2 and shard in err and not source.with_suffix(".onnx").exists()


def test_two_architectures_are_an_error_that_asks_for_a_task(call: Any, source: Path) -> None:
    options = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**options, "architectures": ["BertForMaskedLM", "BertModel"]}))
    code, _, err = call("export", source)
    assert code == 2 and "'BertForMaskedLM', 'BertModel', expected one; give a task that it has: feature-extra" in err
    assert call("export", source, "--task", "fill-mask", "--no-check")[0] == 0


def test_what_a_tokenizer_gives_fits_a_single_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "bert.onnx"
    assert in_process(["export", goldens.folder("bert/base"), "-o", file], monkeypatch) == 0
    ids = np.array([[1, 2, 3]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids // 2}
    eager = lucid.models.load(goldens.folder("bert/base"))(
        **{name: lucid.tensor(array) for name, array in feeds.items()}
    )
    np.testing.assert_allclose(Session(file).run(feeds)["last_hidden_state"], eager.numpy(), atol=1e-5)
    assert in_process(["verify", goldens.folder("bert/base"), file], monkeypatch) == 0
    assert (
        in_process(["export", goldens.folder("bert/base"), "-i", "input_ids:int64:N,L", "-o", file], monkeypatch) == 0
    )
    assert list(Session(file).inputs) == ["input_ids"]
