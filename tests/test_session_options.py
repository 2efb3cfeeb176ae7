"""Options of a session: checked by name; denormal numbers as zero in every thread of a run, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.export import to_onnx
from lucid.runtime import Session, denormals

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("options") / "linear.onnx"
    to_onnx(nn.Linear(64, 64), ("N", 64), path=path, external_data=True)
    return path


# Names ----------------------------------------------------------------------------------------------------------------


def test_an_unknown_option_is_an_error_that_lists_the_valid_ones(linear: Path) -> None:
    message = (
        "option thread does not exist; choose from threads, spinning, .*, flush_denormals, huge_pages, config, profile"
    )
    with pytest.raises(TypeError, match=message):
        Session(linear, thread=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"session.use_env_alocators": "1"}, ValueError, "does not exist; choose one of session.use_env_allocators"),
        ({"spin": "1"}, ValueError, "'spin' does not exist; choose one of "),
        ({"session.set_denormal_as_zero": "1"}, ValueError, "expected the option flush_denormals="),
        ({"session.intra_op.allow_spinning": "0"}, ValueError, "expected the option spinning="),
        ({"session.use_env_allocators": 1}, TypeError, 'is 1, expected text, such as "1"'),
    ],
    ids=str,
)
def test_a_wrong_config_entry_is_an_error(linear: Path, config: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Session(linear, config=config)


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 1, "spinning": False},
        {"memory_arena": False, "memory_pattern": False},
        {"prepack": False},
        {"optimize": False},
        {"flush_denormals": True},
        {"huge_pages": True},
        {"config": {"session.use_device_allocator_for_initializers": "1"}},
    ],
    ids=str,
)
def test_options_change_no_result(linear: Path, options: dict[str, Any]) -> None:
    x = lucid.randn(3, 64)
    np.testing.assert_allclose(Session(linear, **options)(x).numpy(), Session(linear)(x).numpy(), rtol=1e-5, atol=1e-6)


def test_a_profile_is_written_where_it_is_asked_for(linear: Path, tmp_path: Path) -> None:
    session = Session(linear, profile=tmp_path / "times")
    session.run({"x": np.ones((1, 64), np.float32)})
    written = session.end_profile()
    assert written.parent == tmp_path and written.name.startswith("times")
    assert "_kernel_time" in written.read_text(encoding="utf-8")


def test_config_entries_reach_onnxruntime(linear: Path) -> None:
    with pytest.raises(Exception, match="fallback"):
        Session(linear, "cpu", config={"session.disable_cpu_ep_fallback": "1"})


# Denormal numbers -----------------------------------------------------------------------------------------------------

SETUP = """
import threading, warnings
import numpy as np
import lucid
from lucid.export import to_onnx
from lucid.runtime import Session, denormals

model = to_onnx(lambda x: x * 0.5, ("N",))
small = np.full(8_000_000, 1e-39, np.float32)  # enough for every thread to get a share

def zeros(session):
    output = session.run({"x": small})["output"]
    return int((output == 0).sum()) / output.size
"""


def run(script: str) -> list[str]:
    """The lines that a script prints in a new process: onnxruntime's setting depends on earlier sessions."""
    code = SETUP + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


needs_glibc = pytest.mark.skipif(not denormals.AVAILABLE, reason="needs glibc on x86-64")


@needs_glibc
def test_every_session_and_thread_flushes_and_numpy_never_does() -> None:
    script = """
    plain = Session(model, threads=2)
    flushing = Session(model, threads=2, flush_denormals=True)  # not the first one
    print(zeros(plain), zeros(flushing), zeros(plain), denormals.flushing())
    worker = threading.Thread(target=lambda: print(zeros(flushing), denormals.flushing()))
    worker.start()
    worker.join()
    """
    assert run(script) == ["0.0 1.0 0.0 False", "1.0 False"]


@needs_glibc
def test_the_first_session_leaves_numpy_alone_too() -> None:
    script = """
    flushing = Session(model, threads=2, flush_denormals=True)
    print(zeros(flushing), denormals.flushing(), zeros(Session(model, threads=2)), denormals.flushing())
    try:
        flushing.run({"x": small[:, None]})
    except ValueError:
        print(denormals.flushing())
    """
    assert run(script) == ["1.0 False 0.0 False", "False"]


def test_elsewhere_the_first_session_changes_its_thread_for_good() -> None:
    script = """
    denormals.AVAILABLE, denormals._LIBM = False, None
    print(zeros(Session(model, threads=2, flush_denormals=True)), denormals.flushing())
    """
    assert run(script) == ["1.0 True"]


def test_elsewhere_a_later_session_says_what_it_cannot_do() -> None:
    script = """
    denormals.AVAILABLE, denormals._LIBM = False, None
    plain = Session(model, threads=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Session(model, threads=2, flush_denormals=True)
    print([str(warning.message).partition(":")[2] for warning in caught], denormals.flushing())
    """
    (line,) = run(script)
    assert "only onnxruntime" in line
    assert "create this session first" in line
    assert line.endswith("False")
