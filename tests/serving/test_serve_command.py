"""`lucid serve` in the terminal: what it says where it cannot serve."""

from __future__ import annotations

import fcntl
import io
import json
import os
import socket
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucid.batch import Predictor
from lucid.generation.slots import BufferSlots
from tests.batch.folders import exported
from tests.chat.checkpoints import checkpoint
from tests.console import in_process
from tests.layout_checkpoints import whole
from tests.serving.servers import decoder

pytest.importorskip("lucid.serving", reason="needs the extra serve", exc_type=ModuleNotFoundError)
uvicorn = pytest.importorskip("uvicorn")
Starlette = pytest.importorskip("starlette.applications").Starlette
running = pytest.importorskip("lucid.serving.running")


def test_a_port_that_is_taken_is_one_line_before_anything_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert in_process(["serve", tmp_path, "--port", port], monkeypatch) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(
        f"lucid: cannot listen at 127.0.0.1, port {port}: Address already in use; give another"
    )
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b"])
def test_a_host_that_is_no_address_of_this_machine_is_one_line(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(["serve", tmp_path, "--host", host], monkeypatch) == 1
    assert capsys.readouterr().err.startswith(f"lucid: cannot listen at {host}, port 8000: ")


@pytest.mark.parametrize("key", ["", "a b", "schlüssel", "a\nb"])
def test_a_key_that_no_client_can_send_is_refused_and_not_shown(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", os.environ | {"LUCID_API_KEY": key})
    (tmp_path / "key.txt").write_text(f"{key}\n", encoding="utf-8")
    for options, where in (([], "LUCID_API_KEY"), (["--key-file", tmp_path / "key.txt"], "key.txt'")):
        if options or key:  # an empty variable is none
            assert in_process(["serve", tmp_path, *options], monkeypatch) == 2
            error = capsys.readouterr().err
            assert f"{where} holds no key, expected one line of printable ASCII without spaces" in error
            assert not key or key not in error


def served_by(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """The settings and the application of each start, which then ends."""
    starts: list[tuple] = []

    def serve(settings: object, app: object, sockets: object, announce: Callable[[], None]) -> None:
        starts.append((settings, app))
        announce()

    monkeypatch.setattr("lucid.cli.commands.serve.bound", lambda *_: nullcontext([]))
    monkeypatch.setattr("lucid.cli.commands.serve.serve", serve)
    return starts


@pytest.mark.parametrize("app", [Starlette(), None], ids=["one process", "workers"])
def test_an_address_is_announced_once_clients_can_connect(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that start a server connect as soon as they have read its address."""
    monkeypatch.setattr(os, "environ", dict(os.environ))  # which workers read
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_: None)
    monkeypatch.setattr(running._Workers, "run", lambda _: None)
    announced = []
    with running.bound("127.0.0.1", 0) as sockets:
        address = sockets[0].getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        running.serve(
            running.Settings("minilm"), app, sockets, lambda: announced.append(socket.create_connection(address))
        )
    (connection,) = announced
    connection.close()


def test_a_program_that_came_first_is_named_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address may be taken while the model is exported."""
    monkeypatch.setattr(os, "environ", dict(os.environ))  # which workers read
    with running.bound("127.0.0.1", 0) as sockets, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        other.bind(sockets[0].getsockname())
        other.listen()
        with pytest.raises(OSError, match="cannot listen at 127.0.0.1, port 8123: Address already in use; give"):
            running.serve(running.Settings("minilm", port=8123), None, sockets, lambda: None)


def test_the_process_that_starts_workers_keeps_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = weakref.WeakSet()
    monkeypatch.setattr(
        "lucid.cli.commands.serve.make", lambda settings: models.add(app := running.make(settings)) or app
    )
    kept = []
    monkeypatch.setattr("lucid.cli.commands.serve.bound", lambda *_: nullcontext([]))
    monkeypatch.setattr("lucid.cli.commands.serve.serve", lambda *_: kept.append(len(models)))
    assert in_process(["serve", folder := decoder(tmp_path), "--workers", "2"], monkeypatch) == 0
    assert in_process(["serve", folder], monkeypatch) == 0
    assert kept == [0, 1]


@pytest.mark.parametrize("command", ["serve minilm.onnx", "map minilm.onnx rows.csv -o out"])
def test_a_file_is_no_folder_of_a_model(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "minilm.onnx").write_bytes(b"")
    (tmp_path / "rows.csv").write_text("text\na\n")
    assert in_process(command.split(), monkeypatch, tmp_path) == 2
    errors = capsys.readouterr().err
    assert "'minilm.onnx' is a file, expected the folder of a model" in errors
    assert "lucid export CHECKPOINT --for onnxruntime" in errors


def test_a_checkpoint_is_exported_once_to_a_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Again only if something changes that decides what is exported."""
    starts, caches, source = served_by(monkeypatch), tmp_path / "caches", checkpoint(tmp_path / "smol")
    monkeypatch.setenv("LUCID_CACHE", str(caches))

    def started(*options: str) -> str:
        assert in_process(["serve", source, *options], monkeypatch) == 0
        return capsys.readouterr().err.split(",")[0].split(" in ")[0]

    first = started()
    (folder,) = caches.iterdir()
    assert first == f"exported    to {folder}" and folder.name.startswith("smol-")
    assert started("--port", "8001") == ""
    settings, app = starts[-1]
    assert (settings.folder, app.state.model.name) == (str(folder), "smol")
    assert isinstance(app.state.model.language._engine._memory, BufferSlots)  # the quickest cache, without being asked
    language, repeated = app.state.model.language, {"prompt_ids": [3, 4, 5] * 3, "max_new_tokens": 8}
    assert list(language.answer(**repeated, prompt_lookup_num_tokens=3)) == list(language.answer(**repeated))
    os.utime(source / "config.json", (1, 1))
    for change in (["--bits", "8"], ["--task", "text-generation"], []):
        assert started(*change).startswith("exported    to ")
    assert len(list(caches.iterdir())) == 4


def test_the_cache_has_room_for_the_exports_used_last_and_those_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    caches = tmp_path / "caches"
    monkeypatch.setenv("LUCID_CACHE", str(caches))
    for age, name in enumerate(["last-" + "3" * 16, "old-" + "2" * 16, "oldest-" + "1" * 16, "somebody's"]):
        (caches / name).mkdir(parents=True)
        (caches / name / "model.onnx").write_bytes(bytes(400_000))
        os.utime(caches / name, (10 - age, 10 - age))
    (caches / f".old-{'2' * 16}.removed" / "half").mkdir(parents=True)  # its process was killed
    holder = os.open(caches / ("oldest-" + "1" * 16), os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_SH)  # as another process that serves it
    command = ["generate", checkpoint(tmp_path / "smol"), "abc", "-n", "1"]
    monkeypatch.setenv("LUCID_CACHE_GB", "700kB")
    assert in_process(command, monkeypatch) == 0
    os.close(holder)
    left = sorted(path.name for path in caches.iterdir())
    assert [name.rpartition("-")[0] for name in left] == ["last", "oldest", "smol", ""] and left[-1] == "somebody's"
    monkeypatch.setenv("LUCID_CACHE_GB", "many")
    assert in_process(command, monkeypatch) == 2
    assert (
        "LUCID_CACHE_GB is 'many', expected a number of GB, or one with a unit, such as 4MiB" in capsys.readouterr().err
    )


def test_chat_generate_and_serve_export_once_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served_by(monkeypatch)
    caches, source = tmp_path / "caches", checkpoint(tmp_path / "smol")
    monkeypatch.setenv("LUCID_CACHE", str(caches))
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\n"))
    for command in (["generate", source, "abc", "-n", "1"], ["chat", source, "-n", "1"], ["serve", source]):
        assert in_process(command, monkeypatch) == 0
    assert len(list(caches.iterdir())) == 1


def test_starts_at_the_same_time_export_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = pytest.importorskip("lucid.cli.exported_source")
    monkeypatch.setenv("LUCID_CACHE", str(tmp_path / "caches"))
    options = pytest.importorskip("lucid.cli.app").parser()(
        ["serve", str(checkpoint(tmp_path / "smol"))], standalone_mode=False
    )
    written, write = [], exported.write_folder
    monkeypatch.setattr(exported, "write_folder", lambda *a, **k: written.append(a) or write(*a, **k))
    with ThreadPoolExecutor(4) as threads:
        folders = list(threads.map(lambda _: exported.exported_source(options, None, ["cpu"]), range(4)))
    assert len(set(folders)) == len(written) == 1


def test_map_over_a_checkpoint_exports_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUCID_CACHE", str(tmp_path / "caches"))
    whole(tmp_path / "sentences", "sentences/cls")
    (tmp_path / "rows.csv").write_text("text\nab\ncd\n")
    command = ["map", "sentences", "rows.csv", "-o", "out", "--json"]
    assert in_process(command, monkeypatch, tmp_path) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["rows"] == 2 and captured.err.startswith("exported    to ")


def test_the_start_as_one_line_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served_by(monkeypatch)
    assert in_process(["serve", decoder(tmp_path), "--port", "8123", "--name", "x", "--json"], monkeypatch) == 0
    (line,) = capsys.readouterr().out.splitlines()
    start = json.loads(line)
    assert (start["address"], start["model"], start["task"]) == ("http://127.0.0.1:8123", "x", "text-generation")
    assert "/v1/chat/completions" in start["routes"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bits", "4"], "--bits 4: {folder} is no checkpoint; the weights of an exported folder stay as is"),
        (["--task", "fill-mask"], "--task fill-mask: {folder} is for text-generation"),
        (["--method", "hqq"], "--method: for quantized weights; give --bits 4 too"),
        (["--ignore-option", "a"], "--ignore-option a: {folder} is no checkpoint, of which config.json would be read"),
    ],
)
def test_options_of_checkpoints_are_refused_for_exported_folders(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    served_by(monkeypatch)
    folder = decoder(tmp_path)
    assert in_process(["serve", folder, *options], monkeypatch) == 2
    assert message.format(folder=folder) in capsys.readouterr().err


def test_vectors_for_each_token_are_pooled_as_the_option_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    starts, folder = served_by(monkeypatch), exported(tmp_path, "vit/base")
    config = {"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 12}}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    assert in_process(["serve", folder], monkeypatch) == 2
    assert "give pooling 'cls' or 'mean' (--pooling), got None" in capsys.readouterr().err
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
    for pooling in ("cls", "mean"):
        assert in_process(["serve", folder, "--pooling", pooling], monkeypatch) == 0
        rows = starts[-1][1].state.model.rows
        (vector,) = rows.run([rows.ready([pixels]).data])["embedding"]
        (expected,) = Predictor(folder, input="image", pooling=pooling)({"image": [pixels]})["embedding"]
        np.testing.assert_array_equal(vector, expected)


@pytest.mark.parametrize(
    ("option", "message"), [("--pooling", "which pools nothing"), ("--prompt", "which has no prompts by name")]
)
def test_options_of_vectors_are_refused_for_decoders(
    option: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served_by(monkeypatch)
    assert in_process(["serve", decoder(tmp_path), option, "cls"], monkeypatch) == 2
    assert f"is exported for text-generation, {message}; leave out {option[2:]}" in capsys.readouterr().err
