"""NaN and infinities propagate as in NumPy and torch, eagerly and exported for every target that runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, ops
from lucid.core.graph.types import Array, bfloat16, float16, float32, float64
from lucid.export import Target, explain
from lucid.export.exporter import export_graph
from lucid.export.onnx_file.writer import in_memory
from lucid.ops.elementwise import log1p
from lucid.runtime import Session
from tests.cases import case
from tests.test_ops import UNITS, models_of

FLOATS = (float32, float64, float16, bfloat16)
WINDOW = {"kernel_shape": (3,), "strides": (2,), "pads": (1, 1), "dilations": (1,)}

# The reference is NumPy's result for float64 numbers, which all types hold exactly.
REDUCING: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "max": (lambda x: x.max(axis=-1), lambda v: v.max(-1)),
    "max of all": (lambda x: x.max(), lambda v: v.max()),
    "max of columns": (lambda x: x.max(axis=0, keepdims=True), lambda v: v.max(0, keepdims=True)),
    "max of two axes": (lambda x: x.reshape(-1, 3, 4).max(axis=(0, 2)), lambda v: v.reshape(-1, 3, 4).max((0, 2))),
    "min": (lambda x: x.min(axis=-1), lambda v: v.min(-1)),
    "min of columns": (lambda x: x.min(axis=0), lambda v: v.min(0)),
    "argmax": (lambda x: x.argmax(-1), lambda v: v.argmax(-1)),
    "argmax of columns": (lambda x: x.argmax(0, keepdims=True), lambda v: v.argmax(0, keepdims=True)),
    "sum": (lambda x: x.sum(-1), lambda v: v.sum(-1)),
    "mean": (lambda x: x.mean(-1), lambda v: v.mean(-1)),
    "prod": (lambda x: ops.prod(x, axis=(-1,)), lambda v: v.prod(-1)),
    "cumsum": (lambda x: ops.cumsum(x, axis=-1), lambda v: v.cumsum(-1)),
    "topk": (lambda x: ops.topk(x, 5).values, lambda v: _largest(v, 5)),
    "argmin": (lambda x: x.argmin(-1), lambda v: v.argmin(-1)),
    "std": (lambda x: x.std(-1), lambda v: v.std(-1, ddof=1)),
    "norm": (lambda x: x.norm(dim=-1), lambda v: np.linalg.norm(v, axis=-1)),
    "max_pool": (
        lambda x: ops.max_pool(x.reshape(-1, 1, 12), **WINDOW),
        lambda v: np.stack([v[:, max(0, i - 1) : i + 2].max(-1) for i in range(0, 12, 2)], -1)[:, None],
    ),
    "softmax": (lambda x: ops.softmax(x), lambda v: _softmax(v)),
    "log_softmax": (lambda x: ops.log_softmax(x), lambda v: np.log(_softmax(v))),
}
ELEMENTWISE: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "maximum": (lambda x: ops.maximum(x, 1.0), lambda v: np.maximum(v, 1)),
    "maximum, reversed": (lambda x: ops.maximum(0 * x, x), lambda v: np.maximum(0 * v, v)),
    "minimum": (lambda x: ops.minimum(x, 1.0), lambda v: np.minimum(v, 1)),
    "minimum, reversed": (lambda x: ops.minimum(0 * x, x), lambda v: np.minimum(0 * v, v)),
    "clip": (lambda x: ops.clip(x, -1.0, 1.0), lambda v: np.clip(v, -1, 1)),
    "relu": (lambda x: ops.relu(x), lambda v: np.maximum(v, 0)),
    "sign": (lambda x: ops.sign(x), np.sign),
    "abs": (lambda x: abs(x), np.abs),
    "floor": (lambda x: ops.floor(x), np.floor),
    "round": (lambda x: ops.round(x), np.round),
    "exp": (lambda x: ops.exp(x), np.exp),
    "tanh": (lambda x: ops.tanh(x), np.tanh),
    "sigmoid": (lambda x: ops.sigmoid(x), lambda v: 1 / (1 + np.exp(-v))),
    "softplus": (lambda x: ops.softplus(x), lambda v: np.logaddexp(v, 0)),
    "clamp": (lambda x: x.clamp(min=-1.0), lambda v: np.maximum(v, -1)),
    "rsqrt": (lambda x: x.rsqrt(), lambda v: 1 / np.sqrt(v)),
    "isfinite": (lambda x: x.isfinite(), np.isfinite),
    "isinf": (lambda x: x.isinf(), np.isinf),
    "isnan": (lambda x: ops.isnan(x), np.isnan),
}
ALL = REDUCING | ELEMENTWISE


def _softmax(v: Array) -> Array:
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _largest(v: Array, k: int) -> Array:
    """The largest first; NaN counts as infinity."""
    order = np.argsort(np.where(np.isnan(v), -np.inf, -v), axis=-1, kind="stable")
    return np.take_along_axis(v, order, -1)[:, :k]


def _numbers() -> Array:
    """Rows of 12 numbers: plain ones, then special ones in different positions and combinations."""
    nan, inf = np.nan, np.inf
    rows = np.tile(np.array([0.5, -1, 2, 1, -2, 0.25, 1.5, -0.5, 3, -3, 0.125, 1]), (16, 1))
    for row, places in enumerate(({}, {0: nan}, {5: nan}, {11: nan}, {2: nan, 7: nan}, {3: inf}, {3: -inf})):
        for at, number in places.items():
            rows[row, at] = number
    rows[7] = -inf
    rows[8] = inf
    rows[9] = nan
    rows[10, [1, 4]] = inf, nan
    rows[11, [1, 4]] = nan, inf
    rows[12, [1, 4]] = -inf, inf
    rows[13, :6] = -inf
    rows[14, [1, 4, 8]] = -inf, inf, nan
    return rows


INPUTS = {"special": _numbers(), "plain": np.abs(_numbers()[[0, 0, 15]]), "-inf alone": _numbers()[[6, 7, 13]]}


def _expected(name: str, v: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(ALL[name][1](v))


def _check(got: Array, want: Array, dtype: Any, where: str) -> None:
    """NaN and infinities in the same positions, the rest to the precision of the type."""
    units = UNITS[str(dtype)] if got.dtype.kind not in "ib" else 0.0
    widened, expected = (np.asarray(numbers, np.float64) for numbers in (got, want.astype(got.dtype)))
    np.testing.assert_allclose(widened, expected, rtol=units, atol=units, err_msg=where)


@pytest.mark.parametrize("name", ALL)
def test_special_values_pass_as_in_numpy(name: str) -> None:
    for dtype in FLOATS:
        with case(dtype):
            _pass_as_in_numpy(name, dtype)


def _pass_as_in_numpy(name: str, dtype: lucid.DType) -> None:
    graph = lucid.trace(ALL[name][0], lucid.spec("N", 12, dtype=dtype))
    sessions = {target: Session(model, threads=1) for target, model in models_of(graph).items()}
    for kind, numbers in INPUTS.items():
        want, x = _expected(name, numbers), numbers.astype(dtype.numpy)
        _check(ALL[name][0](Tensor(x)).numpy(), want, dtype, f"{name}, {kind}, eager")
        for target, session in sessions.items():
            _check(np.asarray(session(x).numpy()), want, dtype, f"{name}, {kind}, {target}")


@pytest.mark.parametrize("name", ["max", "argmax", "max_pool"])
def test_opset_17_has_the_same_guards(name: str) -> None:
    session = Session(in_memory(export_graph(lucid.trace(ALL[name][0], lucid.spec("N", 12)), Target(opset=17))[0]))
    for numbers in INPUTS.values():
        _check(session(numbers.astype(np.float32)).numpy(), _expected(name, numbers), "float32", name)


def test_softplus_of_large_half_precision_numbers() -> None:
    """onnxruntime has no float16 kernel: at opset 18 it computes log(1 + exp(x)) in float16, which is inf above 11."""
    x = np.array([[512, 20, 11, 3, -600]], np.float16)
    graph = lucid.trace(ops.softplus, lucid.spec("N", 5, dtype=float16))
    session = Session(in_memory(export_graph(graph, Target(opset=18))[0]))
    _check(session(x).numpy(), np.logaddexp(x.astype(np.float64), 0), float16, "softplus")


def test_explain_tells_of_the_guard_and_integers_have_none() -> None:
    assert "ignores NaN" in str(explain(lambda x: x.max(axis=-1), lucid.spec("N", 12)))
    assert "NaN" not in str(explain(lambda x: x.max(axis=-1), lucid.spec("N", 12, dtype=lucid.int64)))


BIG = lucid.tensor([1e20, 3e38, 1.0])
BEYOND = lucid.tensor([float("nan"), float("inf"), -float("inf")])
INTEGERS = lucid.tensor([1000000, 5])
# Functions that are made of other ops, and what torch 2.13 gives: computed as they read, these overflow or lose digits.
COMPOSED: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], list[float]]] = {
    "lerp to the end": (lambda x: lucid.lerp(x, 1.0, 1.0), (BIG,), [1.0, 1.0, 1.0]),
    "log1p of large numbers": (log1p, (BIG,), [46.0517019, 88.5967934, 0.6931472]),
    "whole numbers by one that their type lacks": (lambda x: x / 300, (lucid.tensor([3], dtype="uint8"),), [0.01]),
    "lerp by weights": (lambda x, w: lucid.lerp(x, 1.0, w), (BIG, BIG / BIG), [1.0, 1.0, 1.0]),
    "lerp near the start": (lambda x: lucid.lerp(x, 2.0, 0.25), (BIG,), [7.5e19, 2.25e38, 1.25]),
    "addcmul of 0 times": (lambda x: lucid.addcmul(x, x, x, value=0), (BIG,), [1e20, 3e38, 1.0]),
    "addcdiv of 0 times": (lambda x: lucid.addcdiv(x, x, 1e-30, value=0), (BIG,), [1e20, 3e38, 1.0]),
    "infinity for NaN": (lambda x: lucid.nan_to_num(x, float("inf"), 1.0, 2.0), (BEYOND,), [float("inf"), 1.0, 2.0]),
    "close integers": (lambda x: lucid.isclose(x, x + 1), (INTEGERS,), [True, False]),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_functions_of_other_ops_at_the_ends_of_numbers(name: str) -> None:
    function, inputs, want = COMPOSED[name]
    np.testing.assert_allclose(function(*inputs).numpy(), want, rtol=1e-6)
    session = Session(in_memory(export_graph(lucid.trace(function, *inputs), Target())[0]))
    np.testing.assert_allclose(session(*inputs).numpy(), want, rtol=1e-6)


def test_functions_of_other_ops_refuse_axes_that_torch_refuses() -> None:
    with pytest.raises(ValueError, match=r"cross: got .*\[3\] and .*\[5, 3\], expected as many axes; unsqueeze"):
        lucid.cross(lucid.ones(3), lucid.ones(5, 3))
    with pytest.raises(ValueError, match="tensordot: got -1 axes, expected 0 or more"):
        lucid.tensordot(lucid.ones(2, 3), lucid.ones(3, 2), -1)
