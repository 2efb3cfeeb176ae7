"""Help that fits the terminal, completion, and names that are nearly right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lucid.cli.app import parser
from lucid.cli.terminal import Output
from tests.console import LUCID, in_process
from tests.waiting import PATIENCE

COMMANDS = sorted(parser().commands)
ROOT = Path(__file__).parents[1]


def help_of(command: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    assert in_process([*command.split(), "--help"], monkeypatch) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_the_terminal(command, monkeypatch, capsys):
    lines = help_of(command, 80, monkeypatch, capsys)
    assert [line for line in lines if len(line) > 80] == []
    assert not any("[bold]" in line or "[/]" in line for line in lines), "it is shown without markup"
    narrow = help_of(command, 52, monkeypatch, capsys)
    assert [line for line in narrow if len(line) > 52 and " lucid " not in line] == [], "examples are lines"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_groups(command, monkeypatch, capsys):
    lines = help_of(command, 80, monkeypatch, capsys)
    assert any(line.strip().removeprefix("Example: ").startswith(f"lucid {command}") for line in lines)
    assert "General:" in lines
    if command in ("export", "verify", "report", "quantize"):
        assert {"The model:", "Quantization:"} <= set(lines)


@pytest.mark.parametrize("command", ["serve", "chat", "export"])
def test_bits_are_explained_by_options_that_the_command_has(command, monkeypatch, capsys):
    assert ("--for transformers.js also" in " ".join(" ".join(help_of(command, 80, monkeypatch, capsys)).split())) == (
        command == "export"
    )


@pytest.mark.parametrize("width", [30, 40, 60])
def test_tables_break_neither_words_nor_numbers_on_a_narrow_terminal(width, monkeypatch, capsys):
    monkeypatch.setattr("lucid.cli.terminal._DEFAULT_WIDTH", width)
    rows = [("encoder/layer.11", "1234.5 k", "computed elsewhere"), ("x" * 30, "7 %", "yes")]
    Output().table(("module", "parameters>", "because"), rows, title="cost")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    words = {"cost", "module", "parameters", "because", "encoder/layer.11", "1234.5", "computed", "elsewhere", "yes"}
    assert words <= set(" ".join(lines).split())
    assert any("1234.5 k" in line for line in lines)
    assert sum(line.count("x") for line in lines) == 30, "nothing is lost"
    assert any("module" in line and "because" in line for line in lines) == (width == 60), "a table if there is room"


def test_many_choices_are_in_the_description(monkeypatch, capsys):
    shown = " ".join(" ".join(help_of("report", 80, monkeypatch, capsys)).split())
    assert "-t, --target NAME " in shown
    assert "[one of any, cpu, cuda, portable, openvino, webgpu]" in shown


def test_without_a_command_the_help_is_shown(monkeypatch, capsys):
    assert in_process([], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out.startswith("Usage: lucid [OPTIONS] COMMAND") and err == ""
    assert "  chat      Talk with a model that was trained on conversations\n" in out, "a sentence, not cut"


def test_python_runs_the_command_too():
    done = subprocess.run([sys.executable, "-m", "lucid", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.startswith("lucid 0.")
    hidden = "import sys, runpy; sys.modules['typer'] = None; sys.argv = ['lucid']; runpy.run_module('lucid')"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr == "lucid: the command line needs typer: pip install 'lucid-onnx[cli]'\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("lucid ex", ["export"]),
        ("lucid report nn.MultiH", ["nn.MultiHeadAttention"]),
        ("lucid export mini", []),  # the shell completes files and folders
        ("lucid export x --target c", ["cpu", "cuda"]),
    ],
)
def test_completion(words, expected):
    environment = {**os.environ, "_LUCID_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split()) - 1)
    done = subprocess.run([LUCID], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split() == expected


SOURCES = """
from lucid import nn
class Net(nn.Module):
    def forward(self, x): ...
def make(size=3): return nn.Linear(size, size)
"""

MEANT = {
    "export nn.MultiHeadAtention -o a.onnx": "nothing of this name; did you mean nn.MultiHeadAttention or nn.Multihead",
    "export linear -o a.onnx": "there is no such file or folder; did you mean nn.Linear?",
    "export check-point": "there is no such file or folder; did you mean checkpoint?",
    "export checkpoin -o a.onnx": "there is no such file or folder; did you mean checkpoint?",
    "export xyz -o a.onnx": "no such file or folder; give a checkpoint (a folder, a GGUF file or OWNER/NAME of",
    "export nn.Linear": "is no checkpoint to name the file after; give it, as -o model.onnx",
    "export nte.py:Net -o a.onnx": "there is no file 'nte.py'; did you mean net.py?",
    "export net.py:Nte -o a.onnx": "net.py has no 'Nte'; did you mean Net?",
    "export net.py:Zebra -o a.onnx": "net.py has no 'Zebra'; it has Net, make",
    "export lucid.models.wisper:W -o a.onnx": "No module named 'lucid.models.wisper'; did you mean whisper?",
    "export net.py:make --set sise=3 -o a.onnx": "has no argument sise; it is make(size=3); did you mean size?",
    "export nn.ReLU --weights wieghts -i x:N -o a.onnx": "no file or folder 'wieghts'; did you mean weights?",
    "export nn.ReLU --for transformersjs -o a": "'web'; did you mean transformers.js? See lucid export --help.",
    "export nn.ReLU --target cpuu -o a.onnx": "'openvino', 'webgpu'; did you mean cpu? See lucid export --help.",
    "export nn.ReLU --taget cpu -o a.onnx": "No such option: --taget",
    "exprot nn.ReLU": "Did you mean 'export'? See lucid --help.",
    "map": "Missing argument 'SOURCE': lucid map [OPTIONS] SOURCE INPUT... See lucid map --help.",
    "export model.onnx -o a.onnx": "is no checkpoint, but a model that is exported already: inspect, run and bench",
    "export w.safetensors -o a.onnx": "is no checkpoint: it has no config; give its folder, or the model's class as",
    "report checkpoint": "checkpoint.html exists; give -o with this name to overwrite it",
    "report nn.ReLU": "is no checkpoint to name the file after; give it, as -o model.html",
    "inspect --depth x model.onnx": "unable to parse string as an integer. See lucid inspect --help.",
    "inspect mdel.onnx": "there is no file 'mdel.onnx'; did you mean model.onnx?",
    "generate checkpont text": "there is no file or folder 'checkpont'; did you mean checkpoint?",
    "generate net.py:make text": "'net.py:make' names a model in Python, and this command needs a checkpoint, with its",
    "chat nn.Linear": "'nn.Linear' names a model in Python, and this command needs a checkpoint, with its config",
    "map net.py:make model.onnx -o out": "'net.py:make' names a model in Python, and this command needs a checkpoint",
    "train net.py:make model.onnx -o out": "'net.py:make' names a model in Python, and this command needs a checkpoint",
    "quantize net.py:Net --bits 4 -o q.onnx": "export --bits 4 --input x:float32:N,..., or return them from the method",
}


@pytest.mark.parametrize("command", MEANT)
def test_what_is_nearly_right_is_suggested(command, tmp_path, monkeypatch, capsys):
    (tmp_path / "net.py").write_text(SOURCES)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "weights").mkdir()
    (tmp_path / "model.onnx").touch()
    (tmp_path / "w.safetensors").touch()
    (tmp_path / "checkpoint.html").touch()
    assert in_process(command.split(), monkeypatch, tmp_path) in (1, 2)
    assert MEANT[command] in capsys.readouterr().err
