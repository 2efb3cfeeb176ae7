"""The tensor: NumPy's and torch's behaviour, eagerly and while tracing."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lucid
from lucid import Tensor, TracedValueError
from lucid.core.graph.types import DTYPES
from tests.cases import in_one_test

Array = np.ndarray[Any, Any]

# Each of these sizes becomes a symbol when a case is traced; 1, 6 and 8 stay numbers.
SYMBOLS = {2: "A", 3: "B", 4: "C", 5: "D"}


def numbers(*shape: int, dtype: str = "float32") -> Array:
    """Positive and negative, all different, none zero; booleans alternate irregularly."""
    count = int(np.prod(shape))
    values = ((np.arange(count) * 37 + 11) % 101 - 50.5) / 10
    if dtype == "bool":
        return (values > 0.7).reshape(shape)
    return (values * (10 if "int" in dtype else 1)).astype(dtype).reshape(shape)


def symbolic(array: Array) -> lucid.TensorType:
    return lucid.spec(*(SYMBOLS.get(size, size) for size in array.shape), dtype=array.dtype)


def results(value: Any) -> list[Array]:
    return [np.asarray(item) for item in (value if isinstance(value, (tuple, list)) else [value])]


def agree(got: Any, expected: Any) -> None:
    for left, right in zip(results(got), results(expected), strict=True):
        assert left.shape == right.shape
        np.testing.assert_allclose(left, right, rtol=2e-6, atol=2e-6)


class Case(NamedTuple):
    """An expression on tensors, the same on NumPy arrays, and its arguments."""

    name: str
    ours: Callable[..., Any]
    numpy: Callable[..., Any]
    arguments: tuple[Array, ...]

    @staticmethod
    def same(name: str, both: Callable[..., Any], *arguments: Array) -> Case:
        """An expression that is written the same for both."""
        return Case(name, both, both, arguments)


x, y = numbers(2, 3, 4), numbers(3, 1) + 0.05
positive, small = np.abs(x), x / 4
i, j = numbers(2, 3, dtype="int64"), np.array([[3], [-2]])
mask = numbers(2, 3, 4, dtype="bool")


def sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def softmax(a: Array, axis: int = -1) -> Array:
    e = np.exp(a - a.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


ARITHMETIC = [
    Case.same("x + y", lambda a, b: a + b, x, y),
    Case.same("x - y", lambda a, b: a - b, x, y),
    Case.same("x * y", lambda a, b: a * b, x, y),
    Case.same("x / y", lambda a, b: a / b, x, y),
    Case.same("x // y", lambda a, b: a // b, x, y),
    Case.same("x % y", lambda a, b: a % b, x, y),
    Case.same("7 // i", lambda a: 7 // a, i),
    Case.same("7 % i", lambda a: 7 % a, i),
    Case.same("i // j rounds down", lambda a, b: a // b, i, j),
    Case.same("i % j has the divisor's sign", lambda a, b: a % b, i, j),
    Case("i / j is a float", lambda a, b: a / b, lambda a, b: (a / b).astype("float32"), (i, j)),
    Case.same("x ** y", lambda a, b: a**b, positive, y),
    Case.same("x ** 2", lambda a: a**2, x),
    Case.same("2 ** x", lambda a: 2.0**a, small),
    Case.same("1 + x", lambda a: 1 + a, x),
    Case.same("1 - x", lambda a: 1 - a, x),
    Case.same("3 * x", lambda a: 3 * a, x),
    Case.same("3 / x", lambda a: 3 / a, x),
    Case.same("-x", lambda a: -a, x),
    Case.same("abs(x)", lambda a: abs(a), x),
    Case.same("x @ y", lambda a, b: a @ b, x, numbers(4, 5)),
    Case.same("x @ y, batched", lambda a, b: a @ b, x, numbers(2, 4, 3)),
    Case.same("x @ y, vector", lambda a, b: a @ b, x, numbers(4)),
    Case.same("x == y", lambda a, b: a == b, i, j),
    Case.same("x != y", lambda a, b: a != b, i, j),
    Case.same("x < y", lambda a, b: a < b, x, y),
    Case.same("x <= y", lambda a, b: a <= b, i, j),
    Case.same("x > y", lambda a, b: a > b, x, y),
    Case.same("x >= 0", lambda a: a >= 0, x),
    Case.same("~mask", lambda a: ~a, mask),
    Case.same("mask & mask", lambda a, b: a & b, mask, ~mask[:1]),
    Case.same("mask | mask", lambda a, b: a | b, mask, ~mask[:1]),
    Case.same("mask ^ mask", lambda a, b: a ^ b, mask, mask[:, :1]),
]

SHAPE = [
    Case.same("reshape", lambda a: a.reshape(8, 6), numbers(6, 8)),
    Case.same("reshape, sequence", lambda a: a.reshape((12, -1)), numbers(6, 8)),
    Case.same("reshape, NumPy's integers", lambda a: a.reshape(np.int64(8), np.int64(-1)), numbers(6, 8)),
    Case("view", lambda a: a.view(a.shape[0], -1), lambda a: a.reshape(2, -1), (x,)),
    Case("split heads", lambda a: a.reshape(*a.shape[:2], 2, 4), lambda a: a.reshape(2, 3, 2, 4), (numbers(2, 3, 8),)),
    Case("join axes", lambda a: a.reshape(a.shape[0] * a.shape[1], -1), lambda a: a.reshape(6, -1), (x,)),
    Case("transpose", lambda a: a.transpose(0, -1), lambda a: a.swapaxes(0, -1), (x,)),
    Case("permute", lambda a: a.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1), (x,)),
    Case("permute, sequence", lambda a: a.permute((1, 0, 2)), lambda a: a.transpose(1, 0, 2), (x,)),
    Case.same("mT", lambda a: a.mT, x),
    Case.same("T", lambda a: a.T, x),
    Case("flatten", lambda a: a.flatten(), lambda a: a.reshape(-1), (x,)),
    Case("flatten(1)", lambda a: a.flatten(1), lambda a: a.reshape(2, -1), (x,)),
    Case("flatten(0, 1)", lambda a: a.flatten(0, 1), lambda a: a.reshape(-1, 4), (x,)),
    Case.same("squeeze", lambda a: a.squeeze(), numbers(1, 3, 1)),
    Case.same("squeeze(0)", lambda a: a.squeeze(0), numbers(1, 3, 1)),
    Case.same("squeeze((0, -1))", lambda a: a.squeeze((0, -1)), numbers(1, 3, 1)),
    Case("unsqueeze(0)", lambda a: a.unsqueeze(0), lambda a: a[None], (x,)),
    Case("unsqueeze(-1)", lambda a: a.unsqueeze(-1), lambda a: a[..., None], (x,)),
    Case("expand", lambda a: a.expand(6, -1, 8), lambda a: np.broadcast_to(a, (6, 3, 8)), (y,)),
    Case("expand to a size", lambda a, b: a.expand(b.shape), lambda a, b: np.broadcast_to(a, b.shape), (y, x)),
    Case("split(2)", lambda a: a.split(2, 1), lambda a: np.split(a, [2, 4, 6], 1), (numbers(2, 8),)),
    Case("split, last one smaller", lambda a: a.split(4, -1), lambda a: np.split(a, [4], -1), (numbers(2, 6),)),
    Case("split([1, 5])", lambda a: a.split([1, 5], 1), lambda a: np.split(a, [1], 1), (numbers(2, 6),)),
    Case("chunk(3)", lambda a: a.chunk(3, -1), lambda a: np.split(a, 3, -1), (numbers(2, 6),)),
    Case("chunk(4) of 6", lambda a: a.chunk(4, -1), lambda a: np.split(a, 3, -1), (numbers(2, 6),)),
    Case("repeat", lambda a: a.repeat(2, 1, 3), lambda a: np.tile(a, (2, 1, 3)), (x,)),
    Case("repeat, new axis", lambda a: a.repeat(2, 1, 1, 1), lambda a: np.tile(a, (2, 1, 1, 1)), (x,)),
    Case("tril", lambda a: a.tril(), np.tril, (x,)),
    Case("tril(1)", lambda a: a.tril(1), lambda a: np.tril(a, 1), (x,)),
    Case("triu(-1)", lambda a: a.triu(-1), lambda a: np.triu(a, -1), (x,)),
]

REDUCTIONS = [
    Case.same("sum", lambda a: a.sum(), x),
    Case.same("sum of integers", lambda a: a.sum(), i),
    Case.same("sum(1)", lambda a: a.sum(1), x),
    Case.same("sum((0, -1))", lambda a: a.sum((0, -1)), x),
    Case.same("sum(-1, keepdims)", lambda a: a.sum(-1, keepdims=True), x),
    Case.same("mean", lambda a: a.mean(), x),
    Case.same("sum(NumPy's 1)", lambda a: a.sum(np.int64(1)), x),
    Case.same("mean((1, 2), keepdims)", lambda a: a.mean((1, 2), keepdims=True), x),
    Case.same("max", lambda a: a.max(), x),
    Case.same("max(0)", lambda a: a.max(axis=0), x),
    Case.same("min(-1)", lambda a: a.min(axis=-1), x),
    Case.same("argmax", lambda a: a.argmax(), x),
    Case.same("argmax(1, keepdims)", lambda a: a.argmax(1, keepdims=True), x),
    Case.same("any(1)", lambda a: a.any(1), mask),
    Case.same("all", lambda a: a.all(), mask),
]

ELEMENTWISE = [
    Case("exp", lambda a: a.exp(), np.exp, (small,)),
    Case("log", lambda a: a.log(), np.log, (positive,)),
    Case("sqrt", lambda a: a.sqrt(), np.sqrt, (positive,)),
    Case("tanh", lambda a: a.tanh(), np.tanh, (x,)),
    Case("sigmoid", lambda a: a.sigmoid(), sigmoid, (x,)),
    Case("softmax", lambda a: a.softmax(), softmax, (x,)),
    Case("softmax(1)", lambda a: a.softmax(1), lambda a: softmax(a, 1), (x,)),
    Case("where", lambda a, m, b: a.where(m, b), lambda a, m, b: np.where(m, a, b), (x, mask, y)),
    Case("where, number", lambda a, m: a.where(m, 0), lambda a, m: np.where(m, a, np.float32(0)), (x, mask)),
    Case("masked_fill", lambda a, m: a.masked_fill(m, -1.5), lambda a, m: np.where(m, np.float32(-1.5), a), (x, mask)),
    Case("astype int", lambda a: a.astype(lucid.int64), lambda a: a.astype("int64"), (x,)),
    Case("astype bool", lambda a: a.astype("bool"), lambda a: a.astype("bool"), (i,)),
    Case("astype half", lambda a: a.astype(lucid.float16), lambda a: a.astype("float16"), (x,)),
]

INDEXING = [
    Case.same("x[0]", lambda a: a[0], x),
    Case.same("x[-1, 1]", lambda a: a[-1, 1], x),
    Case.same("x[1:]", lambda a: a[1:], x),
    Case.same("x[:, :-1]", lambda a: a[:, :-1], x),
    Case.same("x[..., -2:]", lambda a: a[..., -2:], x),
    Case.same("x[:, ::2] of a number", lambda a: a[:, ::2], numbers(2, 8)),
    Case.same("x[::-1]", lambda a: a[::-1], x),
    Case.same("x[:, None]", lambda a: a[:, None], x),
    Case.same("x[None, ..., None]", lambda a: a[None, ..., None], x),
    Case.same("x[0, ..., 1:3]", lambda a: a[0, ..., 1:3], x),
    Case.same("x[tensor]", lambda a, t: a[t], x, np.array([1, 0, -1])),
    Case.same("x[:, tensor]", lambda a, t: a[:, t], x, np.array([[1, 0], [2, -1]])),
    Case.same("x[tensor, tensor]", lambda a, s, t: a[s, t], x, np.array([1, 0]), np.array([2, -1])),
    Case.same("x[tensor, :, tensor]", lambda a, s, t: a[s, :, t], x, np.array([1, 0]), np.array([[2], [-1]])),
    Case("x[0, :, tensor] is x[0][:, tensor]", lambda a, t: a[0, :, t], lambda a, t: a[0][:, t], (x, np.array([1, 0]))),
    Case.same("x[None, tensor]", lambda a, t: a[None, t], x, np.array([[1, 0]])),
    Case.same("x[tensor, None]", lambda a, t: a[t, None], x, np.array([1, 0])),
    Case.same("x[list]", lambda a: a[[1, 0, 1]], x),
]

CASES = [*ARITHMETIC, *SHAPE, *REDUCTIONS, *ELEMENTWISE, *INDEXING]


@in_one_test(CASES, attrgetter("name"))
def test_an_expression_gives_what_numpy_gives(case: Case) -> None:
    agree(case.ours(*map(Tensor, case.arguments)), case.numpy(*case.arguments))


@in_one_test(CASES, attrgetter("name"))
def test_a_traced_expression_gives_the_same_at_symbolic_sizes(case: Case) -> None:
    graph = lucid.trace(case.ours, *map(symbolic, case.arguments))
    graph.verify()
    agree(graph(*case.arguments), case.numpy(*case.arguments))


def test_in_a_trace_sizes_work_like_numbers() -> None:
    def split_heads(a: Tensor) -> Tensor:
        n, l, e = a.shape
        return a.reshape(n, l, 2, e // 2).transpose(1, 2)

    graph = lucid.trace(split_heads, lucid.spec("N", "L", 8))
    assert str(graph.outputs[0].type) == "float32[N, 2, L, 4]"
    array = numbers(3, 5, 8)
    agree(graph(array), array.reshape(3, 5, 2, 4).swapaxes(1, 2))


def test_the_mean_of_nothing_is_nan_and_no_warning() -> None:
    assert np.isnan(lucid.zeros(0, 3).mean(0).numpy()).all()
    assert lucid.zeros(0, 3).sum(0).tolist() == [0, 0, 0]


def test_a_symbolic_size_takes_part_in_arithmetic() -> None:
    graph = lucid.trace(lambda a: a.sum(1) / a.shape[1], lucid.spec("N", "L"))
    agree(graph(numbers(2, 5)), numbers(2, 5).mean(1))


# Indexing, all of it --------------------------------------------------------------------------------------------------


@st.composite
def array_and_index(draw: st.DrawFn) -> tuple[Array, tuple[Any, ...]]:
    """An array and an index that may mix integers, slices, None, one ..., integer arrays and a mask."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    index: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["integer", "slice", "array", "mask", "new"]))
        if kind == "new":
            index.append(None)
        if kind in ("slice", "new"):
            index.append(draw(st.slices(size)))
        elif kind == "integer":
            index.append(draw(st.integers(-size, size - 1)))
        elif kind == "mask":
            # one true element, so that several of them, and arrays, select together
            index.append(np.arange(size) == draw(st.integers(0, size - 1)))
        else:
            values = st.integers(-size, size - 1)
            index.append(draw(hnp.arrays(np.int64, draw(st.sampled_from([(2,), (1,), (3, 1), ()])), elements=values)))
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), ...)
        if sum(item is not None and item is not ... for item in index) > len(shape):
            index.pop()
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape), tuple(index)


@given(array_and_index())
def test_any_index_selects_what_numpy_selects(case: tuple[Array, tuple[Any, ...]]) -> None:
    array, index = case
    ours = tuple(Tensor(item) if isinstance(item, np.ndarray) else item for item in index)
    try:
        expected = array[index]
    except IndexError:  # ... counts as an axis if an index has too many
        with pytest.raises(IndexError):
            Tensor(array)[ours]
        return
    got = Tensor(array)[ours]
    np.testing.assert_array_equal(got.numpy(), expected)
    assert got.shape == expected.shape
    traced = lucid.trace(lambda a: a[ours], lucid.spec(*array.shape))
    np.testing.assert_array_equal(traced(array), expected)


@given(st.lists(st.tuples(st.integers(2, 5), st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=3))
def test_slices_of_symbolic_axes_select_what_numpy_selects(axes: list[tuple[int, int, int]]) -> None:
    index = tuple(slice(start or None, stop or None) for _, start, stop in axes)
    array = np.arange(np.prod([size for size, _, _ in axes]), dtype=np.float32).reshape([size for size, _, _ in axes])
    expected = array[index]
    if not all(expected.shape):
        return  # a slice of a symbolic axis is assumed to have its bounds in order
    graph = lucid.trace(lambda a: a[index], lucid.spec(*("ABC"[: len(axes)])))
    np.testing.assert_array_equal(graph(array), expected)


@pytest.mark.parametrize("size", range(6))
def test_slices_of_known_axes_select_what_numpy_selects(size: int) -> None:
    array, bounds = np.arange(size, dtype=np.float32), (None, *range(-7, 8))
    for start, stop, step in product(bounds, bounds, (-3, -2, -1, 1, 2, 3)):
        index = slice(start, stop, step)
        np.testing.assert_array_equal(Tensor(array)[index].numpy(), array[index], err_msg=str(index))
    np.testing.assert_array_equal(lucid.trace(lambda a: a[-6::-1], (size,))(array), array[-6::-1])


def test_a_step_is_a_whole_number() -> None:
    for step in (1.9, "1"):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            lucid.trace(lambda a, step=step: a[::step], ("N",))


def test_a_slice_beyond_a_symbolic_axis_is_an_error_when_it_runs() -> None:
    graph = lucid.trace(lambda a: a[:, :3], lucid.spec("N", "L"))
    agree(graph(numbers(2, 4)), numbers(2, 4)[:, :3])
    with pytest.raises(ValueError, match="a slice or index is past the end of an axis of symbolic size"):
        graph(numbers(2, 2))


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ((0, 0, 0, 0), IndexError, r"4 indices for the 3 axes of \[2, 3, 4\]"),
        ((5,), IndexError, r"5 is out of range for axis 0 of \[2, 3, 4\]"),
        ((..., -5), IndexError, "-5 is out of range for axis 2"),
        ((..., ...), IndexError, "indices for the 3 axes"),
        ((slice(None, None, 0),), ValueError, "step 0"),
        (("a",), TypeError, "got str, expected an integer, a slice"),
        ((1.0,), TypeError, "got float"),
        ((True,), TypeError, "got bool"),
        ((Tensor([0.5]),), TypeError, "a tensor of float32, expected integers or booleans"),
        ((Tensor([True, False, True]),), IndexError, r"a mask of shape \[3\], expected \[2\]"),
        ((Tensor(True),), TypeError, "a boolean without axes"),
        ((Tensor([7]),), IndexError, "out of bounds"),
    ],
)
def test_a_wrong_index_is_an_error(index: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Tensor(x)[index]


def test_a_traced_mask_cannot_index() -> None:
    with pytest.raises(TypeError, match=r"use lucid.where\(mask, x, 0\) or x.masked_fill"):
        lucid.trace(lambda a: a[a > 0], lucid.spec("N"))


# Element types --------------------------------------------------------------------------------------------------------


def test_two_tensors_meet_in_the_promoted_type() -> None:
    assert (lucid.ones(2, dtype="float16") + lucid.ones(2, dtype="int64")).dtype is lucid.float16
    assert (lucid.ones(2, dtype="float16") + lucid.ones(2, dtype="bfloat16")).dtype is lucid.float32
    assert (lucid.ones(2, dtype="uint8") * lucid.ones(2, dtype="int8")).dtype is lucid.int32
    assert (lucid.ones(2) + np.ones(2, np.float64)).dtype is lucid.float64
    assert (np.ones(2, np.float64) * lucid.ones(2)).dtype is lucid.float64


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_python_number_takes_the_type_of_the_tensor_beside_it(dtype: lucid.DType) -> None:
    if dtype.kind == "float":
        assert (lucid.ones(2, dtype=dtype) * 2.5).dtype is dtype
    if dtype.kind != "bool":
        assert (lucid.ones(2, dtype=dtype) * 2).dtype is dtype
        assert (2 - lucid.ones(2, dtype=dtype)).dtype is dtype
    if dtype.kind == "int":
        assert (lucid.ones(2, dtype=dtype) * 2.5).dtype is lucid.float32


def test_operations_refuse_types_that_make_no_sense() -> None:
    with pytest.raises(
        TypeError, match=r"softmax: got int64\[2\], expected a floating-point tensor; convert it with .astype"
    ):
        lucid.tensor([1, 2]).softmax(-1)
    with pytest.raises(TypeError, match="mean: got int64"):
        lucid.tensor([1, 2]).mean()
    with pytest.raises(TypeError, match="bitwise_and: got float32"):
        _ = lucid.ones(2) & lucid.ones(2)
    with pytest.raises(TypeError, match="add: expected a tensor, an array or a number, got str"):
        _ = lucid.ones(2) + "1"  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"matmul: \[2, 3\] @ \[2, 3\]: inner sizes 3 and 2 differ"):
        _ = lucid.ones(2, 3) @ lucid.ones(2, 3)
    with pytest.raises(ValueError, match=r"add: shapes \[2\] and \[3\] do not broadcast"):
        _ = lucid.ones(2) + lucid.ones(3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda a: a.reshape(5, 5), ValueError, r"reshape: \[2, 3, 4\] has 24 elements, \[5, 5\] does not"),
        (lambda a: a.reshape(-1, -1), ValueError, "reshape"),
        (lambda a: a.permute(0, 1), ValueError, "not a permutation of the 3 axes"),
        (lambda a: a.transpose(0, 3), IndexError, "axis 3 is out of range for a tensor of 3 axes"),
        (lambda a: a.reshape(2.0, 12), TypeError, "reshape: size 2.0 is float, expected a whole number or a symbolic"),
        (lambda a: a.reshape("N"), TypeError, "reshape: size 'N' is str"),
        (lambda a: a.flatten(2, 1), ValueError, "flatten: start 2 is after end 1"),
        (lambda a: a.expand(-1, 2, 3, 4), ValueError, "expand: .* a new axis needs a size of 0 or more"),
        (lambda a: a.split(1.5), TypeError, "split: size 1.5 is float"),
        (lambda a: a.split(0), ValueError, "split: got pieces of size 0"),
        (lambda a: a + None, TypeError, "add: y is missing or None, expected a tensor, an array or a number"),
        (lambda a: a == None, TypeError, "equal: y is missing or None"),  # noqa: E711
        (lambda a: a.where(None, 1), TypeError, "where: condition is missing or None"),
        (
            lambda a: lucid.ops.concat([a, None]),
            TypeError,
            "concat: expected a tensor, an array or a number, got NoneType",
        ),
        (lambda a: a.astype(None), TypeError, "dtype None is not one of float32"),
        (lambda a: a.squeeze(7), IndexError, "squeeze: axis 7 is out of range"),
        (lambda a: a.expand(2, 5, 4), ValueError, "expand"),
        (lambda a: a.split([1, 1], 1), ValueError, "add up to 2, expected 3"),
        (lambda a: a.sum(4), IndexError, "axis 4 is out of range"),
        (lambda a: a.sum((0, 0)), ValueError, "names an axis twice"),
        (lambda a: a[:0].max(), ValueError, "no elements"),
        (lambda a: a[:0, :0].max(axis=1), ValueError, "max: .* has no elements along axis"),
        (lambda a: a[0, 0].tril(), ValueError, "at least 2 axes"),
        (lambda a: len(a.sum()), TypeError, "without axes"),
    ],
)
def test_wrong_arguments_are_errors(call: Callable[[Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(Tensor(x))


# Python's protocols ---------------------------------------------------------------------------------------------------


def test_python_numbers_from_tensors() -> None:
    one = lucid.tensor(2.5)
    assert one.item() == 2.5
    assert float(one) == 2.5
    assert int(one) == 2
    assert bool(lucid.tensor(1) > 0) is True
    assert [10, 20, 30][lucid.tensor(1)] == 20
    assert lucid.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert len(lucid.zeros(3, 2)) == 3
    assert [row.tolist() for row in lucid.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert lucid.zeros(3, 2).size(0) == 3
    assert lucid.zeros(3, 2).ndim == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda a: bool(a),
        lambda a: int(a),
        lambda a: float(a),
        lambda a: a.item(),
        lambda a: a.numpy(),
        lambda a: a.tolist(),
        lambda a: np.asarray(a),
        lambda a: [1][a],
        lambda a: a if a > 0 else -a,
    ],
    ids=["bool", "int", "float", "item", "numpy", "tolist", "asarray", "index", "if"],
)
def test_a_traced_tensor_has_no_value_and_says_what_to_do(ask: Callable[[Tensor], Any]) -> None:
    with pytest.raises(
        TracedValueError, match=r"of a traced (int64|bool)\[\]: .* Select .* lucid.where\(condition, a, b\)"
    ):
        lucid.trace(ask, lucid.spec(dtype=lucid.int64))


def test_tensors_are_arrays_to_numpy() -> None:
    tensor = lucid.tensor([[1.0, 2.0]])
    assert np.shares_memory(np.asarray(tensor), tensor.numpy())
    assert not np.shares_memory(np.array(tensor), tensor.numpy())
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert np.concatenate([tensor, tensor]).shape == (2, 2)
    assert isinstance(np.ones((1, 2), np.float32) + tensor, Tensor)
    assert isinstance(np.float32(2) * tensor, Tensor)


def test_tensors_pass_by_dlpack() -> None:
    tensor = lucid.tensor([[1, 2, 3]])
    received = np.from_dlpack(tensor)
    assert np.shares_memory(received, tensor.numpy())
    np.testing.assert_array_equal(received, [[1, 2, 3]])
    assert tensor.__dlpack_device__() == (1, 0)


def test_comparison_is_elementwise_and_tensors_are_still_keys() -> None:
    a, b = lucid.tensor([1, 2]), lucid.tensor([1, 3])
    assert (a == b).tolist() == [True, False]
    assert {a: "a", b: "b"}[a] == "a"


def test_a_tensor_can_be_copied() -> None:
    tensor = lucid.tensor([1.0, 2.0])
    other = copy.deepcopy(tensor)
    assert other.tolist() == tensor.tolist()
    assert not np.shares_memory(other.numpy(), tensor.numpy())


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (lucid.tensor(2.5), "Tensor(2.5, dtype=lucid.float32)"),
        (lucid.tensor([1, 2, 3]), "Tensor([1, 2, 3], dtype=lucid.int64)"),
        (lucid.tensor([[1.0, 2.123456]]), "Tensor([[1.    , 2.1235]], dtype=lucid.float32)"),
        (lucid.tensor([True]), "Tensor([ True], dtype=lucid.bool_)"),
        (lucid.zeros(0, 3), "Tensor([], shape=[0, 3], dtype=lucid.float32)"),
        (lucid.zeros(2, dtype="bfloat16"), "Tensor([0, 0], dtype=lucid.bfloat16)"),
    ],
)
def test_repr(tensor: Tensor, text: str) -> None:
    assert repr(tensor) == text


def test_the_repr_of_a_large_tensor_is_short() -> None:
    text = repr(lucid.zeros(1000, 1000))
    assert len(text) < 500
    assert "shape=[1000, 1000]" in text


def test_the_repr_of_a_traced_tensor_is_its_type() -> None:
    seen: list[str] = []
    lucid.trace(lambda a: seen.append(repr(a)) or a * 2, lucid.spec("N", 3))  # type: ignore[func-returns-value]
    assert seen == ["Tensor(traced float32[N, 3])"]


# Creation -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [lucid, Tensor], ids=["lucid", "Tensor"])
def test_creation(source: Any) -> None:
    assert source.zeros(2, 3).tolist() == [[0.0] * 3] * 2
    assert source.ones((2, 3)).tolist() == [[1.0] * 3] * 2
    assert source.full((2,), 7, dtype="int32").tolist() == [7, 7]
    assert source.full((2,), 7, dtype="int32").dtype is lucid.int32
    assert source.empty(2, 3, dtype=lucid.float16).shape == (2, 3)
    assert source.arange(3).tolist() == [0, 1, 2]
    assert source.arange(1, 7, 2).tolist() == [1, 3, 5]
    assert source.arange(5, 1, -2).tolist() == [5, 3]
    assert source.eye(2, 3).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert source.randn(3, 4).shape == (3, 4)
    assert source.randn((3, 4)).dtype is lucid.float32
    assert source.rand(2, dtype="float64").dtype is lucid.float64
    assert source.zeros().shape == ()
    assert source.zeros(3, 0).shape == (3, 0)


@pytest.mark.parametrize("source", [lucid, Tensor], ids=["lucid", "Tensor"])
def test_what_is_no_size_is_an_error(source: Any) -> None:
    with pytest.raises(ValueError, match="size -1 is negative"):
        source.zeros(2, -1)
    for wrong in (2.0, "N", (2,)):
        with pytest.raises(TypeError, match="expected a whole number or a symbolic size"):
            source.ones(3, wrong)
    assert source.zeros(np.int64(2), 3).shape == (2, 3)


def test_tensor_copies_and_chooses_types() -> None:
    array = np.ones(3, np.float32)
    assert not np.shares_memory(lucid.tensor(array).numpy(), array)
    assert np.shares_memory(Tensor(array).numpy(), array)
    assert lucid.tensor([1.0]).dtype is lucid.float32
    assert lucid.tensor([1]).dtype is lucid.int64
    assert lucid.tensor([True]).dtype is lucid.bool_
    assert lucid.tensor(np.ones(1)).dtype is lucid.float64
    assert lucid.tensor(lucid.ones(1, dtype="float16")).dtype is lucid.float16
    assert lucid.tensor([1, 2], dtype="bfloat16").dtype is lucid.bfloat16
    for wrong, dtype in ((["a"], None), (["1"], "float32"), (None, None), ([1, None], "int64"), (10**20, None)):
        with pytest.raises(TypeError, match=r"tensor: got \w+ whose elements NumPy reads as \S+, expected numbers"):
            lucid.tensor(wrong, dtype)


def test_creation_from_symbolic_sizes() -> None:
    def positions(a: Tensor) -> tuple[Tensor, ...]:
        n, l = a.shape
        return lucid.arange(l), lucid.zeros(n, 2), lucid.arange(1, l + 1), lucid.full((l,), 3, dtype="int64")

    graph = lucid.trace(positions, lucid.spec("N", "L"))
    counted, zeros, from_one, threes = graph(numbers(2, 3))
    assert counted.tolist() == [0, 1, 2]
    assert zeros.shape == (2, 2)
    assert from_one.tolist() == [1, 2, 3]
    assert threes.tolist() == [3, 3, 3]


# Random numbers -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_numbers() -> None:
    lucid.manual_seed(7)
    first = [lucid.randn(3).tolist(), lucid.rand(2).tolist()]
    lucid.manual_seed(7)
    assert [lucid.randn(3).tolist(), lucid.rand(2).tolist()] == first
    lucid.manual_seed(8)
    assert lucid.randn(3).tolist() != first[0]
    mixed = lucid.normal(lucid.tensor([[1.0], [2.0]]), lucid.tensor([1.0, 0, 0]))
    assert mixed[:, 1:].tolist() == [[1, 1], [2, 2]] and mixed[0, 0] - 1 != mixed[1, 0] - 2
    assert len({*lucid.normal(lucid.tensor(0.0), lucid.ones(3)).tolist()}) == 3


def test_a_thread_draws_its_own_numbers_and_disturbs_nobodys() -> None:
    def draw() -> None:
        drawn.append(lucid.randn(4).tolist())

    drawn: list[list[float]] = []
    lucid.manual_seed(7)
    expected = [lucid.randn(4).tolist(), lucid.randn(4).tolist()]
    lucid.manual_seed(7)
    first = lucid.randn(4).tolist()
    thread = threading.Thread(target=draw)
    thread.start()
    thread.join()
    assert [first, lucid.randn(4).tolist()] == expected
    assert drawn[0] not in expected


def test_random_numbers_are_distributed_as_they_say() -> None:
    normal, uniform = lucid.randn(20000).numpy(), lucid.rand(20000).numpy()
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    assert 0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() <= 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 0, 4, 5), (2, 3, 4, 0)])
def test_many_matrices_times_one_are_one_product(shape: tuple[int, ...], dtype: str) -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(-4, 5, shape[::-1]).astype(dtype).T  # strided: its last axis is the first in memory
    y = generator.integers(-4, 5, (shape[-1], 6)).astype(dtype)
    product = (Tensor(x) @ Tensor(y)).numpy()
    assert product.dtype == dtype
    np.testing.assert_array_equal(product, np.einsum("nhwk,km->nhwm", x.astype(np.int64), y.astype(np.int64)))
