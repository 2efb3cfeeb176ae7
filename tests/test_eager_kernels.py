"""Eager calls that onnxruntime computes: the same results, for the calls it is meant for, and only inside the block."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucid
from lucid import Tensor, nn, ops
from lucid.eager import calls, onnxruntime_engine, onnxruntime_kernels
from lucid.export import to_onnx
from lucid.ops.engine import engine
from lucid.runtime import Session
from lucid.testing import assert_parity

ROWS, WIDTH = 300, 128  # more numbers than calls.LEAST
X = Tensor(np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32))
WEIGHT = Tensor(np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32))


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of threads of each session that is made, none of which is there at first."""
    made: list[int] = []

    def loaded(name: str, model: bytes, threads: int) -> Any:
        made.append(threads)
        return onnxruntime_engine._loaded(name, model, threads)

    monkeypatch.setattr(onnxruntime_engine, "_session", lru_cache(maxsize=64)(loaded))
    return made


def test_the_results_are_numpys_but_for_rounding(sessions: list[int]) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH), nn.LayerNorm(WIDTH))
    expected = model(X).numpy()
    with onnxruntime_kernels():
        found = model(X).numpy()
    assert len(sessions) == 3  # both products are of one kind
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert model(X).numpy().tobytes() == expected.tobytes()  # NumPy again


def test_small_calls_and_other_types_stay_with_numpy(sessions: list[int]) -> None:
    with onnxruntime_kernels():
        ops.linear(X[:2], WEIGHT)
        ops.linear(X.astype("float64"), WEIGHT.astype("float64"))
        ops.softmax(X.astype("float16"))
        ops.softmax(X, axis=0)
        (X.astype("int64") + 1).numpy()
    assert sessions == []


def test_other_sizes_are_calls_of_the_same_model(sessions: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    exports, right = [], onnxruntime_engine.to_onnx
    monkeypatch.setattr(onnxruntime_engine, "to_onnx", lambda *a, **k: exports.append(1) or right(*a, **k))
    onnxruntime_engine._model.cache_clear()
    with onnxruntime_kernels():
        for rows in (257, 300):
            for x in (X[:rows], X[:rows].reshape(1, rows, WIDTH)):
                assert ops.linear(x, WEIGHT).shape == (*x.shape[:-1], WIDTH)
                assert ops.gelu(x).shape == x.shape
    assert len(sessions) == len(exports) == 2


def test_sums_of_many_numbers_are_broadcast(sessions: list[int]) -> None:
    x, y = Tensor(np.ones((2, 300, 1024), np.float32)), Tensor(np.arange(1024, dtype=np.float32))
    with onnxruntime_kernels():
        assert np.array_equal((x + y).numpy(), x.numpy() + y.numpy())
        assert np.array_equal((y - x[:, :256]).numpy(), y.numpy() - x.numpy()[:, :256])
        assert np.array_equal((x / 2.0).numpy(), x.numpy() / 2)
    assert len(sessions) == 3


def test_a_tensor_may_hold_a_numpy_number(sessions: list[int]) -> None:
    number, x = Tensor.from_array(np.float32(2)), Tensor(np.ones((600, 1024), np.float32))
    with onnxruntime_kernels():
        assert ((number * x).numpy() == 2).all()
        assert ((x * number).numpy() == 2).all()
    assert len(sessions) == 2


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = lucid.get_num_threads()
    lucid.set_num_threads(3)
    yield
    lucid.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_products_and_long_passes_have_all_threads_and_short_passes_one(sessions: list[int]) -> None:
    with onnxruntime_kernels():
        ops.linear(X, WEIGHT)
        ops.gelu(X)
        ops.gelu(Tensor(np.ones((300, 1024), np.float32)))
        lucid.set_num_threads(2)
        ops.linear(X, WEIGHT)
    assert sessions == [3, 1, 3, 2]


def test_operands_that_are_not_contiguous_are_taken_as_they_are() -> None:
    x, weight = X.T[:, :260].T, WEIGHT.T
    with onnxruntime_kernels():
        found = ops.linear(x, weight).numpy(), (x * X[0]).numpy(), ops.softmax(x).numpy()
    expected = ops.linear(x, weight).numpy(), (x * X[0]).numpy(), ops.softmax(x).numpy()
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_products_with_a_matrix_and_no_others(sessions: list[int]) -> None:
    x = X.reshape(2, 150, WIDTH)
    with onnxruntime_kernels():
        found = (x @ WEIGHT).numpy()
        stacked = (x @ Tensor(np.stack([WEIGHT.numpy()] * 2))).numpy()
    assert len(sessions) == 1
    np.testing.assert_allclose(found, x.numpy() @ WEIGHT.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(stacked, found, rtol=1e-4, atol=1e-5)


def test_a_result_may_be_changed_and_outlives_later_calls() -> None:
    with onnxruntime_kernels():
        first = ops.gelu(X).numpy()
        copy = first.copy()
        ops.gelu(X * 2.0)
        assert np.array_equal(first, copy)
        first += 1.0
        assert np.array_equal(ops.gelu(X).numpy(), copy)


def test_it_holds_in_the_thread_that_asked_for_it_until_the_end_of_the_block() -> None:
    found = []
    with pytest.raises(ValueError, match="inside"), onnxruntime_kernels():
        worker = threading.Thread(target=lambda: found.append(engine.get()))
        worker.start()
        worker.join()
        with onnxruntime_kernels():
            assert engine.get() is not None
        assert engine.get() is not None
        raise ValueError("inside")
    assert found == [None]
    assert engine.get() is None


def test_constants_of_a_graph_are_numpys_inside_too(sessions: list[int]) -> None:
    def model(x: Tensor) -> Tensor:
        return x @ ops.gelu(WEIGHT @ X.T[:, :WIDTH].T[:WIDTH])

    expected = to_onnx(model, ("N", WIDTH)).SerializeToString()
    with onnxruntime_kernels():
        assert to_onnx(model, ("N", WIDTH)).SerializeToString() == expected
    assert sessions == []


def test_a_graph_is_run_by_numpy_inside_too(sessions: list[int]) -> None:
    graph = lucid.trace(lambda x: ops.softplus(ops.linear(x, WEIGHT)).log_softmax(-1), ("N", WIDTH))
    with onnxruntime_kernels():
        graph.run([np.ones((5000, WIDTH), np.float32)])
    assert sessions == []


def test_parity_compares_with_numpy_inside_too(sessions: list[int]) -> None:
    with onnxruntime_kernels():
        assert_parity(nn.Linear(WIDTH, WIDTH), ("N", WIDTH), sizes=[{"N": ROWS}])
    assert sessions == []


def test_threads_may_share_it() -> None:
    expected, wrong = ops.linear(X, WEIGHT).numpy(), []

    def work() -> None:
        with onnxruntime_kernels():
            for _ in range(20):
                if not np.allclose(ops.linear(X, WEIGHT).numpy(), expected, rtol=1e-3, atol=1e-4):
                    wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.usefixtures("three_threads")
def test_a_forked_child_has_sessions_of_its_own() -> None:
    """Threads do not survive a fork: a session of the parent would wait for ever for its own."""
    with onnxruntime_kernels():
        expected = ops.linear(X, WEIGHT).numpy()
        child = os.fork()
        if not child:
            os._exit(0 if np.array_equal(ops.linear(X, WEIGHT).numpy(), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, -3e38], np.float32)


@pytest.mark.parametrize("op", ["gelu", "silu", "tanh", "sigmoid", "erf", "exp", "softmax", "layer_norm", "rms_norm"])
def test_nan_and_infinity_are_where_numpy_has_them(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LEAST", dict.fromkeys(calls.LEAST, 1))
    x = Tensor(np.stack([np.roll(np.concatenate([SPECIAL[i:], X.numpy()[0, :8]]), i)[:8] for i in range(9)]))
    expected = ops.REGISTERED[op](x).numpy()
    with onnxruntime_kernels():
        found = ops.REGISTERED[op](x).numpy()
    assert np.array_equal(np.isnan(found), np.isnan(expected)), (found, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@st.composite
def attentions(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    """Calls of attention in either layout, with any mask."""
    made = np.random.default_rng(draw(st.integers(0, 99)))
    n, kv_heads, group, d = (draw(st.integers(1, 3)) for _ in range(4))
    queries, keys = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    heads = kv_heads * group
    shapes = [(n, heads, queries, d), (n, kv_heads, keys, d), (n, kv_heads, keys, d + 1)]
    options: dict[str, Any] = {
        "is_causal": draw(st.booleans()),
        "softcap": draw(st.sampled_from([0.0, 2.0])),
        "window": draw(st.none() | st.integers(1, 9)),
        "window_after": draw(st.none() | st.integers(0, 9)),
    }
    if draw(st.booleans()):
        shapes = [(n, length, count * width) for n, count, length, width in shapes]
        options |= {"heads": heads, "kv_heads": kv_heads}
    operands: list[Any] = [made.standard_normal(shape).astype(np.float32) for shape in shapes]
    full = (n, heads, queries, keys)
    shape = tuple(size if draw(st.booleans()) else 1 for size in full)[draw(st.integers(0, 3)) :]
    seen = made.random(shape) < 0.7
    lowest = np.where(seen, made.standard_normal(shape), -np.inf).astype(np.float32)
    operands.append(draw(st.sampled_from([None, seen, lowest])))
    operands.append(draw(st.sampled_from([None, made.random((n, keys)) < 0.7])))
    return operands, options


@settings(max_examples=60, deadline=None, derandomize=True)
@given(call=attentions())
def test_attention_with_any_mask_and_option(call: tuple[list[Any], dict[str, Any]]) -> None:
    operands, options = call
    tensors = [None if x is None else Tensor(x) for x in operands]
    expected, runs, run = ops.attention(*tensors, **options).numpy(), [], Session.run_in_order
    with pytest.MonkeyPatch.context() as patch, onnxruntime_kernels():
        patch.setattr(calls, "LEAST", dict.fromkeys(calls.LEAST, 1))
        patch.setattr(Session, "run_in_order", lambda self, arrays: runs.append(1) or run(self, arrays))
        found = ops.attention(*tensors, **options).numpy()
    assert runs
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
