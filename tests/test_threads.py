"""Many threads, many times: concurrent exports, a shared session, and no growth of memory.

The minute-long versions, with their figures, are in tools/soak.py and docs/reliability.md.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from threadpoolctl import threadpool_info

import lucid
from lucid import Tensor, nn
from lucid.core.process import threads
from lucid.export import explain, to_onnx
from lucid.runtime import RunCancelled, Session
from lucid.testing import assert_parity
from tests.waiting import PATIENCE, until


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """The results of `work(0)` to `work(count - 1)`, started at the same moment in as many threads."""
    barrier = threading.Barrier(count)

    def begin(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def model(number: int) -> nn.Module:
    """One of 16 different models."""
    width = 8 * (1 + number % 4)
    if number % 2:
        return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 3))
    return nn.MultiHeadAttention(width, 1 + number % 4 * 2 % 3, add_bias_kv=number % 3 == 0)


def exported(module: nn.Module, number: int) -> bytes:
    kwargs = {"x": lucid.spec("N", 8 * (1 + number % 4))} if number % 2 else None
    target = ("any", "cpu", "cuda", "portable")[number // 4]
    return to_onnx(module, kwargs=kwargs, target=target).SerializeToString(deterministic=True)


def test_exports_in_sixteen_threads_give_the_bytes_they_give_alone() -> None:
    models = [model(number) for number in range(16)]
    alone = [exported(module, number) for number, module in enumerate(models)]
    assert len(set(alone)) == 16

    def work(number: int) -> list[bytes]:
        order = [(number + i) % 16 for i in range(4)]
        return [exported(models[i], i) for i in order]

    assert together(16, work) == [[alone[(number + i) % 16] for i in range(4)] for number in range(16)]


def test_one_module_is_exported_from_many_threads_at_once() -> None:
    shared = model(0)
    alone = to_onnx(shared).SerializeToString(deterministic=True)
    assert set(together(16, lambda _: to_onnx(shared).SerializeToString(deterministic=True))) == {alone}
    assert len(set(together(8, lambda _: str(explain(shared, target="cpu"))))) == 1


def test_one_module_runs_eagerly_in_many_threads_while_others_trace_it() -> None:
    shared = nn.MultiHeadAttention(64, 8)
    x = lucid.randn(2, 40, 64)
    alone = shared(x, is_causal=True).numpy()

    def work(number: int) -> bool:
        if number % 2:
            lucid.trace(shared)
            return True
        return all(np.allclose(shared(x, is_causal=True).numpy(), alone, atol=1e-6) for _ in range(5))

    assert all(together(8, work))


def test_a_training_thread_does_not_notice_a_tracing_one() -> None:
    """Tracing puts a model into evaluation mode only for its own thread."""
    dropout = nn.Dropout(0.5).train()
    x = lucid.ones(100)
    stop = threading.Event()

    def trace() -> None:
        while not stop.is_set():
            lucid.trace(dropout, (100,))

    tracer = threading.Thread(target=trace)
    tracer.start()
    try:
        assert all((dropout(x).numpy() == 0).any() for _ in range(200))
    finally:
        stop.set()
        tracer.join()


def test_random_numbers_of_threads_are_their_own_and_reproducible() -> None:
    def draw(_: int) -> float:
        return lucid.randn(1).item()

    lucid.manual_seed(3)
    first = together(8, draw)
    assert len(set(first)) == 8
    lucid.manual_seed(3)
    assert set(together(8, draw)) == set(first)


def test_a_session_that_many_threads_share_answers_each_rightly() -> None:
    shared = nn.MultiHeadAttention(32, 4)
    session = Session(to_onnx(shared, ("N", "L", 32)), threads=1)

    def work(number: int) -> int:
        generator = np.random.default_rng(number)
        wrong = 0
        for _ in range(12):
            x = generator.standard_normal((*generator.integers(1, 9, 2), 32)).astype(np.float32)
            wrong += not np.allclose(session(x).numpy(), shared(Tensor(x)).numpy(), atol=1e-5)
        return wrong

    assert together(16, work) == [0] * 16


ENDLESS = """<ir_version: 10, opset_import: ["": 20]>
endless (float[N] x, bool go) => (float[N] y) {
    times = Constant <value_int = 9223372036854775807> ()
    y = Loop (times, go, x) <body = step (int64 i, bool going, float[N] before) => (bool goes_on, float[N] after) {
        goes_on = Identity (going)
        after = Neg (before)
    }>
}"""


def test_runs_are_cancelled_and_the_session_serves_on() -> None:
    session = Session(onnx.parser.parse_model(ENDLESS), threads=1)
    x = np.ones(2, np.float32)
    session.cancel()  # without a run in progress it has no effect, now or later

    def run(_: int) -> str:
        with pytest.raises(RunCancelled) as caught:
            session.run({"x": x, "go": np.array(True)})
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run, number) for number in range(2)]
        until(lambda: len(session._runs) == 2)
        session.cancel()
        assert [each.result(PATIENCE) for each in runs] == ["the run was cancelled"] * 2
    assert session.run({"x": x, "go": np.array(False)})["y"].tolist() == [1, 1]
    assert not session._runs


def test_an_error_in_one_run_leaves_the_others_alone() -> None:
    session = Session(to_onnx(lambda x, i: lucid.ops.take(x, i), (5, 2), lucid.spec("N", dtype=lucid.int64)), threads=1)
    x = np.arange(10, dtype=np.float32).reshape(5, 2)

    def work(number: int) -> bool:
        for _ in range(20):
            if number % 2:
                with pytest.raises(Exception, match="Gather got index 99 of input i, expected 0 to 4"):
                    session.run({"x": x, "i": np.array([99])})
            else:
                np.testing.assert_array_equal(session(x, np.array([3])).numpy(), x[3:4])
        return True

    assert all(together(8, work))
    assert not session._runs


LATE = """
import atexit, sys, tempfile, threading
import numpy as np
import lucid
from lucid import nn, ops
from lucid.core.process import threads

threads.set_num_threads(3)
x = lucid.tensor(np.random.default_rng(0).standard_normal((1, 4, 400, 16)).astype("float32"))
model = nn.Linear(64, 64)
before = []

def compute():
    with tempfile.TemporaryDirectory() as folder:
        lucid.export.to_onnx(model, ("N", 64), path=f"{folder}/m.onnx", external_data=True)
    return ops.attention(x, x, x).numpy()

def late():
    if threading.current_thread() is not threading.main_thread():
        threading.main_thread().join()
    result = compute()
    print(result.shape, all(np.allclose(result, expected, atol=1e-6) for expected in before))
"""


@pytest.mark.parametrize("used", [True, False], ids=["used before", "first use"])
@pytest.mark.parametrize("begin", ["threading.Thread(target=late).start()", "atexit.register(late)"])
def test_what_runs_after_the_main_thread_has_ended_is_computed_in_its_own_thread(begin: str, used: bool) -> None:
    """Pools then take no work, and newer Pythons start no threads."""
    code = LATE + ("before.append(compute())\n" if used else "") + begin
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout, done.stderr) == ("(1, 4, 400, 16) True\n", "")


def test_where_the_system_gives_no_more_threads_the_calling_one_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before, done = threads.get_num_threads(), []
    threads.set_num_threads(3)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            threads.share(range(20), done.extend)
        threads.share(range(20, 40), done.extend)
    finally:
        threads.set_num_threads(before)
    assert sorted(done) == list(range(40))


def test_numpy_warns_of_nothing_in_any_thread() -> None:
    before, both = threads.get_num_threads(), threading.Barrier(2)

    def work(jobs: Iterator[int]) -> None:
        both.wait(PATIENCE)  # each thread has begun, so each computes
        np.log(np.array([-1.0, *jobs])) / np.zeros(1)

    threads.set_num_threads(2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            threads.share(range(2), work)
            with pytest.warns(RuntimeWarning, match="invalid value"):
                np.log(np.array([-1.0]))
    finally:
        threads.set_num_threads(before)


def growth(work: Callable[[], Any], times: int) -> int:
    """Bytes of memory that so many repetitions add, the least of three rounds: caches fill once, a leak goes on."""
    for _ in range(10):
        work()
    gc.collect()
    tracemalloc.start()
    try:
        sizes = [tracemalloc.get_traced_memory()[0]]
        for _ in range(3):
            for _ in range(times):
                work()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        return min(after - before for before, after in pairwise(sizes))
    finally:
        tracemalloc.stop()


def test_exports_leak_nothing() -> None:
    shared = nn.MultiHeadAttention(16, 2)
    assert growth(lambda: to_onnx(shared), 40) < 8_000


def test_failed_traces_leak_nothing() -> None:
    def failing() -> None:
        with pytest.raises(TypeError):
            lucid.trace(lambda x: x if x.sum() > 0 else -x, ("N",))

    assert growth(failing, 30) < 6_000


def test_sessions_and_comparisons_leak_nothing() -> None:
    assert growth(lambda: assert_parity(lambda x: x.exp(), ("N",)), 40) < 40_000


def test_few_numbers_are_multiplied_in_one_thread_and_the_setting_comes_back() -> None:
    def counts() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = counts()
    with threads.blas_threads_for(100):
        assert set(counts()) <= {1}
    with threads.blas_threads_for(1_000_000):
        assert counts() == before
    assert counts() == before
