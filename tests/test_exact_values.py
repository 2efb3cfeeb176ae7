"""Numbers at which functions are exact, or at which intermediate results overflow or cancel: eagerly and exported for
every target that runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, ops
from lucid.core.graph.types import Array, DType, bfloat16, float16, float32, float64
from lucid.export import Target
from lucid.export.exporter import export_graph
from lucid.export.onnx_file.writer import in_memory
from lucid.nn import functional as F
from lucid.ops.tensor.value import TracedValueError
from lucid.runtime import Session
from tests.test_ops import UNITS, models_of

FLOATS = (float32, float64, float16, bfloat16)
each_float = pytest.mark.parametrize("dtype", FLOATS, ids=str)


HALVES: dict[str, tuple[Callable[..., Tensor], Callable[..., Array]]] = {
    "sigmoid": (lambda x, y: x.sigmoid(), lambda x, y: 1 / (1 + np.exp(-x))),
    "sinc": (lambda x, y: lucid.sinc(x), lambda x, y: np.sinc(x)),
    "log10": (lambda x, y: lucid.log10(abs(x)), lambda x, y: np.log10(abs(x))),
    "logaddexp": (lucid.logaddexp, np.logaddexp),
    "lerp": (lambda x, y: lucid.lerp(x, y, 0.3), lambda x, y: x + 0.3 * (y - x)),
    "lerp by a tensor": (lambda x, y: lucid.lerp(x, y, y), lambda x, y: x + y * (y - x)),
    "addcmul": (lambda x, y: lucid.addcmul(x, y, y, value=0.3), lambda x, y: x + 0.3 * y * y),
    "addcdiv": (lambda x, y: lucid.addcdiv(x, y, x, value=0.3), lambda x, y: x + 0.3 * y / x),
    "mish": (lambda x, y: F.mish(x), lambda x, y: x * np.tanh(np.logaddexp(x, 0))),
}


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_half_precision_is_rounded_once(name: str, dtype: DType) -> None:
    call, want = HALVES[name]
    x, y = (Tensor(np.random.default_rng(seed).normal(0, 3, 2000)).astype(dtype) for seed in (1, 2))
    result = call(x, y)
    assert result.dtype is dtype
    exact = want(*(v.numpy().astype(np.float64) for v in (x, y)))
    error = abs(result.numpy().astype(np.float64) - exact)
    assert (error <= 0.51 * dtype.epsilon * abs(exact) + dtype.epsilon * 1e-3).all()


def everywhere(call: Callable[..., Tensor], *arrays: Array) -> dict[str, Array]:
    """The result of a call eagerly, and of its export for each target."""
    results = {"eager": call(*map(Tensor, arrays)).numpy()}
    specs = [lucid.spec("N", *array.shape[1:], dtype=str(array.dtype)) for array in arrays]
    graph = lucid.trace(call, *specs)
    for target, model in models_of(graph).items():
        results[target] = Session(model, threads=1)(*arrays).numpy()
    return results


def check(results: dict[str, Array], want: Array, dtype: DType) -> None:
    """Close to float64 numbers, by the precision of the type."""
    for place, got in results.items():
        np.testing.assert_allclose(
            np.asarray(got, np.float64), want.astype(dtype.numpy).astype(np.float64), UNITS[str(dtype)], err_msg=place
        )


def powers(dtype: DType) -> Array:
    """All powers of two of a type."""
    lowest = {"float64": -1074, "float32": -149, "float16": -24, "bfloat16": -133}[dtype.name]
    highest = {"float64": 1023, "float32": 127, "float16": 15, "bfloat16": 127}[dtype.name]
    return np.ldexp(1.0, np.arange(lowest, highest + 1))


@each_float
def test_log2_of_powers_of_two_is_whole(dtype: DType) -> None:
    """Position buckets and ALiBi take its floor."""
    numbers = powers(dtype)
    for place, got in everywhere(lambda x: x.log2(), numbers.astype(dtype.numpy)).items():
        np.testing.assert_array_equal(np.asarray(got, np.float64), np.log2(numbers), err_msg=place)


@each_float
def test_log2_of_other_numbers(dtype: DType) -> None:
    numbers = np.array([0, -0.0, 1, 3, 0.3, 1.5, 7, 1e4, -1, np.inf, -np.inf, np.nan]).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        check(everywhere(lambda x: x.log2(), numbers), np.log2(numbers.astype(np.float64)), dtype)


# Of each type a number whose square is infinite, in float32 for bfloat16.
LARGE = {"float64": 1e200, "float32": 3e19, "float16": 300, "bfloat16": 3e19}
ROOTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "std": (lambda x: x.std(-1), lambda v: v.std(-1, ddof=1)),
    "std of all": (lambda x: x.std(unbiased=False), lambda v: v.std()),
    "std, axes kept": (lambda x: x.std((0, 1), keepdims=True), lambda v: v.std(ddof=1, keepdims=True)),
    "norm": (lambda x: x.norm(dim=-1), lambda v: np.linalg.norm(v, axis=-1)),
    "norm of all": (lambda x: x.norm(), lambda v: np.linalg.norm(v.reshape(-1))),
    "norm, axes kept": (lambda x: x.norm(2, 0, keepdims=True), lambda v: np.linalg.norm(v, axis=0, keepdims=True)),
}


@each_float
@pytest.mark.parametrize("name", ROOTS)
def test_roots_of_squares_that_overflow(name: str, dtype: DType) -> None:
    large = LARGE[dtype.name]
    for rows in (
        [[large, -large, large / 2], [large / 8, large / 4, -large / 16]],
        [[1, 2, 3], [0.25, -3, 2]],
        [[0, 0, 0], [0, 1, 0]],
    ):
        check_root(name, np.array(rows), dtype)


def check_root(name: str, rows: Array, dtype: DType) -> None:
    """The root of squares of `ROOTS` is right everywhere."""
    array = rows.astype(dtype.numpy)
    wide = array.astype(np.float64)
    largest = np.abs(wide).max()  # float64 can hold the squares of its shares
    check(everywhere(ROOTS[name][0], array), ROOTS[name][1](wide / largest) * largest, dtype)


@each_float
@pytest.mark.parametrize("name", [name for name in ROOTS if name.startswith("std")])
def test_deviations_of_numbers_whose_sum_overflows(name: str, dtype: DType) -> None:
    """The sum, the distance from the mean, and the root before it is divided by the number."""
    for rows in (
        [[0.9, 0.6, 0.8, 0.7], [0.9, 0.9, -0.5, -0.9], [-0.9, -0.8, -0.9, -0.8]],
        [[0.9, -0.3, -0.3, -0.3], [0.9, 0.9, 0.9, 0.5]],
        [[0.7] * 60 + [-0.7] * 60],
    ):
        check_root(name, np.array(rows) * float(np.array(dtype.largest)), dtype)


def test_deviations_of_infinite_numbers_are_nan() -> None:
    rows = np.array([[np.inf, 1, 2], [np.inf, np.inf, 3], [np.inf, -np.inf, 0]], np.float32)
    for place, got in everywhere(lambda x: x.std(-1), rows).items():
        np.testing.assert_array_equal(got, [np.nan] * 3, err_msg=place)


@each_float
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_elu_near_zero(dtype: DType, alpha: float) -> None:
    tiny = {"float64": 1e-15, "float32": 1e-7, "float16": 1e-4, "bfloat16": 1e-7}[dtype.name]
    numbers = np.array([-tiny, -30 * tiny, -1e-2, -0.1, -1, -20, 0, 2, np.inf, -np.inf, np.nan]).astype(dtype.numpy)
    v = numbers.astype(np.float64)
    want = np.where(v > 0, v, alpha * np.expm1(np.minimum(v, 0)))
    check(everywhere(lambda x: F.elu(x, alpha), numbers), want, dtype)


@each_float
@pytest.mark.parametrize("name", ["//", "%"])
def test_quotients_and_remainders_have_the_sign_of_pythons_zeros(name: str, dtype: DType) -> None:
    pairs = [(-4, 2), (4, -2), (0, -1), (-0.0, 1), (0, 2), (-0.0, -3), (1, 2), (-1, -2), (-1, 2), (1, -2)]
    pairs += [(1, np.inf), (-1, np.inf), (1, -np.inf), (0, -np.inf), (5, 0), (-5, 0), (0, 0), (np.inf, 2), (np.nan, 1)]
    x, y = (np.array(side).astype(dtype.numpy) for side in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        want = {"//": np.floor_divide, "%": np.mod}[name](x.astype(np.float64), y.astype(np.float64))
    call: Callable[..., Tensor] = {"//": lambda x, y: x // y, "%": lambda x, y: x % y}[name]
    for place, got in everywhere(call, x, y).items():
        wide = np.asarray(got, np.float64)
        np.testing.assert_array_equal(wide, want, err_msg=place)
        there = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(wide)[there], np.signbit(want)[there], err_msg=place)


@each_float
def test_quotients_without_their_fraction_have_the_sign_of_zeros(dtype: DType) -> None:
    pairs = [(-0.5, 1), (0.5, -1), (-3, 4), (0.5, 1), (-0.0, 2), (0, -2), (0, 2), (-7, 2), (7, -2), (8, 3)]
    pairs += [(1, np.inf), (-1, np.inf), (5, 0), (-5, 0), (0, 0), (np.inf, 2), (np.nan, 1)]
    x, y = (np.array(side).astype(dtype.numpy) for side in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        want = np.trunc(x.astype(np.float64) / y.astype(np.float64))
    for place, got in everywhere(lambda x, y: x.div(y, rounding_mode="trunc"), x, y).items():
        wide = np.asarray(got, np.float64)
        np.testing.assert_array_equal(wide, want, err_msg=place)
        there = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(wide)[there], np.signbit(want)[there], err_msg=place)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_quotients_of_half_precision_are_cut_before_they_are_rounded(dtype: DType, mode: str) -> None:
    x = (np.random.default_rng(0).standard_normal(400) * 20).astype(dtype.numpy)
    third = np.full((), 1 / 3).astype(dtype.numpy)
    quotients = x.astype(np.float32) / third.astype(np.float32)
    want = {"floor": np.floor, "trunc": np.trunc}[mode](quotients).astype(dtype.numpy)
    by_one = everywhere(lambda x: x.div(Tensor(third), rounding_mode=mode), x)
    by_each = everywhere(lambda x, y: x.div(y, rounding_mode=mode), x, np.full(400, third))
    for results in (by_one, by_each):
        for place, got in results.items():
            np.testing.assert_array_equal(np.asarray(got, np.float64), want.astype(np.float64), err_msg=place)


@each_float
def test_the_remainder_by_a_constant_keeps_the_sign_of_its_zeros(dtype: DType) -> None:
    x = np.array([-4, 4, 3, -3, 0, -0.0]).astype(dtype.numpy)
    for divisor in (2.0, -2.0):
        want = np.mod(x.astype(np.float64), divisor)
        for place, got in everywhere(lambda x, divisor=divisor: x % divisor, x).items():
            np.testing.assert_array_equal(np.asarray(got, np.float64), want, err_msg=place)
            np.testing.assert_array_equal(np.signbit(np.asarray(got, np.float64)), np.signbit(want), err_msg=place)


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1e6])
def test_layer_norm_of_numbers_far_from_zero_loses_what_the_mean_is_rounded_by(offset: float) -> None:
    """Variances are sums of squared distances from the mean: differences of large squares would lose all."""
    x = (np.random.default_rng(0).standard_normal((4, 256)) + offset).astype(np.float32)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    for place, got in everywhere(lambda x: ops.layer_norm(x), x).items():
        np.testing.assert_allclose(got, want, rtol=0, atol=2**-23 * (4 + offset), err_msg=place)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_layer_norm_whose_variance_overflows_is_zero_everywhere_as_in_torch(dtype: DType) -> None:
    x = np.array([[3e19, -3e19, 1e19, 0], [1, 2, 3, 4]]).astype(dtype.numpy)
    want = np.array([[0, 0, 0, 0], [-1.3416354, -0.4472118, 0.4472118, 1.3416354]])
    check(everywhere(lambda x: ops.layer_norm(x), x), want, dtype)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_baddbmm_of_half_precision_is_rounded_once(dtype: DType) -> None:
    """The product alone would overflow float16, as scores of attention do before they are scaled."""
    rows = np.full((1, 2, 64), 200).astype(dtype.numpy)
    results = everywhere(
        lambda x, a: lucid.baddbmm(x, a, a.mT, beta=0.5, alpha=0.01), np.ones((1, 2, 2)).astype(dtype.numpy), rows
    )
    assert all(str(got.dtype) == dtype.name for got in results.values())
    check(results, np.full((1, 2, 2), 25600.5), dtype)


def test_the_number_of_classes_may_be_a_known_tensor() -> None:
    ids = Tensor([1, 2])
    assert F.one_hot(ids, ids.max() + 1).tolist() == [[0, 1, 0], [0, 0, 1]]
    with pytest.raises(TracedValueError):
        lucid.trace(lambda x: F.one_hot(x, x.max() + 1), lucid.spec("N", dtype=lucid.int64))


@pytest.mark.parametrize("index", [3, -1])
def test_an_index_of_no_class_is_an_error_of_one_hot(index: int) -> None:
    for call in (lambda x: F.one_hot(x, 3), lambda x: ops.one_hot(x, 3)):
        with pytest.raises(IndexError, match=f"one_hot: indices range from {min(index, 0)} to .*, expected 0 to 2"):
            call(Tensor([0, index]))
    graph = lucid.trace(lambda x: F.one_hot(x, 3), lucid.spec("N", dtype=lucid.int64))
    assert Session(in_memory(export_graph(graph, Target("any"))[0]))(np.array([index])).numpy().tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x.gather(0, i),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.scatter(0, i, 1.0),
        lambda x, i: x.scatter_add(0, i, x[:1]),
        lambda x, i: x.index_add(0, i, x[:1]),
    ],
)
def test_negative_indices_are_errors_where_they_are_in_torch(call: Callable[..., Any]) -> None:
    assert call(lucid.arange(4).float(), Tensor([3])).ndim == 1
    with pytest.raises(IndexError, match="got the index -1, expected 0 or more; write index % size"):
        call(lucid.arange(4).float(), Tensor([-1]))
