"""Small files that would take all memory or never end: every command refuses them within a second and 100 MB."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lucid
from lucid import nn
from lucid.inspection import inspect_model
from lucid.inspection.report import graph_page
from lucid.runtime.constant_sizes import made_of_constants
from lucid.runtime.model_file import ModelError, check_model_file
from lucid.runtime.session import Session
from tests.cases import case
from tests.console import LUCID, in_process
from tests.hostile import assert_refused, demands
from tests.waiting import PATIENCE, until

CASES = demands.CASES
LOADED = [name for name in CASES if name.startswith("load_")]


@pytest.mark.parametrize("name", CASES)
def test_looking_at_it_ends_in_a_clear_error(name, tmp_path):
    assert_refused(inspect_model, CASES[name][1](tmp_path), ModelError)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("look_")])
def test_drawing_it_stays_small(name, tmp_path):
    path = CASES[name][1](tmp_path)
    try:
        graph_page(path, tmp_path / "page.html")
    except ModelError:
        return
    assert (tmp_path / "page.html").stat().st_size < 20 << 20


@pytest.mark.parametrize("name", LOADED)
def test_loading_it_ends_in_a_clear_error(name, tmp_path):
    path = CASES[name][1](tmp_path)
    assert_refused(check_model_file, path, ModelError)
    with pytest.raises(ModelError):
        Session(path)


@pytest.mark.parametrize("command", ["inspect", "bench", "run", "verify"])
@pytest.mark.parametrize("name", ["load_range", "load_calls", "load_concat"])
def test_every_command_refuses_it(name, command, tmp_path, monkeypatch, capsys):
    path = CASES[name][1](tmp_path)
    np.savez(tmp_path / "x.npz", x=np.zeros(4, np.float32))
    words = {"run": [path, tmp_path / "x.npz"], "verify": ["nn.ReLU", path, "-i", "x:4"]}.get(command, [path])
    assert in_process([command, *words], monkeypatch) == 2
    assert "model.onnx" in capsys.readouterr().err


# What is no demand ----------------------------------------------------------------------------------------------------


def test_a_model_of_functions_and_constants_as_people_write_it_is_fine(tmp_path):
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    body = [helper.make_node("Add", ["x", "x"], ["y"])]
    twice = helper.make_function("f", "twice", ["x"], ["y"], body, opsets[:1])
    names = ["x", *(f"v{i}" for i in range(500))]
    nodes = [helper.make_node("twice", [a], [b], domain="f") for a, b in pairwise(names)]
    nodes += [helper.make_node("ConstantOfShape", ["s"], ["mask"]), helper.make_node("Range", ["a", "b", "c"], ["r"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", names[-1])]
    held = [helper.make_tensor(n, TensorProto.INT64, [], [v]) for n, v in (("a", 0), ("b", 4096), ("c", 1))]
    held.append(helper.make_tensor("s", TensorProto.INT64, [4], [1, 1, 4096, 4096]))
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=opsets, functions=[twice]), tmp_path / "m.onnx")
    assert inspect_model(tmp_path / "m.onnx").operators["Add"] == 500
    Session(tmp_path / "m.onnx")


def test_what_is_made_of_constants_is_counted_exactly():
    def elements(*nodes: onnx.NodeProto, **constants: list[int]) -> int:
        held = [helper.make_tensor(k, TensorProto.INT64, [len(v)], v) for k, v in constants.items()]
        return made_of_constants(helper.make_model(helper.make_graph(nodes, "g", [], [], held)))

    node = helper.make_node
    assert elements(node("Range", ["a", "b", "c"], ["y"]), a=[3], b=[10], c=[2]) == 4
    assert elements(node("Range", ["a", "b", "c"], ["y"]), a=[3], b=[10], c=[-2]) == 0
    assert elements(node("Expand", ["v", "s"], ["y"]), v=[1], s=[3, 5]) == 15
    assert elements(node("Tile", ["v", "s"], ["y"]), v=[1, 2], s=[3]) == 6
    assert elements(node("Concat", ["v", "v"], ["y"], axis=0), node("Neg", ["y"], ["z"]), v=[1, 2]) == 8
    assert elements(node("Concat", ["v", "x"], ["y"], axis=0), v=[1, 2]) == 0, "hangs on an input"
    assert elements(node("Neg", ["v"], ["y"]), v=[1, 2]) == 0, "no more than the file holds"
    assert (
        elements(
            node("Slice", ["s", "a", "b"], ["t"]), node("ConstantOfShape", ["t"], ["y"]), s=[9, 3, 4], a=[1], b=[3]
        )
        == 12
    )
    squeezed = node("ReduceProd", ["s"], ["p"], keepdims=0), node("Range", ["a", "p", "b"], ["y"])
    assert elements(*squeezed, s=[3, 4], a=[0], b=[1]) == 12


@pytest.mark.parametrize(
    "kind", ["Add", "Where", "Gather", "MatMul", "Slice", "Pad", "Reshape", "Range", "OneHot", "Max"]
)
def test_nodes_that_no_op_takes_are_counted_without_an_error(kind):
    for count, shape in product([1, 2, 3, 5], [[], [0], [2], [1, 2], [2, 3]]):
        with case(f"{count} inputs {shape}"):
            held = [helper.make_tensor("v", TensorProto.INT64, shape, [7] * int(np.prod(shape)))]
            nodes = [helper.make_node(kind, ["v"] * count, ["y"]), helper.make_node("Add", ["y", "v"], ["z"])]
            assert made_of_constants(helper.make_model(helper.make_graph(nodes, "g", [], [], held))) >= 0


# The budget of a command ----------------------------------------------------------------------------------------------

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere commands have no budget")


def command(*words: object, **budget: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {f"LUCID_MAX_{name.upper()}": str(value) for name, value in budget.items()}
    return subprocess.run([LUCID, *map(str, words)], capture_output=True, text=True, env=environment, timeout=PATIENCE)


def source(folder: Path, *lines: str) -> str:
    (folder / "net.py").write_text(
        "\n".join(["import os, time", "import lucid", "def net(x):", *lines, "    return x"])
    )
    return f"{folder / 'net.py'}:net"


@LINUX
def test_a_model_that_takes_for_ever_is_ended_with_a_clear_error(tmp_path):
    """Nothing counts the axes that a chain of Unsqueeze adds: millions here."""
    nodes = [helper.make_node("Unsqueeze", [f"s{i}", "axes"], [f"s{i + 1}"]) for i in range(3000)]
    held = [helper.make_tensor("axes", TensorProto.INT64, [1000], range(1000))]
    held.append(helper.make_tensor("s0", TensorProto.INT64, [], [1]))
    output = helper.make_tensor_value_info("s3000", TensorProto.INT64, None)
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(helper.make_graph(nodes, "g", [], [output], held), ir_version=10, opset_imports=opsets)
    onnx.save(model, tmp_path / "m.onnx")
    done = command("inspect", tmp_path / "m.onnx", seconds=1)
    assert done.returncode == 1
    assert "needs more than 1 seconds; LUCID_MAX_SECONDS=SECONDS allows more" in done.stderr


@LINUX
def test_a_model_that_takes_all_memory_is_ended_with_a_clear_error(tmp_path):
    """An input gives the size of the tensor."""
    ends = [helper.make_tensor_value_info(name, kind, [None]) for name, kind in (("x", 7), ("y", 1))]
    graph = helper.make_graph([helper.make_node("ConstantOfShape", ["x"], ["y"])], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=opsets), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.asarray([500_000_000]))
    done = command("run", tmp_path / "m.onnx", tmp_path / "x.npz", "-o", tmp_path / "y.npz", memory=0.4)
    assert done.returncode == 1
    assert "needs more than 0.4 GiB of memory; LUCID_MAX_MEMORY=GIB allows more" in done.stderr
    assert not (tmp_path / "y.npz").exists()


@LINUX
def test_a_command_that_aborts_says_so(tmp_path):
    done = command("report", source(tmp_path, "    os.abort()"), "-i", "x:N,4", "-o", tmp_path / "page.html")
    assert done.returncode == 1
    assert "report: the model crashed onnx or onnxruntime (SIGABRT)" in done.stderr


@LINUX
def test_a_budget_that_is_no_number_is_refused():
    done = command("inspect", "m.onnx", seconds="ten")
    assert done.returncode == 2
    assert "LUCID_MAX_SECONDS is 'ten', expected a number of seconds; 0 for no limit" in done.stderr
    done = command("inspect", "m.onnx", memory="4 GHz")
    expected = "LUCID_MAX_MEMORY is '4 GHz', expected a number of GiB, or one with a unit, such as 4MiB or 1.5GB; 0 for"
    assert done.returncode == 2 and expected in done.stderr
    done = command("inspect", "m.onnx", seconds="nan")
    assert done.returncode == 2 and "LUCID_MAX_SECONDS is 'nan', expected 0 or more; 0 for no limit" in done.stderr


@LINUX
def test_a_budget_changes_nothing_for_other_models(tmp_path, monkeypatch, capfd):
    """In this process, which has loaded NumPy, commands have none."""
    lucid.export.to_onnx(nn.ReLU(), ("N", 4), path=tmp_path / "m.onnx")
    file, usual, no_limit = tmp_path / "m.onnx", {}, {"seconds": 0, "memory": 0}
    for words, budget in (
        (["inspect", file], usual),
        (["inspect", file], no_limit),
        (["inspect", tmp_path / "nowhere.onnx"], usual),
    ):
        code = in_process(words, monkeypatch)
        expected = (code, *capfd.readouterr())
        done = command(*words, **budget)
        assert (done.returncode, done.stdout, done.stderr) == expected


def state(process: int) -> str:
    """A letter; Z for one that has ended, which nobody has asked for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return "ended"


@LINUX
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_whoever_ends_the_command_ends_both_processes(how, tmp_path):
    net = source(tmp_path, f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))", "    time.sleep(1000)")
    running = subprocess.Popen([LUCID, "report", net, "-i", "x:N,4", "-o", str(tmp_path / "page.html")])
    until(lambda: running.poll() is not None or ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    worker = int((tmp_path / "pid").read_text())
    running.send_signal(how)
    assert running.wait(PATIENCE) == -how
    assert worker != running.pid
    until(lambda: state(worker) in ("ended", "Z"))
