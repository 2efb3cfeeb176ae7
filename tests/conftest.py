"""Settings of all tests: the same random numbers each time, hypothesis without deadlines or a database, and no work
done twice by the processes that the tests start."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

# Every worker and every process that a test starts would compile all sources again where writing of bytecode is
# switched off. Here it goes to a folder of its own, and the sources stay as they are.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode"))
sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]
# Each worker has a core, so BLAS threads would only wait for each other. Read when NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

import lucid
from lucid.export.forms import FORMS
from lucid.ops import OPS, REGISTERED

settings.register_profile(
    "lucid",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("lucid")


@cache
def without_cuda() -> str:
    """Why the tests that need a GPU cannot run; empty if they can."""
    try:
        lucid.runtime.Session(lucid.export.to_onnx(lucid.nn.Linear(1, 1), ("N", 1)), "cuda")
    except lucid.runtime.ProviderError as error:
        return str(error)
    return ""


def pytest_sessionfinish() -> None:
    """Forget the bytecode of files that tests wrote: their folders have other names the next time."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        temporary = Path(tempfile.gettempdir()).resolve()
        for folder in (Path(os.environ["PYTHONPYCACHEPREFIX"]) / temporary.relative_to("/")).glob("pytest-of-*"):
            shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_finish() -> None:
    """The thousands of tests stay until the end: the garbage collector need not look at them again and again."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and without_cuda():
        pytest.skip(without_cuda())


@pytest.fixture(autouse=True)
def _seed() -> None:
    """A test draws the same numbers regardless of the tests that ran before it."""
    lucid.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_new_ops() -> Iterator[None]:
    """A test may define ops and forms; they are removed again, since other tests look at all of them."""
    tables: list[dict[str, Any]] = [OPS, REGISTERED, FORMS]
    before = [set(table) for table in tables]
    yield
    for table, names in zip(tables, before, strict=True):
        for name in table.keys() - names:
            del table[name]
