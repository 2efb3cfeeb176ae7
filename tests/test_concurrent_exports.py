"""Several exports to one path at once: the last one wins, as a whole; a reader sees one of them, with its weights."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest

import lucid
from lucid.core.graph.graph import Graph
from lucid.export import to_onnx
from lucid.export.onnx_file import writer
from lucid.files.locks import exclusively
from lucid.runtime import Session
from tests.test_reliability import LINUX, ROOT, names_in
from tests.waiting import PATIENCE

WIDTH = 64


def graph_of(number: float) -> Graph:
    """A model that can be recognised by any of its weights, and so by its output for ones."""
    weight = np.full((WIDTH, WIDTH), number, np.float32)
    return lucid.trace(lambda x: x @ weight, ("N", WIDTH))


def shown(path: Path) -> float:
    """The model that the file holds, by its weights, all of which must be of one model."""
    (weight,) = onnx.load(path).graph.initializer
    values = np.unique(onnx.numpy_helper.to_array(weight))
    assert values.size == 1, "weights of two models"
    return float(values[0])


# Processes --------------------------------------------------------------------------------------------------------

# A line of input is a trial: the file's name, and the moment when all processes start.
WRITER = """
import sys, time
import numpy as np
import lucid
from lucid.export import to_onnx

folder, number, external = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "True"
weight = np.full((64, 64), number, np.float32)
graph = lucid.trace(lambda x: x @ weight, ("N", 64))
to_onnx(graph)
for line in sys.stdin:
    name, start = line.split()
    while time.monotonic() < float(start):
        pass
    to_onnx(graph, path=f"{folder}/{name}.onnx", external_data=external)
    print("done", flush=True)
"""


@contextmanager
def exporting(folder: Path, number: float, external: bool) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(number), str(external)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        assert process.stdin and process.stdout
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    assert process.stdout.readline() == "done\n", "the export failed"


@LINUX
@pytest.mark.parametrize(
    "numbers, external",
    [((1.0, 2.0), (True, True)), ((1.0, 2.0), (True, False)), ((3.0, 3.0), (True, True))],
    ids=["two side files", "one side file", "the same weights"],
)
def test_two_processes_exporting_to_one_path_leave_one_whole_model(
    numbers: tuple[float, float], external: tuple[bool, bool], tmp_path: Path
) -> None:
    """30 trials, each on a new path with an earlier model, which is read all the time."""
    trials = [f"m{trial}" for trial in range(30)]
    for name in trials:
        to_onnx(graph_of(0.0), path=tmp_path / f"{name}.onnx", external_data=True)
    with exporting(tmp_path, numbers[0], external[0]) as one, exporting(tmp_path, numbers[1], external[1]) as two:
        for name in trials:
            path = tmp_path / f"{name}.onnx"
            start = time.monotonic() + 0.005
            for process in (one, two):
                tell(process, f"{name} {start}")
            for _ in range(3):
                Session(path)  # it reads the old or the new one
            for process in (one, two):
                hear(process)
            assert shown(path) in numbers
            sides = [entry for entry in names_in(tmp_path) if entry.startswith(path.name + ".")]
            assert len(sides) == (b".data" in path.read_bytes()), "a side file that nobody refers to"
    assert not [name for name in names_in(tmp_path) if name.startswith(".")]


# One step at a time -----------------------------------------------------------------------------------------------


@LINUX
@pytest.mark.parametrize("second", [True, False], ids=["side file", "one file"])
def test_an_export_waits_while_another_stands_between_its_two_files(
    second: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has put its side file in place but not yet its model: the side file is not removed."""
    path = tmp_path / "model.onnx"
    between, go_on = threading.Event(), threading.Event()
    put_together = writer._with_initializers

    def paused(model: object, offsets: object, location: str) -> onnx.ModelProto:
        if threading.current_thread().name.startswith("first") and location.endswith(".data"):
            between.set()
            assert go_on.wait(PATIENCE)
        return put_together(model, offsets, location)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "_with_initializers", paused)
    with ThreadPoolExecutor(1, "first") as first, ThreadPoolExecutor(1, "second") as other:
        one = first.submit(to_onnx, graph_of(1.0), path=path, external_data=True)
        assert between.wait(PATIENCE)
        two = other.submit(to_onnx, graph_of(2.0), path=path, external_data=second)
        with pytest.raises(TimeoutError):
            two.result(0.3)
        assert not path.exists()
        go_on.set()
        one.result(PATIENCE)
        two.result(PATIENCE)
    assert shown(path) == 2.0
    assert len(names_in(tmp_path)) == (2 if second else 1)


@LINUX
def test_an_interrupted_export_keeps_the_side_file_that_an_earlier_model_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights, so the same name: the earlier model still needs it."""

    def interrupted(*_: object) -> onnx.ModelProto:
        raise KeyboardInterrupt

    path = tmp_path / "model.onnx"
    to_onnx(graph_of(1.0), path=path, external_data=True)
    before = names_in(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "_with_initializers", interrupted)
        with pytest.raises(KeyboardInterrupt):
            to_onnx(graph_of(1.0), path=path, external_data=True)
    assert names_in(tmp_path) == before
    assert shown(path) == 1.0


# The lock ---------------------------------------------------------------------------------------------------------


@LINUX
def test_one_at_a_time_and_nothing_is_left(tmp_path: Path) -> None:
    inside, most, total = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, total
        for _ in range(50):
            with exclusively(tmp_path / "model") as alone:
                assert alone
                inside += 1
                most = max(most, inside)
                total += 1
                inside -= 1

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (most, total) == (1, 400)
    assert names_in(tmp_path) == []


@LINUX
def test_what_a_killed_holder_left_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from lucid.files.locks import exclusively\n"
        "with exclusively(sys.argv[1]):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", code, tmp_path / "model"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    assert len(names_in(tmp_path)) == 1
    with exclusively(tmp_path / "model") as alone:
        assert alone
    assert names_in(tmp_path) == []


@LINUX
def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without flock cannot say whether another export still needs a side file."""
    path = tmp_path / "model.onnx"
    to_onnx(graph_of(1.0), path=path, external_data=True)

    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    to_onnx(graph_of(2.0), path=path, external_data=True)
    assert shown(path) == 2.0
    assert len(names_in(tmp_path)) == 3, "the model, its side file and the old one; no lock file"
