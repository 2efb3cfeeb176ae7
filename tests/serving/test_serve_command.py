"""`lucid serve` in the terminal: what it says where it cannot serve."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.console import in_process
from tests.serving.servers import decoder

pytest.importorskip("lucid.serving", reason="needs the extra serve", exc_type=ModuleNotFoundError)


def test_a_port_that_is_taken_is_one_line_before_anything_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert in_process(["serve", tmp_path, "--port", port], monkeypatch) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"lucid: cannot listen at 127.0.0.1, port {port}: Address already in use; give another")
    assert said.err.count("\n") == 1


def test_a_host_that_is_no_address_of_this_machine_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(["serve", tmp_path, "--host", "192.0.2.1"], monkeypatch) == 1
    assert capsys.readouterr().err.startswith("lucid: cannot listen at 192.0.2.1, port 8000: ")


@pytest.mark.parametrize(
    ("cache", "slots", "noted"), [("growing", 4, True), ("growing", 1, False), ("fixed", 4, False)]
)
def test_a_cache_that_grows_is_noted_where_answers_could_be_computed_together(
    cache: str,
    slots: int,
    noted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for step in ("check_address", "serve"):
        monkeypatch.setattr(f"lucid.cli.commands.serve.{step}", lambda *_: None)
    folder = decoder(tmp_path, cache=cache)
    assert in_process(["serve", folder, "--slots", slots], monkeypatch) == 0
    assert ("answers share the time of one: the cache grows" in capsys.readouterr().out) is noted


@pytest.mark.parametrize("command", ["serve minilm.onnx", "map minilm.onnx rows.csv -o out"])
def test_a_file_is_no_folder_of_a_model(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "minilm.onnx").write_bytes(b"")
    (tmp_path / "rows.csv").write_text("text\na\n")
    assert in_process(command.split(), monkeypatch, tmp_path) == 1
    said = capsys.readouterr().err
    assert "'minilm.onnx' is a file, expected the folder of a model" in said
    assert "lucid export CHECKPOINT --for onnxruntime" in said
