"""Long computations name their phases; a terminal sees each with its time, a pipe nothing."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO, StringIO, TextIOWrapper
from itertools import count
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

import lucid
from lucid import nn
from lucid.cli import progress
from lucid.cli.progress import _Phases, in_a_log
from lucid.core.words.progress import Advance, listening, phase
from lucid.export import to_onnx
from lucid.testing.precision.search import fewest_bits
from tests.console import LUCID
from tests.waiting import PATIENCE, until


class Recorder:
    """A listener that records the phases and what is done of each."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.done: dict[str, list[int]] = {}

    @contextmanager
    def __call__(self, name: str, total: int | None, unit: str) -> Iterator[Advance]:
        self.events.append(name)
        self.done[name] = []
        yield self.done[name].append
        self.events.append(f"end of {name}")


def test_a_listener_hears_of_phases_and_of_what_is_done(tmp_path):
    recorder = Recorder()
    with listening(recorder):
        to_onnx(nn.Linear(3, 5), path=tmp_path / "linear.onnx")
    expected = ["tracing", "lowering", "writing"]
    assert recorder.events == [line for name in expected for line in (name, f"end of {name}")]
    assert sum(recorder.done["writing"]) == 4 * (3 * 5 + 5), "the bytes of the weights"


@pytest.mark.parametrize(
    ("done", "shown"), [(1109, "1,109 rows/s"), (310.4, "310 rows/s"), (31.24, "31.2 rows/s"), (0.5, "0.5 rows/s")]
)
def test_a_speed_has_three_digits_or_is_a_whole_number(done: float, shown: str) -> None:
    assert progress.rate(2 * done, 2.0, "rows") == shown


def test_phases_may_be_inside_others_and_nobody_has_to_listen():
    with phase("alone", 3) as advance:
        advance(3)
    recorder = Recorder()
    with listening(recorder), phase("outer"), phase("inner"):
        pass
    assert recorder.events == ["outer", "inner", "end of inner", "end of outer"]
    lucid.trace(nn.Linear(2, 2))
    assert len(recorder.events) == 4, "the listener is told only inside the block"


def on_a_terminal(arguments: Sequence[str], cwd: Path) -> tuple[int, str]:
    """The exit code of a command, and what it prints in a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([LUCID, *arguments], cwd=cwd, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with open(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                piece = terminal.read(4096)
            except OSError:  # Linux reports the other end's closing so
                break
            if not piece:
                break
            shown += piece
    return process.wait(PATIENCE), shown.decode()


BIG = """
import os, signal
from lucid import nn, randn

class Big(nn.Module):
    def __init__(self, interrupted=False):
        self.weight = nn.Parameter(randn(4096, 1024))
        self.interrupted = interrupted
    def forward(self, x):
        if self.interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.kill(os.getpid(), signal.SIGINT)
        return x @ self.weight.T
"""


def test_a_terminal_sees_each_phase_with_its_time_and_the_total(tmp_path):
    (tmp_path / "big.py").write_text(BIG)
    code, shown = on_a_terminal("export big.py:Big -i x:N,1024 -o big.onnx".split(), tmp_path)
    assert code == 0, shown
    plain = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", shown)
    phases = re.findall(r"^\r?([a-z ]+?) +\d+\.\d\d s\r$", plain, re.MULTILINE)
    checks = ["comparing weights", "checking parity"]
    assert phases == ["starting", "building the model", "tracing", "lowering", "writing", *checks]
    assert re.search(r"written     big.onnx, 16.0 MiB, in \d+\.\d s\r\n$", plain)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h"), "the cursor is shown again"


def test_the_clock_goes_on_after_an_inner_total_is_reached(monkeypatch):
    listener, clock = _Phases(), count()
    listener._console = Console(file=StringIO(), force_terminal=True)
    monkeypatch.setattr(
        "lucid.cli.progress.Progress", partial(Progress, get_time=lambda: next(clock), auto_refresh=False)
    )
    with listening(listener), phase("outer"):
        with phase("inner", 2, "rows") as advance:
            advance(2)
        (task,) = listener._progress.tasks
        first = task.elapsed
        assert not task.finished and task.elapsed > first


def test_a_terminal_of_another_encoding_than_utf8_has_a_spinner_of_its_characters():
    written = BytesIO()
    listener = _Phases()
    file = TextIOWrapper(written, encoding="cp1252", errors="backslashreplace", write_through=True)
    listener._console = Console(file=file, force_terminal=True)
    with listening(listener), phase("tracing"):
        pass
    assert b" tracing" in written.getvalue() and b"\\u" not in written.getvalue()


def test_a_log_names_a_phase_that_takes_a_while(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_SOON", 0.0)
    seen: list[str] = []
    with in_a_log(), phase("exporting the step"):
        until(lambda: seen.append(capsys.readouterr().err) or "".join(seen) == "exporting the step ...\n")
    monkeypatch.setattr(progress, "_SOON", 3600.0)
    with in_a_log(), phase("writing"):
        pass
    assert capsys.readouterr().err == ""


def test_a_search_for_bits_shows_its_rounds():
    lucid.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(4)))
    calls = [{"x": lucid.randn(4, 32)} for _ in range(2)]
    recorder = Recorder()
    with listening(recorder):
        fewest_bits(model, lambda bits: lucid.quantize(model, bits), calls, 0.01)
    rounds = [name for name in recorder.done if name.startswith("round ")]
    assert len(rounds) >= 2 and rounds[1].startswith("round 2 (error 0.")
    assert all(recorder.done[name] == [1, 1] for name in rounds), "a text is done"
    assert recorder.done["each weight alone"] == [1] * 4


def test_ctrl_c_leaves_a_clean_terminal(tmp_path):
    (tmp_path / "big.py").write_text(BIG)
    arguments = "export big.py:Big -i x:N,1024 -o big.onnx --set interrupted=true".split()
    code, shown = on_a_terminal(arguments, tmp_path)
    assert code == 130
    assert shown.endswith("lucid: interrupted\r\n")
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h"), "the cursor is shown again"
    assert not re.search(r"tracing +\d+\.\d\d s", shown), "a phase that did not end has no time"
