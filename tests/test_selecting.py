"""Elements by rank, mask and place: what `tests/ported_layers.py` cannot compare with torch, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.testing import assert_parity

X = lucid.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, 6.0]])


def test_a_mask_selects_elements_eagerly() -> None:
    assert lucid.masked_select(X, X > 0).tolist() == [1, 3, 5, 6]
    assert X.masked_select(lucid.tensor([True, False, False])).tolist() == [1, -4]
    assert lucid.masked_select(lucid.tensor(3.0), lucid.tensor([True, False, True])).tolist() == [3, 3]
    assert lucid.argwhere(X < 0).tolist() == [[0, 1], [1, 0]]


def test_with_a_bound_a_mask_selects_elements_of_traced_tensors() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (
            x.masked_select(x > 0, size=3),
            lucid.masked_select(x, x > 0, size=x.numel(), fill_value=-1),
            lucid.argwhere(x > 0, size=4, fill_value=9),
        )

    three, every, places = model(X)
    assert three.tolist() == [1, 3, 5]
    assert every.tolist() == [1, 3, 5, 6, -1, -1]
    assert places.tolist() == [[0, 0], [0, 2], [1, 1], [1, 2]]
    for target in ("any", "cpu", "portable"):
        assert_parity(model, ("N", "L"), target=target)


def test_close_tensors_are_a_truth() -> None:
    assert lucid.allclose(X, X + 1e-9) is True
    assert X.allclose(X + 1) is False
    assert lucid.allclose(X * np.nan, X * np.nan, equal_nan=True)


def test_random_integers_have_their_bounds() -> None:
    lucid.manual_seed(1)
    drawn = lucid.randint(3, 7, (50,))
    assert (drawn.dtype, set(drawn.tolist())) == (lucid.int64, {3, 4, 5, 6})
    assert set(lucid.randint(2, size=(40,), dtype=lucid.int32).tolist()) == {0, 1}
    assert lucid.randint(high=1, size=(2, 3)).tolist() == [[0, 0, 0]] * 2
    assert sorted(lucid.randperm(5).tolist()) == [0, 1, 2, 3, 4]


TRACED: dict[str, Callable[[Tensor], Any]] = {
    r"masked_select\(x, mask, size=n\), or write lucid.where": lambda x: x.masked_select(x > 0),
    r"nonzero\(\) of a traced .* lucid.argwhere\(x, size=n\)": lambda x: lucid.argwhere(x),
    r"lucid.isclose\(x, y\).all\(\) is a tensor": lambda x: lucid.allclose(x, x),
    r"triu_indices: got the sizes N and 3.*lucid.ones\(rows, columns\).triu\(\)": lambda x: lucid.triu_indices(
        x.shape[0], 3
    ),
    "randint: random numbers that are drawn in forward": lambda x: x + lucid.randint(3, (1,)),
}


@pytest.mark.parametrize("message", TRACED)
def test_what_only_a_run_knows_says_what_to_write(message: str) -> None:
    with pytest.raises(lucid.TracedValueError, match=message):
        lucid.trace(TRACED[message], ("N", 3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: X.quantile(1.5), ValueError, "q is 1.5, expected a number from 0 to 1"),
        (lambda: X.quantile(0.5, interpolation="mean"), ValueError, "interpolation is 'mean', expected one of linear"),
        (lambda: X.masked_select(X), TypeError, "got a mask float32.* expected booleans"),
        (lambda: lucid.searchsorted(X, X, side="both"), ValueError, "side is 'both' and right False, expected 'left'"),
        (
            lambda: X.kthvalue(4),
            ValueError,
            r"kthvalue: element 4 of 3 along axis -1 of float32\[2, 3\], expected 1 to 3",
        ),
        (lambda: X[:, :0].median(1), ValueError, "median: element 0 of 0 along axis 1 of"),
        (lambda: X.tensor_split(0), ValueError, "got 0 parts, expected 1 or more"),
        (lambda: lucid.vsplit(X, 0), ValueError, "tensor_split: got 0 parts, expected 1 or more"),
        (lambda: lucid.hsplit(X[0, 0], 1), ValueError, r"hsplit: got float32\[\], expected 1 equal parts of axis 1"),
        (lambda: lucid.hsplit(X, 2), ValueError, r"hsplit: got float32\[2, 3\], expected 2 equal parts of axis 1"),
        (lambda: X.unfold(1, 4, 1), ValueError, r"windows of 4 in steps of 1 do not fit axis 1 of \[2, 3\]"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_an_array_becomes_a_tensor_of_the_same_memory() -> None:
    array = np.zeros(3, np.float32)
    x = lucid.from_numpy(array)
    array[1] = 2
    assert x.tolist() == [0, 2, 0] and x.is_floating_point() and not lucid.is_floating_point(x.long())
    with pytest.raises(TypeError, match=r"from_numpy: got list, expected a NumPy array; use lucid.tensor\(data\)"):
        lucid.from_numpy([1.0])  # type: ignore[arg-type]


def test_scatter_reduce_combines_what_comes_to_a_place() -> None:
    x, index, source = lucid.ones(3), lucid.tensor([0, 0, 2]), lucid.tensor([4.0, 2.0, 7.0])
    for reduce, among, alone in (
        ("sum", [7, 1, 8], [6, 1, 7]),
        ("prod", [8, 1, 7], [8, 1, 7]),
        ("mean", [7 / 3, 1, 4], [3, 1, 7]),
        ("amax", [4, 1, 7], [4, 1, 7]),
        ("amin", [1, 1, 1], [2, 1, 7]),
    ):
        np.testing.assert_allclose(x.scatter_reduce(0, index, source, reduce).numpy(), among, rtol=1e-6)
        np.testing.assert_allclose(
            lucid.scatter_reduce(x, 0, index, source, reduce, include_self=False).numpy(), alone, rtol=1e-6
        )
    assert_parity(lambda x, i, y: x.scatter_reduce(0, i * 0, y, "mean"), ("N",), lucid.spec("L", dtype="int64"), ("L",))
    with pytest.raises(ValueError, match="scatter_reduce: reduce is 'mul', expected one of sum, mean, prod"):
        x.scatter_reduce(0, index, source, "mul")


def test_a_number_of_numpy_is_scattered_like_one_of_python() -> None:
    assert lucid.zeros(3).scatter(0, lucid.tensor([1]), np.float32(2)).tolist() == [0, 2, 0]


@pytest.mark.parametrize(
    "dtypes", [("float32", "float32"), ("float16", "int64"), ("int8", "uint8"), ("bfloat16", "float64")]
)
def test_known_numbers_are_searched_and_compared_as_traced_ones(dtypes: tuple[str, str]) -> None:
    x = lucid.tensor([[3.0, 0, 1], [2, 5, 4]]).astype(dtypes[0])
    if x.dtype.kind == "float":
        x = lucid.concat([x, lucid.tensor([[math.nan, math.inf, -math.inf]]).astype(x.dtype)])
    bounds = lucid.tensor([1.0, 1, 3, 4]).astype(dtypes[1])
    for call in (lucid.bucketize, lambda x, y: lucid.searchsorted(y, x, side="right", out_int32=True), lucid.isin):
        result, graph = call(x, bounds), lucid.trace(call, x, bounds)
        np.testing.assert_array_equal(graph.run([x.numpy(), bounds.numpy()])[0], result.numpy(), strict=True)


def test_many_numbers_are_searched_and_compared_without_a_truth_for_each_pair() -> None:
    many, bounds = lucid.arange(300_000) % 1000, lucid.arange(100_000) * 2  # 30 GB of truths
    assert lucid.bucketize(many, bounds)[:5].tolist() == [0, 1, 1, 2, 2]
    assert lucid.isin(many, bounds)[:3].tolist() == [True, False, True]
