"""Untrusted names: none acts on the terminal, is read as markup, or loses a result."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import lucid
from lucid import nn
from lucid.core.words import html
from lucid.core.words.safe_text import cut, encodable, encoded, listed, visible, visible_lines
from lucid.files.npz import check_names, write_npz
from lucid.files.utf8_paths import PathError
from lucid.inspection import inspect_model
from lucid.inspection.report.page import render
from tests.console import LUCID, in_process
from tests.models import goldens

# A window title, colours, a C1 control, DEL, a direction override, a line that looks like ours, rich's markup.
EVIL = "\x1b]0;owned\x07\x1b[31m\x9b2J\x7f\u202eoof\u2066\r\nlucid: all is well [/b][bold]"
HARMFUL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> None:
    match = HARMFUL.search(text)
    assert match is None, (match, text)
    assert not re.search(r"^lucid: all is well", text, re.MULTILINE)


def evil_model() -> onnx.ModelProto:
    """A file with escapes in every name."""
    ends = [
        helper.make_tensor_value_info("x" + EVIL, TensorProto.FLOAT, ["N" + EVIL]),
        helper.make_tensor_value_info("y" + EVIL, TensorProto.FLOAT, ["N" + EVIL]),
    ]
    node = helper.make_node("Identity", ["x" + EVIL], ["y" + EVIL], name=f"/a{EVIL}/b{EVIL}/Identity")
    graph = helper.make_graph([node], "g" + EVIL, ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own" + EVIL, 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets, producer_name="maker" + EVIL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "evil.onnx").write_bytes(evil_model().SerializeToString())
    (tmp_path / f"{EVIL.replace('/', '')}.onnx").write_bytes(evil_model().SerializeToString())
    broken = evil_model()
    broken.graph.initializer.add(name="w" + EVIL, data_type=TensorProto.FLOAT, dims=[3], raw_data=b"no")
    (tmp_path / "broken.onnx").write_bytes(broken.SerializeToString())
    with (tmp_path / "in.npz").open("wb") as file:
        np.savez(file, **{"x" + EVIL: np.ones(3, np.float32)})
    np.savez(tmp_path / "other.npz", x=np.ones(3, np.float32))
    return tmp_path


COMMANDS = {
    "inspect": (["inspect", "evil.onnx"], 0),
    "inspect a file of that name": (["inspect", EVIL.replace("/", "") + ".onnx"], 0),
    "inspect with a size": (["inspect", "evil.onnx", "--size", "L=3"], 2),
    "inspect a broken one": (["inspect", "broken.onnx"], 2),
    "no such file": (["inspect", EVIL], 2),
    "traceback": (["inspect", "broken.onnx", "--debug"], 2),
    "run": (["run", "evil.onnx", "in.npz"], 0),
    "run on other inputs": (["run", "evil.onnx", "other.npz"], 2),
    "run to a file": (["run", "evil.onnx", "in.npz", "-o", "out.npz"], 2),
    "bench": (["bench", "evil.onnx", "--seconds", "0.01", "--no-peak"], 0),
    "bench of a broken one": (["bench", "broken.onnx"], 2),
    "verify": (["verify", "nn.ReLU", "evil.onnx", "-i", "x:float32:N"], 1),
    "no such option": (["inspect", "--" + EVIL], 2),
    "no such command": ([EVIL], 2),
    "no such source": (["export", EVIL, "-o", "a.onnx"], 2),
    "no folder": (["export", "nn.ReLU", "-i", "x:N", "-o", EVIL + "/a.onnx"], 2),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_no_name_acts_on_the_terminal(name, as_json, folder, monkeypatch, capsys):
    arguments, expected = COMMANDS[name]
    code = in_process([*arguments, *["--json"] * as_json], monkeypatch, folder)
    shown = capsys.readouterr()
    harmless(shown.out)
    harmless(shown.err)
    assert code == expected, shown
    assert shown.out.strip() or shown.err.strip()
    if as_json:
        json.loads(shown.out)


SOURCE = r"""
import warnings
from lucid import nn

class Net(nn.Module):
    def __init__(self):
        self.inside = {"a[/b]": nn.MultiHeadAttention(8, 2), "evil \x1b[31m\u202e": nn.Linear(8, 8)}
    def forward(self, x):
        warnings.warn("careful \x1b[2J\r\nlucid: all is well")
        for layer in self.inside.values():
            x = layer(x)
        return {"out[bold]": x}

def failing(x):
    raise ValueError("\x1b[31mbad\x9b\nlucid: all is well\nand more")
"""


def test_brackets_are_no_markup(tmp_path, monkeypatch, capsys):
    """A file called m[v1].onnx was reported as m.onnx, and a module called a[/b] raised."""
    (tmp_path / "net.py").write_text(SOURCE)
    command = [LUCID, "export", "net.py:Net", "-i", "x:N,L,8", "-o", "m[v1].onnx", "--verbose"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    harmless(done.stdout + done.stderr)
    for expected in ("written     m[v1].onnx, ", "a[/b]", "out[bold]"):
        assert expected in done.stdout
    assert r"careful \x1b[2J\r" in done.stderr
    assert (tmp_path / "m[v1].onnx").exists()
    assert in_process(["inspect", "m[v1].onnx"], monkeypatch, tmp_path) == 0
    shown = capsys.readouterr()
    harmless(shown.out)
    assert "m[v1].onnx" in shown.out and "a[/b]" in shown.out and r"evil \x1b[31m\u202e" in shown.out
    assert in_process(["export", "net.py:failing", "-i", "x:N", "-o", "a.onnx"], monkeypatch, tmp_path) == 1
    shown = capsys.readouterr().err
    harmless(shown)
    assert shown.startswith("lucid: \\x1b[31mbad\\x9b\n  lucid: all is well\n  in failing, net.py:15: raise ")


def test_pages_and_notebooks_show_escapes_too(folder, monkeypatch, capsys):
    assert in_process(["inspect", "evil.onnx", "--graph", "page.html"], monkeypatch, folder) == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    graph = json.loads(data[1])["graph"]
    harmless("".join(graph["inputs"][0]["name"] + graph["nodes"][0]["module"] + graph["nodes"][0]["form"]))
    assert graph["nodes"][0]["inputs"][0]["from"] == graph["inputs"][0]["id"], "edges lead where they did"
    title = re.search("<title>(.*?)</title>", render({"title": EVIL + "</title>"}), re.DOTALL)
    assert title is not None
    harmless(title[1].replace("\n", ""))
    one_line = EVIL.replace("\n", "")
    harmless(html.table([one_line], [[one_line]]) + html.paragraph(one_line) + html.folded(one_line, ""))


@given(st.text())
def test_what_is_shown_is_printable_and_printable_text_is_as_it_was(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(text) == text or not text.isprintable()
    assert visible_lines(text).count("\n") == text.count("\n")
    visible(text).encode()  # half a surrogate pair, as from a file's name that is no UTF-8, cannot be printed


@given(st.text(st.characters(exclude_categories=())))
def test_every_text_can_be_sent_and_valid_text_is_sent_as_it_is(text: str) -> None:
    assert encoded(text).decode() == encodable(text)
    assert not any("\ud800" <= each <= "\udfff" for each in encodable(text))
    assert encodable(text) == text or any("\ud800" <= each <= "\udfff" for each in text)


class Half(nn.Module):
    """A module whose layer is named by half of a surrogate pair."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"\ud800": nn.Linear(3, 3)})

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        """The layer's."""
        return self.layers["\ud800"](x)


def test_long_lists_and_texts_say_that_they_are_cut() -> None:
    assert listed(()) == "" and listed("ab", 2) == "a, b"
    assert listed("abc", 2) == "a, b, and 1 more" and listed("abc", 1, "; ") == "a; and 2 more"
    assert cut("abc", 3) == "abc" and cut("abcd", 3) == "abc..."


def test_names_of_files_say_what_is_no_text(tmp_path):
    model = lucid.export.to_onnx(Half(), ("N", 3), path=tmp_path / "m.onnx", external_data=True)
    assert any("layers.\\ud800.weight" in tensor.name for tensor in model.graph.initializer)
    lucid.runtime.Session(tmp_path / "m.onnx")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_files_named_by_bytes_that_are_no_text(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.onnx")
    lucid.export.to_onnx(nn.ReLU(), ("N", 3), path=path)
    with pytest.raises(PathError, match=r"udcff.onnx: the path is not in UTF-8, .*; rename the file"):
        lucid.runtime.Session(path)
    with pytest.raises(PathError, match=r"udcff.onnx\.\w+\.data: the path is not in UTF-8"):
        lucid.export.to_onnx(nn.Linear(64, 32), ("N", 64), path=path, external_data=True)
    assert len(os.listdir(tmp_path)) == 1
    for words in (["inspect", path], ["inspect", "--json", path], ["bench", path]):
        done = subprocess.run([LUCID, *words], capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
        assert b"Traceback" not in done.stderr and b"UnicodeEncodeError" not in done.stderr + done.stdout
        assert b"udcff.onnx" in done.stderr + done.stdout
    assert b"udcff.onnx: the path is not in UTF-8" in done.stderr  # of `bench`


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one encoding of paths")
def test_paths_are_opened_where_the_locale_has_no_letters_but_those_of_ascii(tmp_path):
    """Python reads the bytes of é as halves of surrogate pairs there; onnxruntime reads paths in UTF-8 everywhere."""
    (tmp_path / "é").mkdir()
    lucid.export.to_onnx(nn.ReLU(), ("N", 3), path=tmp_path / "é" / "relu.onnx")
    code = (
        "import lucid, os, sys; from lucid.runtime.changed_models import copied; path = sys.argv[1]\n"
        "assert sys.getfilesystemencoding() == 'ascii' and not path.isprintable()\n"
        "lucid.runtime.Session(path)\n"
        "copy, config = copied(path); lucid.runtime.Session(copy, config=config)\n"
        "lucid.export.to_onnx(lucid.nn.Linear(64, 32), ('N', 64), path='\\udcc3\\udca9.onnx', external_data=True)\n"
        "lucid.runtime.Session('\\udcc3\\udca9.onnx')"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", code, tmp_path / "é" / "relu.onnx"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ascii_only}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lucid.runtime.Session(tmp_path / "é.onnx")
    inspection = inspect_model(tmp_path / "é.onnx")
    assert [Path(name).name[:6] for name, _ in inspection.files] == ["é.onnx", "é.onnx"]


# Results that are lost --------------------------------------------------------------------------------------------


def outputs_model(names: list[str]) -> bytes:
    """A model whose outputs are x, x + 1, x + 2, ..."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names]
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    before = ["x", *names]
    nodes = [helper.make_node("Add", [before[i], "one"], [name]) for i, name in enumerate(names)]
    graph = helper.make_graph(nodes, "g", [x], ends, [one])
    data: bytes = helper.make_model(
        graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]
    ).SerializeToString()
    return data


def test_every_output_is_in_the_file_under_its_own_name(tmp_path, monkeypatch, capsys):
    names = ["allow_pickle", "file", "args", "kwds", "self", "arr_0", "x.npy", "encoder/out", "with space", "größe"]
    (tmp_path / "m.onnx").write_bytes(outputs_model(names))
    np.savez(tmp_path / "in.npz", x=np.array([0.5, -1], np.float32))
    assert in_process(["run", "m.onnx", "in.npz", "-o", "out.npz"], monkeypatch, tmp_path) == 0
    with np.load(tmp_path / "out.npz") as archive:
        assert sorted(archive.files) == sorted(names)
        for number, name in enumerate(names, 1):
            np.testing.assert_array_equal(archive[name], np.array([0.5, -1], np.float32) + number)


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:evil", "a\0b", "a\nb", "."])
def test_a_name_that_no_file_can_hold_is_refused_and_nothing_written(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "m.onnx").write_bytes(outputs_model(["good", name]))
    np.savez(tmp_path / "in.npz", x=np.ones(2, np.float32))
    (tmp_path / "out.npz").write_bytes(b"earlier")
    assert in_process(["run", "m.onnx", "in.npz", "-o", "out.npz"], monkeypatch, tmp_path) == 2
    assert f"npz file cannot hold {name!r}".replace("\\", "") in capsys.readouterr().err.replace("\\", "")
    assert (tmp_path / "out.npz").read_bytes() == b"earlier"


def test_two_names_that_numpy_would_take_for_one_are_refused():
    with pytest.raises(ValueError, match="'x' and 'x.npy' would be|'x': the name and 'x.npy' would be the same member"):
        check_names(["x", "x.npy"])


@given(st.dictionaries(st.text(max_size=8), st.sampled_from(["f4", "i8", "?", "f2"]), max_size=4))
def test_what_is_written_numpy_reads_back(kinds: dict[str, str]) -> None:
    arrays = {name: np.arange(6).reshape(2, 3).astype(kind).T for name, kind in kinds.items()}
    file = io.BytesIO()
    try:
        write_npz(file, arrays)
    except ValueError:
        assert file.getvalue() == b""
        return
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        assert sorted(archive.files) == sorted(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(archive[name], array, strict=True)


def test_types_that_files_lack_come_as_ones_that_hold_them() -> None:
    file = io.BytesIO()
    numbers = np.array([1.5, -np.inf, np.nan, 3e38], lucid.bfloat16.numpy)
    write_npz(file, {"half": numbers, "text": np.array(["a", "größe"], object)})
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["half"], numbers.astype(np.float32), strict=True)
        assert archive["text"].tolist() == ["a", "größe"]


def test_json_holds_what_is_no_number(tmp_path, monkeypatch, capsys):
    (tmp_path / "m.onnx").write_bytes(outputs_model(["y"]))
    np.savez(tmp_path / "in.npz", x=np.array([np.nan, -np.inf], np.float32))
    assert in_process(["run", "m.onnx", "in.npz", "--json"], monkeypatch, tmp_path) == 0

    def refused(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    report = json.loads(capsys.readouterr().out, parse_constant=refused)
    assert report["values"] == {"y": ["NaN", "-Infinity"]}
    np.testing.assert_array_equal(np.array(report["values"]["y"], float), [np.nan, -np.inf])


# The standard output ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to_file", [False, True], ids=["a pipe", "a file"])
def test_what_goes_to_the_standard_output_is_the_file_alone(to_file, tmp_path, monkeypatch, capfdbinary):
    """Messages then go to standard error, and /dev/stdout is not replaced. The standard output of tests is a file."""
    (tmp_path / "m.onnx").write_bytes(outputs_model(["y"]))
    np.savez(tmp_path / "in.npz", x=np.ones(2, np.float32))
    commands = {
        "npz": ["run", "m.onnx", "in.npz", "-o", "/dev/stdout"],
        "onnx": ["export", "nn.ReLU", "-i", "x:N", "-o", "/dev/stdout"],
    }
    for name, command in commands.items():
        if to_file:
            assert stat.S_ISREG(os.fstat(1).st_mode)
            assert in_process(command, monkeypatch, tmp_path) == 0
            got, messages = capfdbinary.readouterr()
        else:
            done = subprocess.run([LUCID, *command], cwd=tmp_path, capture_output=True)
            assert done.returncode == 0, done.stderr
            got, messages = done.stdout, done.stderr
        assert b"written " in messages
        if name == "npz":
            with np.load(io.BytesIO(got)) as archive:
                np.testing.assert_array_equal(archive["y"], [2, 2])
        else:
            onnx.checker.check_model(onnx.load_from_string(got))
    assert Path("/dev/stdout").is_symlink()


def test_a_dash_is_the_standard_output(tmp_path, monkeypatch):
    done = subprocess.run([LUCID, "export", "nn.ReLU", "-i", "x:N", "-o", "-"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    onnx.checker.check_model(onnx.load_from_string(done.stdout))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command", ["map folder rows.csv", "quantize nn.Linear", f"export {goldens.folder('bert/base')} --for onnxruntime"]
)
def test_a_folder_is_not_written_to_a_dash(command, tmp_path, monkeypatch, capsys):
    assert in_process([*command.split(), "-o", "-"], monkeypatch, tmp_path) in (1, 2)
    assert "give the name of a folder" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_json_and_a_file_do_not_share_the_standard_output(monkeypatch, capfd):
    command = ["export", "nn.ReLU", "-i", "x:N", "-o", "/dev/stdout", "--json"]
    assert in_process(command, monkeypatch) == 2
    out, err = capfd.readouterr()
    assert "both go to the standard output" in err
    assert json.loads(out)["exit_code"] == 2
