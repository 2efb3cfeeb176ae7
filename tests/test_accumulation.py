"""Sums of many numbers: half precision is accumulated in float32 and rounded once, running sums of float32 in float64,
integers exactly in int64, as in torch. Eagerly, and exported for every target that runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucid
from lucid import Tensor, ops
from lucid.core.graph.types import DTYPES, Array, bfloat16, bool_, float16, float32, int8, int32, int64, uint8
from lucid.export import ExportError, Target, explain
from lucid.export.exporter import export_graph
from lucid.export.onnx_file.writer import in_memory
from lucid.runtime import Session
from tests.test_ops import UNITS, models_of

HALVES = [float16, bfloat16]
LENGTH = 5000
Function = Callable[[Tensor], Tensor]

REDUCTIONS: dict[str, tuple[Function, Callable[[Array], Array]]] = {
    "sum": (lambda x: x.sum(-1), lambda v: v.sum(-1)),
    "sum of columns": (lambda x: x.mT.sum(0), lambda v: v.sum(-1)),
    "mean": (lambda x: x.mean(-1), lambda v: v.mean(-1)),
    "variance": (lambda x: ops.variance(x, (-1,)), lambda v: v.var(-1, keepdims=True)),
    "cumsum": (lambda x: ops.cumsum(x, axis=-1), lambda v: v.cumsum(-1)),
    "prod": (lambda x: ops.prod(x[:, :6], axis=(-1,)), lambda v: v[:, :6].prod(-1)),
    "matmul": (lambda x: x @ x.mT, lambda v: v @ v.T),
    "linear": (lambda x: ops.linear(x, x), lambda v: v @ v.T),
    "conv": (
        lambda x: ops.conv(x[:, None], x[:, None], strides=(1,), pads=(0, 0), dilations=(1,)),
        lambda v: (v @ v.T)[..., None],
    ),
    "average_pool": (
        lambda x: ops.average_pool(x[:, None], kernel_shape=(LENGTH,), strides=(1,), pads=(0, 0)),
        lambda v: v.mean(-1)[:, None, None],
    ),
    "softmax": (lambda x: ops.softmax(x) * 1024, lambda v: _softmax(v) * 1024),
    "log_softmax": (lambda x: ops.log_softmax(x), lambda v: np.log(_softmax(v))),
    "layer_norm": (lambda x: ops.layer_norm(x), lambda v: _normal(v)),
    "rms_norm": (lambda x: ops.rms_norm(x), lambda v: v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-6)),
    "group_norm": (lambda x: ops.group_norm(x[:, None], groups=1), lambda v: _normal(v)[:, None]),
}


def _softmax(v: Array) -> Array:
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _normal(v: Array) -> Array:
    return (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5)


def _exported(function: Function, *shape: int | str, dtype: lucid.DType) -> dict[str, Session]:
    graph = lucid.trace(function, lucid.spec(*shape, dtype=dtype))
    return {target: Session(model, threads=1) for target, model in models_of(graph).items()}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_half_precision_is_rounded_once(name: str, dtype: lucid.DType) -> None:
    function, reference = REDUCTIONS[name]
    sessions = _exported(function, 2, LENGTH, dtype=dtype)
    generator = np.random.default_rng(1)
    for numbers in (np.ones((2, LENGTH)), generator.uniform(0, 2, (2, LENGTH)), generator.normal(1, 3, (2, LENGTH))):
        x = numbers.astype(dtype.numpy)
        want = reference(x.astype(np.float64))
        units = UNITS[str(dtype)] / 2
        for where, run in {"eager": lambda x: function(Tensor(x)), **sessions}.items():
            got = np.asarray(run(x).numpy(), np.float64)
            np.testing.assert_allclose(got, want, rtol=units, atol=units, err_msg=f"{name}, {where}")


def test_log_softmax_of_more_classes_than_float16_counts() -> None:
    log_probabilities = ops.log_softmax(Tensor(np.zeros(70000, np.float16))).numpy()
    assert abs(float(log_probabilities[0]) + np.log(70000)) < 0.01


def test_running_sums_of_float32_do_not_drift() -> None:
    tenths = np.full((1, 200_000), 0.1, np.float32)
    want = np.cumsum(tenths, axis=1, dtype=np.float64)
    sessions = _exported(lambda x: ops.cumsum(x, axis=1), 1, "L", dtype=float32)
    for got in (ops.cumsum(Tensor(tenths), axis=1), *(session(tenths) for session in sessions.values())):
        np.testing.assert_allclose(got.numpy(), want, rtol=2**-23)


COUNTED: dict[str, tuple[Function, Callable[[Array], Array]]] = {
    "sum": (lambda x: x.sum(), lambda v: v.sum(dtype=np.int64)),
    "sum along the last axis": (lambda x: x.sum(-1, keepdims=True), lambda v: v.sum(-1, np.int64, keepdims=True)),
    "sum along others": (lambda x: x.sum((0, 1)), lambda v: v.sum((0, 1), np.int64)),
    "cumsum": (lambda x: ops.cumsum(x, axis=1), lambda v: v.cumsum(1, np.int64)),
    "prod": (lambda x: ops.prod(x, axis=(1, -1)), lambda v: v.prod((1, 2), np.int64)),
}


@pytest.mark.parametrize("dtype", [bool_, int8, uint8, int32, int64], ids=str)
@pytest.mark.parametrize("name", COUNTED)
def test_integers_are_counted_in_int64(name: str, dtype: lucid.DType) -> None:
    function, reference = COUNTED[name]
    sessions = _exported(function, "N", 7, 5, dtype=dtype)
    for size in (3, 1, 40):
        low, high = (0, 2) if dtype == bool_ else (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
        integers = np.random.default_rng(size).integers(low, high, (size, 7, 5)).astype(dtype.numpy)
        want = np.asarray(reference(integers))
        for got in (function(Tensor(integers)), *(session(integers) for session in sessions.values())):
            assert got.dtype == int64
            assert np.array_equal(got.numpy(), want), name


def test_a_sum_that_float64_counts_stays_one_node() -> None:
    def nodes(model: Function, *shape: int | str, dtype: lucid.DType) -> list[str]:
        graph = lucid.trace(model, lucid.spec(*shape, dtype=dtype))
        return [node.op_type for node in in_memory(export_graph(graph, Target())[0]).graph.node]

    assert nodes(lambda x: x.sum(-1), "N", "L", dtype=bool_) == ["Cast", "ReduceSum"]
    assert nodes(lambda x: x.astype(int64).sum(-1), "N", "L", dtype=bool_) == ["Cast", "ReduceSum"]
    assert nodes(lambda x: x.sum(-1), "N", 100, dtype=int32) == ["Cast", "ReduceSum"]
    assert nodes(lambda x: x.sum(-1), "N", 100, dtype=int64) == ["MatMul", "Squeeze"]
    assert nodes(lambda x: x.sum(-1), "N", "L", dtype=float32) == ["ReduceSum"]


@pytest.mark.parametrize("dtype", [int8, uint8, int32, int64], ids=str)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_powers_of_integers_are_exact(dtype: lucid.DType, data: st.DataObject) -> None:
    info = np.iinfo(dtype.numpy)
    small = st.integers(max(-4, info.min), 5)
    base = np.array(data.draw(st.lists(st.one_of(small, st.integers(info.min, info.max)), min_size=4, max_size=4)))
    base = base.astype(dtype.numpy)
    exponent = np.array(data.draw(st.lists(st.integers(0, 127), min_size=4, max_size=4))).astype(dtype.numpy)
    fixed = data.draw(st.integers(0, 70))
    with np.errstate(all="ignore"):
        computed, scalar = base**exponent, base ** np.asarray(fixed, dtype.numpy)
    kind = lucid.spec(4, dtype=dtype)
    graph = lucid.trace(lambda x, y: (x**y, x**fixed, x ** Tensor(exponent)), kind, kind)
    both = Session(in_memory(export_graph(graph, Target())[0]), threads=1)
    for got, want in zip(both(base, exponent), (computed, scalar, computed), strict=True):
        assert np.array_equal(got.numpy(), want), (base, exponent, fixed)


def test_powers_beyond_every_number_keep_sign_and_zero() -> None:
    kind = lucid.spec(5, dtype=int64)
    session = Session(in_memory(export_graph(lucid.trace(lambda x, y: x**y, kind, kind), Target())[0]), threads=1)
    base, exponent = np.array([-1, -1, 1, 0, 2]), np.array([10**15, 10**15 + 1, 10**18, 999, 777])
    assert session(base, exponent).numpy().tolist() == [1, -1, 1, 0, 0]
    assert session(base, np.array([-3, -2, -1, -1, -1])).numpy().tolist() == [-1, 1, 1, 0, 0]  # as in torch


def test_what_has_no_exact_form_is_refused_with_a_way_out() -> None:
    with pytest.raises(ExportError, match=r"float64, which loses.*axes of fixed sizes.*astype"):
        export_graph(lucid.trace(lambda x: ops.prod(x, axis=(0,)), lucid.spec("N", dtype=int64)), Target())
    with pytest.raises(ExportError, match="negative power"):
        export_graph(lucid.trace(lambda x: x ** Tensor(np.array([-1])), lucid.spec(3, dtype=int64)), Target())
    assert "2^53" in str(explain(lambda x: x.sum(-1), lucid.spec("N", 12, dtype=int64)))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind != "float"], ids=str)
def test_dropout_takes_floats_alone(dtype: lucid.DType) -> None:
    with pytest.raises(TypeError, match="floating-point"):
        ops.dropout(Tensor(np.ones(3, dtype.numpy)), p=0.5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("target", ["any", "portable"])
def test_integers_are_divided_rightly_at_the_ends_of_their_type(dtype: str, target: str) -> None:
    ends = np.iinfo(dtype)
    x = np.array([ends.min, ends.min + 1, -1 if ends.min else 1, 0, 7, ends.max - 1, ends.max], dtype)
    y = np.array([2, 3, 7, ends.max] + ([-2, -3, ends.min] if ends.min else []), dtype)
    model = lucid.export.to_onnx(lambda x, y: x[:, None] // y, x, y, target=target)
    quotients = lucid.runtime.Session(model).run({"x": x, "y": y})["output"]
    np.testing.assert_array_equal(quotients, x[:, None] // y)
