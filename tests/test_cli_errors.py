"""Errors of commands: the exit code gives the kind, one or two lines say what is wrong, without a traceback."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lucid.cli.kept_exports import cache_folder
from lucid.files.weights import save
from tests.chat.checkpoints import checkpoint
from tests.console import LUCID, in_process
from tests.layout_checkpoints import whole
from tests.models import goldens
from tests.waiting import PATIENCE

LINEAR = ["nn.Linear", "--set", "in_features=2", "--set", "out_features=2"]


def failing(
    arguments: list[str], cwd: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The exit code and the message of a command that fails."""
    code = in_process(arguments, monkeypatch, cwd)
    message = capsys.readouterr().err.strip()
    assert message.startswith("lucid: ")
    assert "Traceback" not in message
    assert len(message.splitlines()) <= 2, message
    assert not (cwd / "a.onnx").exists()
    return code, message.removeprefix("lucid: ")


SOURCES = """
import lucid
VERSION = "1"
class Net(lucid.nn.Module):
    def forward(self, x):
        return x if x.shape[0] == 4 else -x
def make(): return 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, each wrong in a different way."""
    place = tmp_path_factory.mktemp("errors")
    (place / "sub.py").mkdir()
    (place / "net.py").write_text(SOURCES)
    (place / "empty_module.py").write_text("x = 1\n")
    (place / "broken.py").write_text("def f(:\n")
    (place / "raises.py").write_text("1 / 0\n")
    (place / "empty.onnx").write_bytes(b"")
    (place / "text.onnx").write_text("this is no model")
    good = model()
    (place / "good.onnx").write_bytes(good.SerializeToString())
    ends = [helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in "xy"]
    texts = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    texts_model = helper.make_model(texts, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
    (place / "texts.onnx").write_bytes(texts_model.SerializeToString())
    (place / "cut.onnx").write_bytes(good.SerializeToString()[:-5])
    good.ir_version = 99
    (place / "future.onnx").write_bytes(good.SerializeToString())
    (place / "no_data.onnx").write_bytes(model(external="gone.bin").SerializeToString())
    np.savez(place / "wrong_name.npz", y=np.zeros(2, np.float32))
    np.savez(place / "wrong_type.npz", x=np.zeros(2))
    np.save(place / "one.npy", np.zeros(2))
    (place / "text.npz").write_text("no archive")
    (place / "long.txt").write_text("k" * 4097)
    (place / "utf16.txt").write_text("key", encoding="utf-16")
    return place


def model(external: str = "") -> onnx.ModelProto:
    weight = TensorProto(name="w", dims=[2], data_type=TensorProto.FLOAT)
    if external:
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=external)
    else:
        weight.raw_data = np.ones(2, np.float32).tobytes()
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


ABSENT = "there is no file or folder 'a/none' here"  # nor on Hugging Face's hub

WRONG_COMMAND_LINES = {
    "no command of this name": (["exprot"], "No such command 'exprot'"),
    "no such option": (["export", *LINEAR, "--colour", "-o", "a.onnx"], "No such option"),
    "output missing": (["export", *LINEAR], "SOURCE 'nn.Linear' is no checkpoint to name the file after; give it"),
    "no lengths": (["export", *LINEAR, "--lengths", "512", "-o", "a.onnx"], "--lengths is '512', expected the fewest"),
    "no such file": (["export", "none.py:Net", "-o", "a.onnx"], "no file 'none.py'"),
    "a drive": (["export", r"C:\none.py:Net", "-o", "a.onnx"], r"no file 'C:\\none.py'"),
    "a drive and no name": (["export", r"C:\none.py", "-o", "a.onnx"], r"no file 'C:\\none.py'"),
    "a folder": (["export", "sub.py:Net", "-o", "a.onnx"], "'sub.py' is not a file"),
    "no name in the file": (["export", "net.py", "-o", "a.onnx"], "as net.py:Name; the file has Net, make"),
    "no such name": (["export", "net.py:Tree", "-o", "a.onnx"], "net.py has no 'Tree'; it has Net, make"),
    "nothing there": (["export", "empty_module.py:Net", "-o", "a.onnx"], "it has no Module and no function"),
    "no module": (["export", "net.py:VERSION", "-o", "a.onnx"], "is a value of type str, expected a Module"),
    "makes no module": (["export", "net.py:make", "-o", "a.onnx"], "returned a value of type int, expected a Module"),
    "syntax error": (["export", "broken.py:f", "-o", "a.onnx"], "does not import: SyntaxError"),
    "not installed": (["export", "nowhere.at.all:f", "-o", "a.onnx"], "does not import: ModuleNotFoundError"),
    "not in lucid": (["export", "nn.Perceptron", "-o", "a.onnx"], "nothing of this name; it has nn.ALiBi"),
    "argument missing": (["export", "nn.Linear", "-o", "a.onnx"], "needs --set in_features=..."),
    "argument unknown": (["export", *LINEAR, "--set", "bais=true", "-o", "a.onnx"], "has no argument bais"),
    "--set malformed": (["export", *LINEAR, "--set", "bias", "-o", "a.onnx"], "expected KEY=VALUE"),
    "--set twice": (["export", *LINEAR, "--set", "in_features=3", "-o", "a.onnx"], "given twice"),
    "--input malformed": (["export", *LINEAR, "-o", "a.onnx", "-i", "x"], "expected NAME:DTYPE:SIZES"),
    "--seed negative": (["export", *LINEAR, "-o", "a.onnx", "--seed", "-1"], "'--seed': '-1' should be "),
    "a size with a unit": (["bench", "a.onnx", "--threads", "2k"], "'--threads': '2k' should be a valid integer"),
    "--input dtype": (["export", *LINEAR, "-o", "a.onnx", "-i", "x:complex64:N,2"], "'complex64' is not one of"),
    "--input negative": (["export", *LINEAR, "-o", "a.onnx", "-i", "x:float32:-1,2"], "negative"),
    "--input size": (["export", *LINEAR, "-o", "a.onnx", "-i", "x:float32:N;L,2"], "--input 'x:float32:N;L,2'"),
    "--input twice": (["export", *LINEAR, "-o", "a.onnx", "-i", "x:N,2", "-i", "x:N,2"], "given twice"),
    "--input unknown": (["export", *LINEAR, "-o", "a.onnx", "-i", "y:N,2"], "the model takes x"),
    "no inputs": (["export", "net.py:Net", "-o", "a.onnx"], "as in --input x:float32:N,...; token ids are int64"),
    "weights missing": (["export", *LINEAR, "-o", "a.onnx", "-w", "none"], "no file or folder 'none'"),
    "--via and a class": (["export", *LINEAR, "--via", "torch", "-o", "a.onnx"], "--via torch: SOURCE 'nn.Linear'"),
    "--via and options": (["export", "sub.py", "--via", "torch", "--ignore-option", "x", "-o", "a.onnx"],
                          "--ignore-option: with --via torch transformers reads config.json; leave it out"),
    "no --via": (["export", "sub.py", "--trust-remote-code", "-o", "a.onnx"], "torch does, with --via torch"),
    "target": (["export", *LINEAR, "-o", "a.onnx", "--target", "tpu"], "'--target'"),
    "--size malformed": (["inspect", "good.onnx", "--size", "L"], "expected NAME=N"),
    "--size unknown": (["bench", "good.onnx", "--size", "L=3"], "all sizes of the model are fixed"),
    "one of two arguments": (["run", "good.onnx"], "Missing argument 'INPUT.NPZ': lucid run [OPTIONS] MODEL.ONNX"),
    "a file and no SOURCE": (["verify", "good.onnx"], "exported already: inspect, run and bench take it, and verify"),
    "a class and no file": (["verify", "nn.ReLU"], "SOURCE 'nn.ReLU' is no checkpoint, by whose name its export is fo"),
    **{
        f"{' '.join(line)}, which is not there": (line, f"there is no file {line[-1]!r}")
        for line in (["inspect", "none.onnx"], ["bench", "none.onnx"], ["verify", "nn.ReLU", "none.onnx"],
                     ["run", "good.onnx", "none.npz"], ["report", "nn.ReLU", "--data", "none.npz"],
                     ["report", "nn.ReLU", "--tokens", "none.txt"],
                     ["quantize", "sub.py", "-o", "q", "--text", "none.txt"],
                     ["generate", "sub.py", "a", "--json-schema", "none.json"], ["chat", "sub.py", "--grammar", "none"])
    },
    **{
        f"{line[0]} of UTF-16": (line, f"{line[-2]} utf16.txt: is text in UTF-16, expected UTF-8; save it as UTF-8")
        for line in (["report", "nn.ReLU", "-o", "a.html", "--tokens", "utf16.txt"],
                     ["serve", "sub.py", "--key-file", "utf16.txt"])
    },
    "a key of kilobytes": (["serve", "sub.py", "--key-file", "long.txt"], "long.txt: more than 4 KiB, the most that"),
    **{
        f"map to {name}": (["map", "sub.py", "rows.csv", "-o", name],
                           f"{name!r} names a file, but this writes a folder of Parquet files; give {folder!r}")
        for name, folder in {"out.jsonl": "out", "s3://b/o.JSON": "s3://b/o", "a.b.csv/": "a.b", "o.tsv": "o"}.items()
    },
    **{
        f"{line[0]} {source}": ([line[0], source, *line[1:]], message)
        for line in (["generate", "abc"], ["chat"], ["map", "rows.jsonl", "-o", "out"], ["serve"],
                     ["export", "-o", "a.onnx"], ["quantize", "--bits", "4", "-o", "q.onnx"], ["report"],
                     ["verify", "good.onnx"])
        for source, message in {"none": "there is no", "a/none": ABSENT, r"C:\none\a": "there is no"}.items()
    },
    "--seconds without end": (["bench", "good.onnx", "--seconds", "inf"], "less than or equal to 86400"),
}  # fmt: skip

REFUSED = {
    "bench of texts": (["bench", "texts.onnx"], "measure the file that is exported without --with-tokenizer, or run"),
    "lengths backwards": (["export", *LINEAR, "--lengths", "9:1", "-o", "a.onnx"], "lengths is (9, 1), expected the"),
    "opset": (["export", *LINEAR, "-i", "x:N,2", "-o", "a.onnx", "--opset", "12"], "opset 12 is not supported"),
    "release": (["export", *LINEAR, "-i", "x:N,2", "-o", "a.onnx", "--onnxruntime", "1.16"],
                "onnxruntime 1.16 is older than 1.20, the oldest that Lucid exports for"),
    "form": (["export", "nn.MultiHeadAttention", "--set", "embed_dim=4", "--set", "num_heads=2", "-o", "a.onnx",
              "--opset", "18", "--attention", "standard"], 'no form of attention="standard" is exact here'),
    "no folder": (["export", *LINEAR, "-i", "x:N,2", "-o", "none/a.onnx"], "folder 'none' does not exist"),
    "no folder to be in": (["export", "sub.py", "--for", "optimum", "-o", "no/a"], "folder no does not exist; create"),
    "folder as file": (["export", *LINEAR, "-i", "x:N,2", "-o", "sub.py"], "'sub.py' is a folder"),
    "empty": (["inspect", "empty.onnx"], "'empty.onnx': 0 bytes"),
    "no model": (["inspect", "text.onnx"], "not an ONNX model"),
    "truncated": (["bench", "cut.onnx"], "not an ONNX model, or a truncated one"),
    "newer IR": (["inspect", "future.onnx"], "IR version 99, expected at most"),
    "missing data": (["verify", LINEAR[0], "no_data.onnx", *LINEAR[1:]], "there is no data file 'gone.bin'"),
    "another model": (["verify", LINEAR[0], "good.onnx", *LINEAR[1:], "-i", "x:N,2,2"], "input x has shape [1, 2, 2]"),
    "input name": (["run", "good.onnx", "wrong_name.npz"], "inputs missing: x; unknown: y"),
    "input type": (["run", "good.onnx", "wrong_type.npz"], "input x has dtype float64, expected float32"),
    "provider": (["run", "good.onnx", "wrong_type.npz", "-p", "gpu"], "provider 'gpu' does not exist"),
    "no literal": (["export", "nn.Linear", "--set", "in_features={[]: 1}", "--set", "out_features=2", "-o", "a.onnx"],
                   "in_features is '{[]: 1}'"),
    "no tokenizer": (["generate", "good.onnx", "a"], "/errors0: has no tokenizer.json and no GGUF file"),
    "one array": (["run", "good.onnx", "one.npy"], "one array without a name"),
    "no archive": (["run", "good.onnx", "text.npz"], "is not an .npz file"),
}  # fmt: skip

FAILURES = {
    "provider": (["run", "good.onnx", "wrong_type.npz", "-p", "cuda"], "CUDAExecutionProvider is not in the installed"),
    "module raises": (["export", "raises.py:f", "-o", "a.onnx"], "division by zero"),
    "symbolic size": (["export", "net.py:Net", "-i", "x:N", "-o", "a.onnx"], "N == 4 is known only at run time"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*WRONG_COMMAND_LINES, *REFUSED])
def test_a_wrong_command_line_and_what_is_refused_end_with_2(name, folder, monkeypatch, capsys):
    arguments, expected = (WRONG_COMMAND_LINES | REFUSED)[name]
    code, message = failing(arguments, folder, monkeypatch, capsys)
    assert code == 2, message
    assert expected in message


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_ends_with_1(name, folder, monkeypatch, capsys):
    arguments, expected = FAILURES[name]
    code, message = failing(arguments, folder, monkeypatch, capsys)
    assert code == 1, message
    assert expected in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_write_permission(tmp_path, monkeypatch, capsys):
    tmp_path.chmod(0o500)
    arguments = ["export", *LINEAR, "-o", str(tmp_path / "a.onnx")]
    code, message = failing(arguments, Path.cwd(), monkeypatch, capsys)
    assert code == 1
    assert "no permission" in message


@pytest.fixture
def refused(monkeypatch):
    """The names of folders that may not be made."""
    names, mkdir = set(), os.mkdir

    def refuse(path, *rest, **options):
        if os.path.basename(path) in names:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        mkdir(path, *rest, **options)

    monkeypatch.setattr("os.mkdir", refuse)
    return names


def test_a_folder_of_rows_or_of_a_training_without_permission(refused, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow", reason="needs the extra batch")
    whole(tmp_path / "made", "sentences/cls")
    whole(tmp_path / "plain", "bert/base")
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "label": "b"}\n{"text": "b", "label": "a"}\n')
    refused |= {"out", "out.training"}
    train = ["train", "plain", "rows.jsonl", "-o", "out", "--task", "text-classification"]
    for command, folder in ((["map", "made", "rows.jsonl", "-o", "out"], "out"), (train, "out.training")):
        assert in_process(command, monkeypatch, tmp_path) == 1
        message = f"cannot write {tmp_path / folder}: no permission to create files in {tmp_path}; change its"
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("home", ["none", "closed"])
def test_a_cache_that_cannot_be_written_is_told_with_the_variable_that_names_another(
    home, refused, tmp_path, monkeypatch, capsys
):
    checkpoint(tmp_path / "decoder")
    for name in ("LUCID_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path if home == "none" else str(tmp_path / path[2:]))
    if home == "closed":
        refused.add(".cache")
    assert in_process(["generate", "decoder", "ab", "-n", "1"], monkeypatch, tmp_path) == 1
    error = capsys.readouterr().err
    assert "LUCID_CACHE names another" in error and error.count("\n") == 1
    why = {
        "none": "this user has no home folder to keep exports in",
        "closed": f"cannot write {tmp_path}/.cache/lucid: ",
    }
    assert why[home] in error and not (tmp_path / "~").exists()


def test_a_cache_is_named_below_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("os.path.expanduser", lambda path: str(path).replace("~", str(tmp_path)))
    monkeypatch.setenv("LUCID_CACHE", "~/exports")
    assert cache_folder() == tmp_path / "exports" and cache_folder().is_dir()


# Streams that are closed ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="a shell closes the streams")
@pytest.mark.parametrize("closed", ['"$@" >&- 2>&- <&-', '"$@" 2>&1 | true', '"$@" | head -c 1'])
def test_a_command_does_its_work_though_nobody_reads_what_it_prints(closed, folder, tmp_path):
    """rich would end the process at the first line that has no reader, before a file is written."""
    output = tmp_path / "relu.onnx"
    command = [LUCID, "export", "nn.ReLU", "-i", "x:N,3", "-o", output]
    script = f"set -o pipefail; {closed}"
    done = subprocess.run(["bash", "-c", script, "bash", *command], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert onnx.load(output).graph.input[0].name == "x"


def test_a_new_process_ends_with_the_same_codes_and_messages(folder):
    """The same in a new process: a wrong command line in words, a failure in JSON."""
    command = ["export", "nn.Linear", "-o", "a.onnx"]
    done = subprocess.run([LUCID, *command], capture_output=True, text=True, cwd=folder, timeout=PATIENCE)
    assert done.returncode == 2
    assert "needs --set in_features=..." in done.stderr
    assert done.stdout == ""
    done = subprocess.run(
        [LUCID, "inspect", "empty.onnx", "--json"], capture_output=True, text=True, cwd=folder, timeout=PATIENCE
    )
    report = json.loads(done.stdout)
    assert done.returncode == report["exit_code"] == 2
    assert "0 bytes" in report["error"]


def test_debug_shows_the_traceback(folder, monkeypatch, capsys):
    code = in_process(["export", "raises.py:f", "-o", "a.onnx", "--debug"], monkeypatch, folder)
    shown = capsys.readouterr().err
    assert code == 1
    assert "Traceback" in shown
    assert "ZeroDivisionError" in shown


def test_an_error_that_lucid_raises_shows_no_type(tmp_path, monkeypatch, capsys):
    """Whatever its type is, its message says what to do; errors that were not foreseen name theirs."""
    folder = shutil.copytree(goldens.folder("bert/base"), tmp_path / "tiny")
    save(folder / "model.safetensors", {"embeddings.nothing": np.zeros(2, np.float32)})
    assert in_process(["export", folder, "-o", tmp_path / "x.onnx"], monkeypatch) == 2
    printed = capsys.readouterr().err
    assert "nothing loaded; missing: " in printed and "KeyError" not in printed and "--debug" not in printed
    (tmp_path / "net.py").write_text("def net(x): return {}['start']\n")
    assert in_process(["export", "net.py:net", "-i", "x:N", "-o", "x.onnx"], monkeypatch, tmp_path) == 1
    assert "(KeyError" in capsys.readouterr().err


def test_a_folder_without_an_onnx_file_is_a_wrong_command_line(tmp_path, monkeypatch, capsys):
    assert failing(["inspect", "."], tmp_path, monkeypatch, capsys) == (
        2,
        ".: has no ONNX file; give an ONNX file, or the folder that `lucid export --for` wrote",
    )
