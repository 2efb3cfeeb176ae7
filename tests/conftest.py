"""Settings of all tests: the same random numbers each time, hypothesis without deadlines or a database, and no work
done twice by the processes that the tests start."""

from __future__ import annotations

import faulthandler
import gc
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from typing import Any

# Every worker and every process that a test starts would compile all sources again where writing of bytecode is
# switched off. It is kept where Python looks for it, so that what pip compiled is not compiled again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell's background jobs ignore Ctrl-C, which tests send to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Each worker has a core, so BLAS threads would only wait for each other. Read when NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# No test asks the network for a model.
os.environ["HF_HUB_OFFLINE"] = "1"
if "LUCID_CACHE" not in os.environ:  # what commands export is kept for all workers, not for the user
    _CACHE = tempfile.TemporaryDirectory(prefix="lucid-cache-")
    os.environ["LUCID_CACHE"] = _CACHE.name

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

import lucid
from lucid.export.forms import FORMS
from lucid.gradients import RULES
from lucid.ops import OPS
from lucid.ops.op import REGISTERED
from lucid.runtime import Session
from tests.devices.device import require

# For the same reason threads of onnxruntime sleep while they wait, unless a test asks for spinning: a thread that spins
# for its next op keeps others from theirs.
Session.__init__.__kwdefaults__["spinning"] = False
# The tests write thousands of files, of which none need outlive the machine: this process does not wait for the disk.
os.fsync = lambda descriptor: None  # type: ignore[assignment]

settings.register_profile(
    "lucid",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("lucid")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays, so the garbage collector need not look at it while it grows."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """The thousands of tests stay until the end: the garbage collector need not look at them again and again. Nor at
    what a test has just made, most of which has no cycles: each look costs 3 % of the tests' time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker sends one report of a test that passed, not those of what comes before and after it: 0.4 of its 2 ms."""
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


RENEWED = pytest.StashKey[float]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    require(item)
    watch(item.config)


def watch(config: pytest.Config) -> None:
    """A test that hangs shows where after a quarter of an hour, and ends its worker with its name.

    The watch is renewed once a minute. pytest's own is of each test: to start and end its thread takes 0.4 ms, and
    waiting for it 8 ms where the cores have other work.
    """
    now = time.monotonic()
    if now - config.stash.get(RENEWED, -math.inf) > 60:
        faulthandler.dump_traceback_later(900, exit=True, file=config.stash[fault_handler_stderr_fd_key])
        config.stash[RENEWED] = now


def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest ends any watch at an error: the next test begins another."""
    node.config.stash[RENEWED] = -math.inf


def pytest_sessionfinish() -> None:
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def _by_itself() -> Iterator[None]:
    """A test draws the same numbers regardless of the tests that ran before it. It may define ops, forms and gradients;
    they are removed again, since other tests look at all of them."""
    lucid.manual_seed(0)
    tables: list[dict[str, Any]] = [OPS, REGISTERED, FORMS, RULES]
    before = list(map(list, tables))
    yield
    for table, names in zip(tables, before, strict=True):
        if list(table) != names:  # lists take less time than sets, and this is asked after each test
            for name in table.keys() - set(names):
                del table[name]
