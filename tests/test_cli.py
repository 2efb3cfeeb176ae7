"""The `lucid` command as a person uses it: every command through the real console script.

The script's file runs in this process, which is much faster; where the process is what is tested, in a new one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from lucid import nn, spec
from lucid.cli.commands.doctor import EXTRAS
from lucid.export import to_onnx
from lucid.files.weights import save
from lucid.layouts import write_folder
from lucid.models import load as load_model
from lucid.runtime import Session
from tests.console import LUCID, in_process
from tests.models import goldens
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
MHA = ("nn.MultiHeadAttention", "--set", "embed_dim=16", "--set", "num_heads=4")


def lucid(*arguments: object, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the console script and check its exit code."""
    assert LUCID.exists(), "the console script is not installed: pip install -e ."
    done = subprocess.run([LUCID, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=PATIENCE)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The output of a command with --json, run in this process."""

    def call(*arguments: object, code: int = 0, cwd: Path | None = None) -> Any:
        assert in_process([*arguments, "--json"], monkeypatch, cwd) == code
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints, run in this process; it says nothing on standard error."""

    def call(*arguments: object, code: int = 0, cwd: Path | None = None) -> str:
        exit_code = in_process(arguments, monkeypatch, cwd)
        out, err = capsys.readouterr()
        assert (exit_code, err) == (code, ""), out
        return out

    return call


@pytest.fixture(scope="module")
def mha(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "mha.onnx"
    lucid("export", *MHA, "-o", path)
    return path


def test_help_shows_all_commands_and_examples(shown):
    top = shown("--help")
    assert all(
        name in top for name in ("export", "inspect", "verify", "run", "bench", "doctor", "report", "Exit codes")
    )
    assert "lucid export all-MiniLM-L6-v2" in shown("export", "-h")
    assert lucid("--version").stdout.startswith("lucid 0.")


def test_export_shows_inputs_outputs_parity_and_the_file_and_more_if_it_is_asked(tmp_path, shown):
    path = tmp_path / "mha.onnx"
    calm = shown("export", *MHA, "-o", path)
    assert len(calm.splitlines()) == 10
    assert "MatMul" not in calm and "Attention" not in calm
    out = lucid("export", *MHA, "--verbose", "-o", path).stdout
    assert set(calm.splitlines()) <= set(out.splitlines())
    for expected in (
        "query",
        "float32[N, L, 16]",
        "MatMul",
        "ai.onnx Attention: 1 node",
        "opset       ai.onnx 23",
    ):
        assert expected in out
    assert "parameters  1,088" in out
    assert f"written     {path}" in out
    assert "ok    parity with NumPy in 3 runs on CPUExecutionProvider" in out
    onnx.checker.check_model(path)


def test_export_of_a_file_with_inputs_and_options(tmp_path, data):
    (tmp_path / "net.py").write_text(
        "import lucid, helper\n"
        "class Net(lucid.nn.Module):\n"
        "    def __init__(self, width: int = 8):\n"
        "        self.attention = lucid.nn.MultiHeadAttention(width, 2)\n"
        "    def forward(self, x, causal=False):\n"
        "        return self.attention(x, is_causal=causal)\n"
    )
    (tmp_path / "helper.py").write_text("")
    report = data(
        "export", "net.py:Net", "-o", "net.onnx", "-i", "x:float16:N,L,8", "--call", "causal=true", "--opset", 18,
        "--target", "portable", "--external-data", cwd=tmp_path,
    )  # fmt: skip
    assert report["inputs"] == {"x": "float16[N, L, 8]"}
    assert report["opsets"] == {"ai.onnx": 18}
    (attention,) = report["attention"]
    assert attention["form"] == "expanded"
    assert attention["node"] == "attention/attention"
    assert "ai.onnx Attention" in attention["refused"]
    assert report["parity"]["passed"]
    assert report["parity"]["max_abs"] < 4e-3
    for run in report["parity"]["runs"]:
        assert 0 <= run["error"] <= run["allowed"]
        assert run["tolerance"]["rtol"] == 1e-5
        assert run["tolerance"]["origin"].startswith("typical magnitude")


@pytest.mark.parametrize(("options", "opset"), [(["1.20"], 21), (["1.28"], 23), (["1.28", "--opset", "18"], 18)])
def test_an_export_for_an_onnxruntime_that_is_named(options, opset, data, tmp_path):
    linear = ("nn.Linear", "--set", "in_features=2", "--set", "out_features=2", "-i", "x:N,2", "-o", "linear.onnx")
    assert data("export", *linear, "--onnxruntime", *options, cwd=tmp_path)["opsets"] == {"ai.onnx": opset}


def test_export_compares_as_it_is_told(tmp_path, data):
    source = ("nn.Linear", "--set", "in_features=300", "--set", "out_features=40", "-i", "x:N,300")
    exact = data("export", *source, "-o", "a.onnx", "--rtol", 0, "--atol", 0, code=1, cwd=tmp_path)["parity"]["runs"]
    near = data("export", *source, "-o", "a.onnx", "--rtol", 0, "--atol", 1e-5, cwd=tmp_path)["parity"]["runs"]
    for runs, atol in ((exact, 0), (near, 1e-5)):
        assert all(run["tolerance"] == {"atol": atol, "rtol": 0, "origin": ""} for run in runs)


def test_export_of_a_packages_function_and_of_a_plain_one(tmp_path, data):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("from lucid import nn\ndef make(width=4): return nn.Linear(width, 2)\n")
    (package / "plain.py").write_text("from . import make\ndef twice(x): return x + x\n")
    report = data("export", "pack:make", "--set", "width=3", "-i", "x:N,3", "-o", "a.onnx", "--no-check", cwd=tmp_path)
    assert report["parameters"] == 8
    assert report["parity"] is None
    plain = data("export", package / "plain.py:twice", "-i", "x:int64:N", "-o", "b.onnx", cwd=tmp_path)
    assert plain["nodes"] == {"Add": 1}
    assert plain["parity"]["passed"]


def test_export_with_weights_from_a_file(tmp_path, data):
    weights = {"weight": np.eye(2, dtype=np.float32), "bias": np.ones(2, np.float32)}
    save(tmp_path / "w.safetensors", weights)
    source = ("nn.Linear", "--set", "in_features=2", "--set", "out_features=2", "-i", "x:N,2")
    data("export", *source, "-o", "a.onnx", "--weights", "w.safetensors", "--seed", 1, cwd=tmp_path)
    data("export", *source, "-o", "b.onnx", "--weights", "w.safetensors", "--seed", 2, cwd=tmp_path)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_inspect_shows_modules_costs_and_what_loads_it(mha, data, shown):
    out = shown("inspect", mha, "--size", "L=64", "--size", "S=32")
    for expected in (
        "made by lucid",
        "float32[N, L, 16]",
        "1.09 k",
        "FLOPs at N=1, L=64, S=32",
        "onnxruntime 1.28 or newer",
    ):
        assert expected in out
    report = data("inspect", mha)
    assert report["parameters"] == 1088
    assert report["uncounted_nodes"] == 0
    assert all(loader["loads"] is not False for loader in report["loaders"])


def test_inspect_writes_the_picture(mha, tmp_path, shown):
    page = tmp_path / "graph.html"
    shown("inspect", mha, "--graph", page)
    assert "Attention" in page.read_text(encoding="utf-8")


def test_verify_passes_at_many_sizes(mha, data):
    report = data("verify", *MHA[:1], mha, *MHA[1:], "--size", "N=2,L=9", "--size", "N=1,L=1,S=4")
    assert report["passed"]
    assert report["first_difference"] is None
    assert [run["sizes"] for run in report["runs"]] == [{"L": 9, "N": 2, "S": 1}, {"L": 1, "N": 1, "S": 4}]


OWN = """
import lucid
from lucid import nn


class Bag(nn.Module):
    def __init__(self):
        self.table = nn.Embedding(9, 2)

    def forward(self, ids, weights, scaled=False):
        rows = self.table(ids) * weights[0] + weights[1]
        return {"sum": 3 * rows.sum(1) if scaled else rows.sum(1), "ids": ids}
"""


def test_verify_takes_the_inputs_of_a_model_that_describes_none_from_its_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN, encoding="utf-8")
    inputs = [f"--input=weights.{item}:float32:N,L,1" for item in range(2)]
    export = ["export", "own.py:Bag", "-o", "bag.onnx", "-i", "ids:int64:N,2 <= L <= 5", *inputs, "--call=scaled=true"]
    assert in_process(export, monkeypatch) == 0
    capsys.readouterr()
    assert in_process(["verify", "own.py:Bag", "bag.onnx", "--call", "scaled=true"], monkeypatch) == 0
    *runs, weights = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok") and line.endswith("; 1 more output agrees better") for line in runs)
    assert "equal the model's" in weights
    assert in_process(["verify", "own.py:Bag", "bag.onnx"], monkeypatch) == 1, "the file is scaled"
    assert in_process(["verify", "nn.ReLU", "bag.onnx"], monkeypatch) == 2
    assert "lucid: bag.onnx has the inputs ids, weights: the model takes x" in capsys.readouterr().err


def test_verify_names_the_first_difference(mha, tmp_path, shown):
    model = onnx.load(mha)
    weight = next(t for t in model.graph.initializer if t.name == "out_proj.bias")
    weight.raw_data = (onnx.numpy_helper.to_array(weight) + np.float32(0.01)).tobytes()
    onnx.save(model, tmp_path / "other.onnx")
    out = shown("verify", *MHA[:1], tmp_path / "other.onnx", *MHA[1:], code=1)
    assert "FAIL" in out
    assert "first difference: output in" in out


def test_run_writes_what_the_session_computes(mha, tmp_path, data, shown):
    arrays = {
        name: np.random.default_rng(0).standard_normal((1, 3, 16), np.float32) for name in ("query", "key", "value")
    }
    np.savez(tmp_path / "in.npz", **arrays)
    assert "output  float32[1, 3, 16]" in shown("run", mha, "in.npz", "-o", "out.npz", cwd=tmp_path)
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_array_equal(written["output"], Session(mha).run(arrays)["output"])
    values = data("run", mha, "in.npz", cwd=tmp_path)["values"]["output"]
    assert np.shape(values) == (1, 3, 16)


def test_run_takes_a_folder_of_one_file_and_asks_which_of_several(tmp_path, data, monkeypatch, capsys):
    folder, arrays = tmp_path / "folder", tmp_path / "in.npz"
    folder.mkdir()
    np.savez(arrays, x=np.full((1, 2), -1.0, np.float32))
    to_onnx(nn.ReLU(), spec("N", 2), path=folder / "a.onnx")
    assert data("run", folder, arrays)["values"]["output"] == [[0.0, 0.0]]
    shutil.copy(folder / "a.onnx", folder / "b.onnx")
    which = f"{folder} holds 2 ONNX files; give the path of one, such as {folder / 'a.onnx'}"
    for command, option in ((["run", folder, arrays], ""), (["inspect", folder, "--graph", "page.html"], "--graph: ")):
        assert in_process(command, monkeypatch, tmp_path) == 2
        assert f"lucid: {option}{which}" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("command", "modules", "needed"),
    [
        (["serve", "x"], "starlette", "serving needs starlette: pip install 'lucid-onnx[serve]'"),
        (["serve", "x"], "starlette jinja2", "serving needs starlette: pip install 'lucid-onnx[serve]'"),
        *(
            ([command, "x", "y", "-o", "z"], "pyarrow", f"{users} need pyarrow: pip install 'lucid-onnx[batch]'")
            for command, users in dict.fromkeys(("map", "train"), "batch inference and training").items()
        ),
        (["chat", "x"], "jinja2", "texts and conversations need jinja2: pip install 'lucid-onnx[chat]'"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(command, modules, needed):
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({modules.split()})); from lucid.cli.console import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (1, f"lucid: {needed}\n")


def test_bench_measures(mha, data, shown):
    report = data("bench", mha, "--seconds", 0.05, "--size", "L=32", "--threads", 1)
    latency = report["latency_ms"]
    assert latency["min"] <= latency["p50"] <= latency["p90"] <= latency["p99"]
    assert report["sizes"] == {"N": 1, "L": 32, "S": 128}
    assert report["runs"] >= 10
    assert report["share_of_peak"] > 0
    assert report["peak_memory_bytes"] > 10 << 20
    assert "latency" in shown("bench", mha, "--seconds", 0.01, "--no-peak")


def test_doctor_is_content_here(data):
    report = data("doctor")
    names = {finding["name"]: finding for finding in report["findings"]}
    assert report["healthy"]
    assert names["CPUExecutionProvider"]["good"]
    assert int(names["newest opset"]["text"].split()[0]) >= 23
    for provider in ("CUDAExecutionProvider", "WebGpuExecutionProvider"):
        assert names[provider]["good"] or "pip install" in names[provider]["remedy"]


def test_doctor_knows_what_every_extra_adds():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    adds = {
        extra: {re.match(r"[\w-]+", each)[0] for each in each_adds if not each.startswith("lucid-onnx")}
        for extra, each_adds in extras.items()
    }
    assert {extra: set(names) for extra, names in EXTRAS.items()} == {
        extra: names
        for extra, names in adds.items()
        if extra not in ("cpu", "gpu", "webgpu", "cli", "demo", "gallery", "docs", "bench", "dist", "dev")
    }


def doctor_beside(packages):
    """The command, with a folder of packages before the installed ones."""
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    return subprocess.run([LUCID, "doctor"], capture_output=True, text=True, timeout=PATIENCE, env=environment)


def test_doctor_says_what_is_wrong_with_two_wheels(tmp_path):
    for name in ("onnxruntime", "onnxruntime_gpu"):
        folder = tmp_path / f"{name}-9.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 9.0\n")
    done = doctor_beside(tmp_path)
    assert done.returncode == 1
    assert "overwrite each other's files" in done.stdout
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in done.stdout


def test_doctor_works_without_onnxruntime(tmp_path):
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('libfoo.so: cannot open')\n")
    done = doctor_beside(tmp_path)
    assert done.returncode == 1
    assert "libfoo.so" in done.stdout
    assert "pip install 'lucid-onnx[cpu]'" in done.stdout


SLOW = """
import numpy as np
from lucid import nn
class Big(nn.Module):
    def __init__(self, count):
        self.weights = {str(i): nn.Linear(1024, 1024, bias=False) for i in range(count)}
        for linear in self.weights.values():
            linear.weight.assign(np.zeros((1024, 1024), np.float32) + np.float32(0.1))
    def forward(self, x):
        for linear in self.weights.values():
            x = linear(x)
        return x
"""


def test_one_file_is_listed_once_however_large(tmp_path, data):
    (tmp_path / "big.py").write_text(SLOW)
    arguments = "export big.py:Big --set count=17 -i x:N,1024 -o big.onnx --no-check".split()
    assert [file["name"] for file in data(*arguments, cwd=tmp_path)["files"]] == ["big.onnx"]


# After the second array, from inside: another process might come too late.
CTRL_C = """
import os, signal
from lucid.export.onnx_file import writer

write, written = writer._write_array, []

def interrupted(array, *rest):
    write(array, *rest)
    written.append(array)
    if len(written) == 2:
        assert os.listdir("out")
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and inherit that
writer._write_array = interrupted
"""


def test_ctrl_c_in_the_middle_of_writing_leaves_no_file(tmp_path):
    (tmp_path / "big.py").write_text(SLOW + CTRL_C)
    (tmp_path / "out").mkdir()
    arguments = "export big.py:Big --set count=3 -i x:N,1024 -o out/big.onnx --no-check --external-data".split()
    done = subprocess.run([LUCID, *arguments], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 130
    assert done.stderr.decode().strip() == "lucid: interrupted"
    assert list((tmp_path / "out").iterdir()) == []


AT_WORK = """
import os
import signal
import threading
import time

def work():
    threading.main_thread().join()  # it waits for this thread
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

def Net():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=work).start()
    raise KeyboardInterrupt
"""


def test_a_second_ctrl_c_ends_the_work_of_threads(tmp_path):
    (tmp_path / "net.py").write_text(AT_WORK)
    done = subprocess.run(
        [LUCID, "export", "net.py:Net", "-o", "net.onnx"], cwd=tmp_path, capture_output=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"lucid: interrupted\n")


@pytest.mark.parametrize(
    ("cache", "sizes"),
    [
        ("growing", "batch_size=2,sequence_length=3,past_sequence_length=4"),
        ("fixed", "batch_size=2,sequence_length=3,capacity=5,total_sequence_length=3"),
    ],
)
def test_a_step_over_a_cache_is_exported_and_verified(
    cache: str, sizes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ["models/llama.py:Llama", "--weights", "tests/goldens/llama/llama2", "--cache", cache]
    path = str(tmp_path / "step.onnx")
    assert in_process(["export", *source, "-o", path], monkeypatch) == 0
    printed = capsys.readouterr().out
    assert "past_key_values.0.key" in printed and "present.0.key" in printed and "parity with NumPy" in printed
    for size_options, runs in (([], 3 + 5), (["--size", sizes], 1)):  # of their own, then a prompt and four steps
        assert in_process(["verify", source[0], path, *source[1:], *size_options], monkeypatch) == 0
        *lines, weights = capsys.readouterr().out.splitlines()
        assert len(lines) == runs and all("more outputs agree better" in line for line in lines)
        assert "equal the model's, bit for bit" in weights
    assert in_process(["verify", source[0], path, *source[1:3]], monkeypatch) == 0, "the file says which part it is"
    assert "equal the model's, bit for bit" in capsys.readouterr().out
    bench = ["bench", path, "--seconds", "0.01", "--no-peak", "--size", "sequence_length=1"]
    assert in_process(bench, monkeypatch) == 0, "sums of sizes are known"


def test_a_decoder_without_a_cache_is_told_how_it_writes_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "note        each run reads the whole text: to write text, export with --cache"
    for golden, cache, noted in (("llama", [], True), ("llama", ["--cache", "growing"], False), ("bert", [], False)):
        source = str(goldens.folder({"llama": "llama/llama2", "bert": "bert/base"}[golden]))
        assert in_process(["export", source, "--no-check", *cache, "-o", str(tmp_path / "one.onnx")], monkeypatch) == 0
        assert (note in capsys.readouterr().out) == noted


def test_a_model_without_a_cache_has_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    linear = ["nn.Linear", "--set", "in_features=2", "--set", "out_features=2", "--cache", "growing"]
    assert in_process(["export", *linear, "-o", tmp_path / "step.onnx"], monkeypatch) == 2
    assert "takes no cache" in capsys.readouterr().err


def test_parts_of_an_encoder_decoder_are_exported_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ["lucid.models.t5:T5", "--weights", "tests/goldens/t5/v1_0"]
    step, merged = ["--part", "decoder", "--cache", "growing"], ["--part", "decoder_merged"]
    path = str(tmp_path / "decoder.onnx")
    assert in_process(["export", *source, *step, "-o", path], monkeypatch) == 0
    printed = capsys.readouterr().out
    assert "past_key_values.0.encoder.key" in printed and "parity with NumPy" in printed
    assert in_process(["verify", source[0], path, *source[1:], *step], monkeypatch) == 0
    assert in_process(["export", *source, *merged, "-o", path], monkeypatch) == 0
    printed = capsys.readouterr().out
    assert "use_cache_branch" in printed and "parity with NumPy" in printed
    assert in_process(["verify", source[0], path, *source[1:], *merged], monkeypatch) == 0
    assert "equal the model's, bit for bit" in capsys.readouterr().out
    assert in_process(["export", "nn.ReLU", "-i", "x:N,4", "--part", "encoder", "-o", path], monkeypatch) == 2
    assert "ReLU has no parts" in capsys.readouterr().err


def test_a_checkpoint_is_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bert = "tests/goldens/bert/base"
    assert in_process(["export", bert, "-o", tmp_path / "bert.onnx"], monkeypatch) == 0
    assert "parity with NumPy" in capsys.readouterr().out
    for options, message in [
        (["--weights", bert], "is a checkpoint, which has weights; leave out --weights"),
        (["--set", "eps=1"], "--set eps: 'tests/goldens/bert/base' is already a model; leave out --set"),
    ]:
        assert in_process(["export", bert, *options, "-o", tmp_path / "bert.onnx"], monkeypatch) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_inspect_and_bench_take_folders_and_bench_decodes(tmp_path, data, shown):
    folder, source = tmp_path / "made", goldens.folder("llama/llama2")
    model = load_model(source)
    write_folder(model, source, folder, layout="onnxruntime", check=False)
    (inspected,) = data("inspect", folder)["files"]
    assert "past_key_values.0.key" in inspected["inputs"]
    (measured,) = data("bench", folder, "--seconds", 0.01, "--size", "sequence_length=5")["files"]
    assert measured["prompt_tokens"] == 5 and measured["runs"] >= 3
    assert measured["tokens_per_second"] > 0 < measured["seconds_to_first_token"]
    assert "tokens/s" in shown("bench", folder / "model.onnx", "--seconds", 0.01, "--size", "sequence_length=5")
    (tmp_path / "empty").mkdir()
    assert "has no ONNX file" in data("inspect", tmp_path / "empty", code=2)["error"]
    assert f"export it before: lucid export {source}" in data("bench", source, code=2)["error"]
