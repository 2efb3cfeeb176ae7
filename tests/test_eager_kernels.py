"""Eager calls that onnxruntime computes: the same results, for the calls it is meant for, and only inside the block."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucid
from lucid import Tensor, nn, ops
from lucid.core.process.context import holding
from lucid.eager import calls, onnxruntime_engine, onnxruntime_kernels
from lucid.eager import sessions as eager_sessions
from lucid.export import to_onnx
from lucid.export.branches import as_branches, selection
from lucid.ops.engine import engine
from lucid.runtime import Session
from lucid.testing import assert_parity

ROWS, WIDTH = 300, 128  # more numbers than calls.LEAST
X = Tensor(np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32))
WEIGHT = Tensor(np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32))


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of threads of each session that is made, none of which is there at first; shared by two, whatever
    machine this is."""
    made, load = [], eager_sessions._loaded

    def loaded(model: Any, threads: int, spinning: bool = False) -> Session:
        made.append(threads)
        return load(model, threads, spinning)

    monkeypatch.setattr(eager_sessions, "_loaded", loaded)
    alone, pools = eager_sessions._caches()
    monkeypatch.setattr(eager_sessions, "_alone", alone)
    monkeypatch.setattr(eager_sessions, "_pools", pools)
    before = lucid.get_num_threads()
    lucid.set_num_threads(2)
    yield made
    lucid.set_num_threads(before)


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[onnx.ModelProto]:
    """The models that are made, none of which is known at first."""
    made, right = [], onnxruntime_engine.in_memory

    def exported(assembled: Any) -> Any:
        made.append(right(assembled))
        return made[-1]

    monkeypatch.setattr(onnxruntime_engine, "in_memory", exported)
    onnxruntime_engine._model.cache_clear()
    return made


def test_the_results_are_numpys_but_for_rounding(sessions: list[int]) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH), nn.LayerNorm(WIDTH))
    expected = model(X).numpy()
    with onnxruntime_kernels():
        found = model(X).numpy()
    assert len(sessions) == 4  # both products are of one kind, and the second shares its threads with the activation
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert model(X).numpy().tobytes() == expected.tobytes()  # NumPy again


def test_calls_with_an_empty_operand_stay_with_numpy(sessions: list[int]) -> None:
    query, no_keys = Tensor(np.ones((2, 4, 600, 32), np.float32)), Tensor(np.ones((2, 4, 0, 32), np.float32))
    with onnxruntime_kernels():
        assert not ops.attention(query, no_keys, no_keys).numpy().any()
        assert ops.linear(Tensor(np.ones((600, 0), np.float32)), Tensor(np.ones((600, 0), np.float32))).shape == (
            600,
            600,
        )
    assert sessions == []


def test_small_calls_and_other_types_stay_with_numpy(sessions: list[int]) -> None:
    with onnxruntime_kernels():
        ops.linear(X[:2], WEIGHT)
        ops.linear(X.astype("float64"), WEIGHT.astype("float64"))
        ops.softmax(X.astype("float16"))
        ops.softmax(X, axis=0)
        (X.astype("int64") + 1).numpy()
    assert sessions == []


def test_other_sizes_are_calls_of_the_same_model(sessions: list[int], exports: list[onnx.ModelProto]) -> None:
    with onnxruntime_kernels():
        for rows in (257, 300):
            for x in (X[:rows], X[:rows].reshape(1, rows, WIDTH)):
                assert ops.linear(x, WEIGHT).shape == (*x.shape[:-1], WIDTH)
                assert ops.softmax(x).shape == x.shape
    assert len(exports) == 2
    assert sessions == [2, 1, 2]  # products again are a branch


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


def test_products_and_long_passes_have_all_threads_and_short_passes_one(sessions: list[int]) -> None:
    lucid.set_num_threads(3)
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


IMAGES = Tensor(np.random.default_rng(2).standard_normal((2, 64, 24, 25)).astype(np.float32))
VECTOR = Tensor(np.random.default_rng(3).standard_normal(64).astype(np.float32))


PERMUTED: dict[str, tuple[Callable[[], Tensor], int]] = {
    "layer_norm": (lambda: ops.layer_norm(ops.permute(IMAGES, (0, 2, 3, 1)), VECTOR, VECTOR), 1),
    "softmax": (lambda: ops.softmax(ops.permute(IMAGES, (0, 2, 1, 3))), 1),
    "linear": (lambda: ops.linear(ops.permute(IMAGES, (2, 0, 3, 1)), WEIGHT[:, :64], WEIGHT[0]), 1),
    "matmul": (lambda: WEIGHT[:, :40] @ ops.permute(IMAGES.reshape(-1, 40), (1, 0)), 1),
    "sum": (lambda: IMAGES + ops.permute(ops.reshape(IMAGES, (2, 24, 25, 64)), (0, 3, 1, 2)), 2),
    "sum of two": (lambda: ops.permute(IMAGES, (0, 2, 3, 1)) * ops.permute(IMAGES, (0, 2, 3, 1)), 2),
    "a view with gaps": (lambda: ops.softmax(ops.permute(IMAGES, (0, 2, 3, 1))[:, :20]), 0),
}
"""A call, and how many of its operands are given without a copy."""


@pytest.mark.parametrize(("call", "uncopied"), PERMUTED.values(), ids=PERMUTED)
def test_permuted_operands_are_given_as_they_lie_in_memory(
    call: Callable[[], Tensor], uncopied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "LEAST", dict.fromkeys(calls.LEAST, 1))
    given: list[np.ndarray[Any, Any]] = []
    run = onnxruntime_engine.run

    def spied(model: bytes, inputs: dict[str, np.ndarray[Any, Any]], threads: int) -> np.ndarray[Any, Any]:
        given.extend(inputs.values())
        return run(model, inputs, threads)

    monkeypatch.setattr(onnxruntime_engine, "run", spied)
    with holding(engine, onnxruntime_engine._OnnxruntimeEngine()):
        found = call().numpy()
    np.testing.assert_allclose(found, call().numpy(), rtol=1e-5, atol=1e-4)
    assert sum(np.shares_memory(x, IMAGES.numpy()) and x.flags.c_contiguous for x in given) == uncopied


def test_a_bias_is_added_after_the_product_or_is_a_row_of_the_weight(
    exports: list[onnx.ModelProto], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    with holding(engine, onnxruntime_engine._OnnxruntimeEngine()):
        for rows, inner, columns in ((512, 64, 192), (511, 64, 192), (512, 64, 191), (512, 193, 579)):
            x, weight, bias = (rng.standard_normal(s, np.float32) for s in ((rows, inner), (columns, inner), columns))
            found = ops.linear(*map(Tensor, (x, weight, bias))).numpy()
            np.testing.assert_allclose(found, x @ weight.T + bias, rtol=0, atol=1e-4)
    assert len(exports) == 2
    for made in exports:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
        onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        kinds = [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]
        assert "FusedMatMul" in kinds
        assert ("Add" in kinds) is (made is exports[1])  # and no Gemm, which writes the bias first


@pytest.mark.parametrize("bias", [None, Tensor(np.linspace(-1, 1, WIDTH, dtype=np.float32))])
def test_few_rows_times_a_large_weight_are_weight_times_rows(
    bias: Any, monkeypatch: pytest.MonkeyPatch, exports: list[onnx.ModelProto]
) -> None:
    monkeypatch.setitem(calls.LEAST, "linear", 1)
    monkeypatch.setattr(calls, "LARGE_WEIGHT", WIDTH * WIDTH)
    with holding(engine, onnxruntime_engine._OnnxruntimeEngine()):
        for rows in (1, 16, 63, 64, 65, 300):
            found = ops.linear(X[:rows], WEIGHT, bias).numpy()
            expected = X[:rows].numpy() @ WEIGHT.numpy().T + (0 if bias is None else bias.numpy())
            np.testing.assert_allclose(found, expected, rtol=0, atol=5e-5)
    few, many = ([node.op_type for node in made.graph.node] for made in exports)
    assert few[:3] == ["Transpose", "MatMul", "Transpose"]  # of the rows, and of the product
    assert many[:2] == ["Transpose", "MatMul"]
    assert len(few) == len(many) + 1


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


# One session for all that share threads ------------------------------------------------------------------------------


def test_a_model_of_branches_computes_the_one_that_is_selected() -> None:
    """Branches differ in rank, in names and in what they read; they share inputs of one type, and names inside."""
    kinds: list[Any] = [
        (lambda x: ops.gelu(x), ["x"], [("N",)]),
        (lambda x, y: x @ y, ["a", "b"], [("N", 3), (3, 3)]),
        (lambda x, y: x @ y * 2.0, ["a", "b"], [("N", 3), (3, 3)]),
        (lambda x: x + 1.0, ["x"], [("N",)]),
        (lambda x: x * 3.0, ["number"], [()]),
        (lambda x: x * 4.0, ["fixed"], [(3, 2)]),
    ]
    for count in range(1, len(kinds) + 1):
        models = [to_onnx(f, *shapes, target="cpu", input_names=names) for f, names, shapes in kinds[:count]]
        session = Session(as_branches([model.SerializeToString() for model in models]), threads=1)
        for number, (f, names, shapes) in enumerate(kinds[:count]):
            given = [np.random.default_rng(number).random([3 if s == "N" else s for s in shape]) for shape in shapes]
            arrays = [np.asarray(x, np.float32) for x in given]
            (found,) = session.run_unchecked({**selection(number), **dict(zip(names, arrays, strict=True))})
            np.testing.assert_allclose(found, f(*map(Tensor, arrays)).numpy(), rtol=1e-5, atol=1e-6)


def test_calls_that_come_again_share_one_session(sessions: list[int]) -> None:
    def run() -> list[bytes]:
        with onnxruntime_kernels():
            x = ops.linear(X, WEIGHT)
            return [
                y.numpy().tobytes() for y in (x, x @ WEIGHT, ops.gelu(x.reshape(-1, 1)), ops.linear(x, WEIGHT, X[0]))
            ]

    first = run()
    assert len(sessions) == 4  # each its own
    assert run() == run() == first
    assert len(sessions) == 5


def test_models_beyond_the_most_that_are_kept_are_loaded_again(
    sessions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_sessions, "MOST", 2)
    kinds = (ops.gelu, ops.silu, ops.sigmoid)
    long = Tensor(np.linspace(-3, 3, calls.SHARED, dtype=np.float32))
    expected = [f(long).numpy() for f in kinds]
    with onnxruntime_kernels():
        for _ in range(3):
            for f, want in zip(kinds, expected, strict=True):
                np.testing.assert_allclose(f(long).numpy(), want, rtol=1e-4, atol=1e-6)
    assert len(sessions) == 9


def test_few_sessions_have_threads_of_their_own(sessions: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_sessions, "ALONE", 2)
    long = Tensor(np.linspace(-3, 3, calls.SHARED, dtype=np.float32))
    kinds = (ops.gelu, ops.silu, ops.sigmoid, ops.erf)
    expected = [f(long).numpy() for f in kinds]
    with onnxruntime_kernels():
        for f, want in zip(kinds, expected, strict=True):
            np.testing.assert_allclose(f(long).numpy(), want, rtol=1e-4, atol=1e-6)
        for f in kinds[:3]:
            f(long)
    assert len(sessions) == 4  # two alone; then three as branches; one alone again


IMAGE = Tensor(np.random.default_rng(2).standard_normal((1, 32, 40, 40)).astype(np.float32))
PLACES = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}


@pytest.mark.parametrize("group", [1, 32])
def test_a_weight_of_a_convolution_may_change(group: int) -> None:
    """It is a constant of a model: of another one as soon as any number of it is another."""
    weight = np.random.default_rng(3).standard_normal((32, 32 // group, 3, 3)).astype(np.float32)
    bias = np.zeros(32, np.float32)
    for change in (None, weight, bias, None):
        if change is not None:
            change[-1] += 1.0
        for tensors in ((IMAGE, Tensor(weight), Tensor(bias)), (IMAGE, Tensor(weight)), (IMAGE, Tensor(weight[::-1]))):
            expected = ops.conv(*tensors, group=group, **PLACES).numpy()
            with onnxruntime_kernels():
                found = ops.conv(*tensors, group=group, **PLACES).numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "most"), [("HELD_AT_ONCE", 2), ("HELD_IN_ALL", 32 * 9 * 2 + 1), ("MOST", 5)])
def test_weights_that_change_from_call_to_call_are_given_with_each(
    name: str, most: int, sessions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime_engine, name, most)
    monkeypatch.setattr(onnxruntime_engine, "_held", onnxruntime_engine._HeldOperands())
    weight = np.random.default_rng(3).standard_normal((32, 1, 3, 3)).astype(np.float32)
    for step in range(5):
        expected = ops.conv(IMAGE, Tensor(weight * step), group=32, **PLACES).numpy()
        with onnxruntime_kernels():
            found = ops.conv(IMAGE, Tensor(weight * step), group=32, **PLACES).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert len(sessions) == 4  # two that hold theirs, one for the others, and all of them again as branches


@pytest.mark.parametrize("shape", [(1,), (2, 1, 400), (400,)], ids=str)
@pytest.mark.parametrize("rows", [40, 600])
def test_a_bias_may_be_broadcast(rows: int, shape: tuple[int, ...]) -> None:
    x, weight, bias = lucid.randn(rows, 64), lucid.randn(400, 64), lucid.randn(*shape)
    wanted = x.numpy() @ weight.numpy().T + bias.numpy()
    np.testing.assert_allclose(ops.linear(x, weight, bias).numpy(), wanted, rtol=1e-4, atol=1e-4)
    with onnxruntime_kernels():
        np.testing.assert_allclose(ops.linear(x, weight, bias).numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_a_block_may_be_entered_again() -> None:
    block, seen = onnxruntime_kernels(), []
    for _ in range(2):
        with block:
            with block:
                seen.append(engine.get())
            seen.append(engine.get())
        assert engine.get() is None
    assert None not in seen


def test_a_decorated_function_may_run_in_several_threads() -> None:
    inside = threading.Barrier(2, timeout=10)

    @onnxruntime_kernels()
    def compute(found: list[Any]) -> None:
        inside.wait()
        found.append(engine.get())
        inside.wait()

    found: list[Any] = []
    threads = [threading.Thread(target=compute, args=(found,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert None not in found


def test_a_task_that_begins_inside_keeps_the_kernels() -> None:
    async def engine_later(leave: asyncio.Event) -> Any:
        await leave.wait()
        return engine.get()

    async def main() -> tuple[Any, Any, Any]:
        leave = asyncio.Event()
        with onnxruntime_kernels():
            task, elsewhere = asyncio.create_task(engine_later(leave)), await asyncio.to_thread(engine.get)
        leave.set()
        return elsewhere, await task, engine.get()

    elsewhere, later, after = asyncio.run(main())
    assert elsewhere is later is onnxruntime_engine._ENGINE
    assert after is None


def test_images_of_other_sizes_are_calls_of_the_same_model(sessions: list[int]) -> None:
    weight = Tensor(np.random.default_rng(3).standard_normal((32, 1, 3, 3)).astype(np.float32))
    with onnxruntime_kernels():
        for image in (IMAGE, IMAGE[:, :, :36], Tensor(np.ones((2, 32, 30, 24), np.float32))):
            ops.conv(image, weight, group=32, **PLACES)
    assert len(sessions) == 2


def test_weights_that_are_not_finite_are_computed_with_in_silence() -> None:
    x, weight = np.ones((1, 8, 80, 80), np.float32), np.ones((8, 8, 3, 3), np.float32)
    weight[3, 0, 0, 0], weight[5] = np.inf, np.nan
    inside = PLACES | {"pads": (0, 0, 0, 0)}
    with onnxruntime_kernels(), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ops.conv(Tensor(x), Tensor(weight), **inside).numpy()
    np.testing.assert_array_equal(found, ops.conv(Tensor(x), Tensor(weight), **inside).numpy())


def test_large_weights_of_convolutions_are_given_with_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = Tensor(np.random.default_rng(3).standard_normal((32, 32, 3, 3)).astype(np.float32))
    expected = ops.conv(IMAGE, weight, **PLACES).numpy()
    monkeypatch.setattr(calls, "HELD", 100)
    given, run = [], Session.run_unchecked
    monkeypatch.setattr(Session, "run_unchecked", lambda self, inputs: given.append(len(inputs)) or run(self, inputs))
    monkeypatch.setattr(ops.REGISTERED["conv"], "_known", {})
    with onnxruntime_kernels():
        found = ops.conv(IMAGE, weight, **PLACES).numpy()
    assert given == [2]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("groups", [2, 6])
def test_group_normalisation_of_images_of_any_size(groups: int, exports: list[onnx.ModelProto]) -> None:
    weight, bias = Tensor(np.arange(6, dtype=np.float32)), Tensor(np.ones(6, np.float32))
    for shape in ((1, 6, 2000), (3, 6, 900)):
        x = lucid.randn(*shape)
        expected = ops.group_norm(x, weight, bias, groups=groups).numpy()
        with holding(engine, onnxruntime_engine._OnnxruntimeEngine()):
            np.testing.assert_allclose(
                ops.group_norm(x, weight, bias, groups=groups).numpy(), expected, rtol=1e-5, atol=1e-5
            )
    assert len(exports) == 1
    assert "InstanceNormalization" in [node.op_type for node in exports[0].graph.node]


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
    expected, runs, run = ops.attention(*tensors, **options).numpy(), [], Session.run_unchecked
    with pytest.MonkeyPatch.context() as patch, onnxruntime_kernels():
        patch.setattr(calls, "LEAST", dict.fromkeys(calls.LEAST, 1))
        patch.setattr(Session, "run_unchecked", lambda self, inputs: runs.append(1) or run(self, inputs))
        found = ops.attention(*tensors, **options).numpy()
    assert runs
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
