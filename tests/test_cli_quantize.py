"""`lucid quantize`: to a checkpoint that is read again, to an ONNX file, and with the fewest bits for an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid.generation.chat import load_language_model, load_tokenizer, text_calls
from tests.chat.checkpoints import checkpoint
from tests.console import in_process
from tests.models import goldens
from tests.test_cli import lucid as in_a_process
from tests.test_cli_bits import TEXT


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = checkpoint(tmp_path_factory.mktemp("llama"))
    (folder / "texts.txt").write_text(TEXT, encoding="utf-8")
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command in this process: its exit code, what it prints, and what it says on stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = in_process(arguments, monkeypatch)
        out, err = capsys.readouterr()
        return code, out, " ".join(err.split())

    return run


def logits(source: Path) -> Any:
    model: Any = lucid.models.load(source)
    return model(lucid.tensor([[5, 9, 3]])).numpy()


def test_a_folder_is_a_checkpoint_with_its_tokenizer(call: Any, llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    code, out, err = call("quantize", llama, "--bits", "4", "--block", "16", "-o", folder)
    assert (code, err) == (0, "") and "quantized" in out and "small, 4 files, " in out
    names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    small = lucid.quantize(lucid.models.load(llama), 4, block=16)
    np.testing.assert_array_equal(logits(folder), small(lucid.tensor([[5, 9, 3]])).numpy())
    answers = [
        load_language_model(folder, eager=True),
        load_language_model(llama, eager=True, bits=4, block=16),
    ]
    first, second = ("".join(one.answer([5, 9, 3], max_new_tokens=5)) for one in answers)
    assert first == second != ""
    code, _, err = call("quantize", folder, "--bits", "8", "--block", "16", "-o", tmp_path / "again")
    assert (
        code == 0 and "weights are quantized already; they become float32 first, and are rounded a second time" in err
    )
    code, _, err = call("generate", folder, "ab", "-n", "1", "--bits", "8", "--block", "16")  # as serve, map and chat
    assert code == 0 and "weights are quantized already; they become float32 first" in err
    code, _, err = call("quantize", llama, "--bits", "4", "-o", folder)
    assert code == 2 and "the folder is not empty; give the name of a new one" in err


def test_the_cost_is_that_of_export(call: Any, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ["--bits", "4", "--block", "16"]
    quantized = json.loads(call("quantize", llama, *few, "-o", tmp_path / "json", "--json")[1])["quantizing"]
    exported = json.loads(call("export", llama, *few, "-o", tmp_path / "one.onnx", "--json")[1])["quantizing"]
    assert quantized == exported and quantized["outputs"][0]["output"] == "logits"
    (line,) = re.findall("^cost  .*$", call("quantize", llama, *few, "-o", tmp_path / "two")[1], re.MULTILINE)
    (same,) = re.findall("^cost  .*$", call("export", llama, *few, "-o", tmp_path / "two.onnx")[1], re.MULTILINE)
    assert line == same
    unmeasured = [*few, "-o", tmp_path / "three", "--no-check"]
    assert "of quantizing" not in call("quantize", llama, *unmeasured)[1]
    monkeypatch.setattr("lucid.testing.quantizing_cost.MOST", 1000)
    assert "cost  of quantizing was not measured: the source" in call("quantize", llama, *few, "-o", tmp_path / "4")[1]


def test_what_stays_as_it_is_is_told_by_its_modules(call: Any, llama: Path, tmp_path: Path) -> None:
    mixtral = ["quantize", goldens.folder("mixtral/base"), "--bits", "4", "--block", "16", "-o"]
    _, out, _ = call(*mixtral, tmp_path / "experts")
    assert re.search(r"\nunchanged   85.2 KiB of these: GatedExperts 81.0 KiB\n", out), out
    report = json.loads(call(*mixtral, tmp_path / "again", "--json")[1])
    assert report["bytes_unchanged"]["GatedExperts"] == 81 * 1024
    assert "unchanged" not in call("quantize", llama, "--bits", "4", "--block", "16", "-o", tmp_path / "small")[1]


def test_an_onnx_file_is_that_of_export(call: Any, llama: Path, tmp_path: Path) -> None:
    few = ["--bits", "4", "--block", "16", "--target", "cpu"]
    assert call("quantize", llama, *few, "-o", tmp_path / "one.onnx")[0] == 0
    assert call("export", llama, *few, "-o", tmp_path / "two.onnx", "--no-check")[0] == 0
    assert onnx.load(tmp_path / "one.onnx") == onnx.load(tmp_path / "two.onnx")


def test_the_fewest_bits_for_an_error(call: Any, llama: Path, tmp_path: Path) -> None:
    texts = ["--text", llama / "texts.txt", "--block", "16"]
    code, out, err = call("quantize", llama, "--target-error", "0.05", *texts, "-o", tmp_path / "small", "--json")
    assert code == 0, err
    report_data = json.loads(out)
    assert report_data["error"] <= 0.05 and report_data["bits"]["*"] == 4 and 8 in report_data["bits"].values()
    model: Any = lucid.models.load(llama)
    again = lucid.quantize(model, report_data["bits"], block=16)
    np.testing.assert_array_equal(logits(tmp_path / "small"), again(lucid.tensor([[5, 9, 3]])).numpy())
    report = lucid.testing.precision_report(model, again, text_calls(load_tokenizer(llama), TEXT))
    assert report.error == pytest.approx(report_data["error"])
    code, out, _ = call("quantize", llama, "--target-error", "0.05", *texts, "-o", tmp_path / "two")
    assert f"error       {report_data['error']:.3g} of the outputs" in out and '"*": 4}' in out
    pasted = next(line for line in out.splitlines() if line.startswith("bits={")).removeprefix("bits=")
    assert json.loads(pasted) == report_data["bits"]


def test_learnt_codes(call: Any, llama: Path, tmp_path: Path) -> None:
    learnt = ["--bits", "4", "--block", "16", "--method", "gptq", "--text", llama / "texts.txt"]
    assert call("quantize", llama, *learnt, "-o", tmp_path / "small")[0] == 0
    calls = text_calls(load_tokenizer(llama), TEXT)
    small = lucid.quantize(lucid.models.load(llama), 4, block=16, method="gptq", calibration=calls)
    np.testing.assert_array_equal(logits(tmp_path / "small"), small(lucid.tensor([[5, 9, 3]])).numpy())


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "give --bits 4 or 8, or --target-error 0.02, which finds the fewest bits that stay below it"),
        (["--bits", "4", "--target-error", "0.1"], 2, "--target-error finds the bits; leave out --bits"),
        (["--target-error", "0.1"], 2, "--target-error measures on texts: give a file of some hundred sentences"),
        (
            ["--bits", "4", "--text", "TEXTS"],
            2,
            "--text is for --method gptq and --activations static, for quantize --target-error, and for report",
        ),
        (
            ["--target-error", "0.1", "--text", "TEXTS", "--activations", "dynamic"],
            2,
            "--target-error finds the bits of weights in blocks; leave out --activations",
        ),
        (
            ["--target-error", "1e-9", "--text", "TEXTS"],
            1,
            "no quantized model has an error of 1e-09 or less",
        ),
        (["--target-error", "0", "--text", "TEXTS"], 2, "the target error is 0.0, expected a number above 0"),
        (["--bits", "5"], 2, "quantize: bits is 5, expected one of 4, 8"),
        (["--bits", "4", "--skip", "head"], 2, "skip names 'head', which no layer has"),
        (["--bits", "4", "--skip", "model.layers"], 2, "which no layer has; model.layers.* names model.layers.0.self"),
    ],
)
def test_errors_write_nothing(
    options: list[str], code: int, message: str, call: Any, llama: Path, tmp_path: Path
) -> None:
    arguments = [llama / "texts.txt" if option == "TEXTS" else option for option in options]
    exit_code, _, err = call("quantize", llama, *arguments, "-o", tmp_path / "small")
    assert (exit_code, message in err) == (code, True), err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_needs_a_checkpoint(call: Any, tmp_path: Path) -> None:
    linear = ["nn.Linear", "--set", "in_features=32", "--set", "out_features=8", "--bits", "4"]
    code, _, err = call("quantize", *linear, "-o", tmp_path / "small")
    assert code == 2 and "a folder needs a checkpoint as SOURCE; write an ONNX file" in err
    assert call("quantize", *linear, "-o", tmp_path / "linear.onnx")[0] == 0


@pytest.mark.parametrize("output", ["small", "small.onnx"])
def test_a_source_that_does_not_exist_is_named_whatever_is_written(output: str, call: Any, tmp_path: Path) -> None:
    code, _, err = call("quantize", tmp_path / "none", "--bits", "4", "-o", tmp_path / output)
    assert code == 2 and f"SOURCE '{tmp_path / 'none'}': there is no such file or folder" in err


def test_what_is_read_is_not_held(llama: Path, tmp_path: Path) -> None:
    """Also in a process of its own, from a checkpoint in half precision."""
    source = "tests/goldens/llama/bfloat16_sharded"
    done = in_a_process("quantize", source, "--bits", "4", "--block", "16", "-o", tmp_path / "small")
    assert "written" in done.stdout
    wide = lucid.quantize(lucid.models.load(source), 4, block=16)
    np.testing.assert_array_equal(logits(tmp_path / "small"), wide(lucid.tensor([[5, 9, 3]])).numpy())


def test_a_folder_that_is_there_is_refused_before_anything_is_done(tmp_path, monkeypatch, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    command = ["quantize", "tests/goldens/gpt2/base", "--bits", "4", "-o", str(tmp_path / "full")]
    with monkeypatch.context() as patch:
        patch.setattr("lucid.cli.commands.quantize.load_model", lambda *_, **__: pytest.fail("the model is read"))
        assert in_process(command, monkeypatch) == 2
    assert "the folder is not empty" in capsys.readouterr().err
