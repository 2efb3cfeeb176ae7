"""Errors in a user's model name their line: in the command's short message, and as a note of the exception."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lucid
from lucid import nn, ops
from lucid.cli.errors import plain
from lucid.testing import assert_parity
from tests.console import in_process

NET = """
from lucid import nn
import numpy as np, json

class Inner(nn.Module):
    def __init__(self):
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        return self.linear(x.mT)

class Net(nn.Module):
    def __init__(self):
        self.inner = Inner()
    def forward(self, x):
        return self.inner(x)

def divided(x):
    return x * (1 / 0)

def by_numpy(x):
    return np.linalg.svd(x)

def by_library(x):
    return json.dumps(x)

def branching(x):
    return x if x.shape[0] == 4 else -x
"""

LINES = {
    "Net": "in Inner.forward, net.py:9: return self.linear(x.mT)",
    "divided": "in divided, net.py:18: return x * (1 / 0)",
    "by_numpy": "in by_numpy, net.py:21: return np.linalg.svd(x)",
    "by_library": "in by_library, net.py:24: return json.dumps(x)",
    "branching": "in branching, net.py:27: return x if x.shape[0] == 4 else -x",
}


@pytest.mark.parametrize("name", LINES)
def test_the_short_error_names_the_line_of_the_users_code(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "net.py").write_text(NET)
    assert in_process(["export", f"net.py:{name}", "-i", "x:N,L,4", "-o", "a.onnx"], monkeypatch, tmp_path) == 1
    message, where = capsys.readouterr().err.splitlines()
    assert message.startswith("lucid: ") and "--debug" not in message
    assert where == f"  {LINES[name]}"


def test_a_file_that_does_not_import_names_its_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "net.py").write_text("x = 3\nx.size\n")
    assert in_process(["export", "net.py:Net", "-o", "a.onnx"], monkeypatch, tmp_path) == 1
    assert capsys.readouterr().err.splitlines()[1:] == ["  in <module>, net.py:2: x.size"]


def wrong(x):
    return ops.concat([x, x[0]], axis=0)


def notes_of(error: BaseException) -> list[str]:
    return vars(error).get("__notes__", [])


def test_in_python_it_is_a_note():
    with pytest.raises(ValueError, match="concat") as error:
        lucid.trace(wrong, lucid.spec("N", 3))
    (note,) = notes_of(error.value)
    assert note.startswith("in wrong, ") and note.endswith(": return ops.concat([x, x[0]], axis=0)")
    assert f"{Path(__file__).name}:" in note


def test_errors_of_the_eager_run_have_it_too_and_once():
    def only_traced(x):
        return x if x.is_traced else wrong(x)

    with pytest.raises(ValueError, match="concat") as error:
        assert_parity(only_traced, lucid.spec("N", 3))
    assert [note.partition(",")[0] for note in notes_of(error.value)] == ["in wrong"]


def test_an_error_that_is_not_in_a_users_code_has_none():
    with pytest.raises(ValueError, match="linear") as error:
        lucid.trace(nn.Linear(2, 2), lucid.spec("N", 3))
    assert notes_of(error.value) == []


# onnxruntime's messages -------------------------------------------------------------------------------------------


def test_a_failing_run_is_told_once_and_without_codes(tmp_path, monkeypatch, capfd):
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])]
    ends.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]))
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [2, 3])
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="/net/reshape")
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [shape])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "m.onnx")
    np.savez(tmp_path / "five.npz", x=np.ones(5, np.float32))
    assert in_process(["run", "m.onnx", "five.npz"], monkeypatch, tmp_path) == 1
    expected = (
        "lucid: onnxruntime: Reshape node '/net/reshape': The input tensor cannot be reshaped to the requested shape"
    )
    printed = capfd.readouterr().err
    assert printed.startswith(expected)
    assert printed.count("cannot be reshaped") == 1, "onnxruntime does not print it as well"


def test_other_messages_stay_as_they_are():
    assert plain("Non-zero status code: /a.cc:3 was false. ") == "Non-zero status code: /a.cc:3 was false. "
    assert plain("[ONNXRuntimeError] : 1 : FAIL : Load model failed") == "onnxruntime: Load model failed"
