"""Symbolic sizes: integer polynomials over named sizes."""

from __future__ import annotations

import operator
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucid
from lucid import nn, sym_max, sym_min
from lucid.core.sizes.dims import (
    Dim,
    Size,
    SymbolicSizeError,
    as_size,
    dim,
    evaluate,
    identity,
    names_of,
    product,
    same,
)
from lucid.export import to_onnx
from lucid.nn import functional as F
from lucid.runtime import Session
from lucid.testing import assert_parity

N, L, S = dim("N"), dim("L"), dim("S")

NAMES = ("N", "L", "S")
VALUES = st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES})
ABOVE_ZERO = st.fixed_dictionaries({name: st.integers(1, 40) for name in NAMES})

Expression = tuple[Size, Callable[[dict[str, int]], int]]  # the same arithmetic on symbols and on numbers


def _join(pair: tuple[Expression, Expression, Callable[[Size, Size], Size]]) -> Expression:
    (left, left_value), (right, right_value), apply = pair
    return apply(left, right), lambda values: int(apply(left_value(values), right_value(values)))  # type: ignore[arg-type]


def _divide(pair: tuple[Expression, Size, Callable[[Size, Size], Size]]) -> Expression:
    """Divided by a number or a name, positive or negative."""
    (left, left_value), divisor, apply = pair
    return apply(left, divisor), lambda values: int(apply(left_value(values), evaluate(divisor, values)))  # type: ignore[arg-type]


LEAVES: st.SearchStrategy[Expression] = st.one_of(
    st.integers(-9, 9).map(lambda number: (number, lambda values: number)),
    st.sampled_from(NAMES).map(lambda name: (dim(name), lambda values: values[name])),
)
POLYNOMIALS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(inner, inner, st.sampled_from([operator.add, operator.sub, operator.mul])).map(_join),
    max_leaves=6,
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner, st.sampled_from([operator.add, operator.sub, operator.mul, sym_max, sym_min])).map(
            _join
        ),
        st.tuples(
            inner,
            st.one_of(st.integers(-7, 7).filter(bool), st.sampled_from([N, -L, 2 * S, N * S])),
            st.sampled_from([operator.floordiv, operator.mod]),
        ).map(_divide),
    ),
    max_leaves=6,
)


# Arithmetic is arithmetic ---------------------------------------------------------------------------------------------


@given(EXPRESSIONS, ABOVE_ZERO)
def test_symbolic_arithmetic_agrees_with_integers_at_any_sizes(expression: Expression, values: dict[str, int]) -> None:
    size, compute = expression
    assert evaluate(size, values) == compute(values)


@given(POLYNOMIALS, POLYNOMIALS, VALUES)
def test_a_quotient_of_two_symbolic_sizes_agrees_with_integers(
    a: Expression, b: Expression, values: dict[str, int]
) -> None:
    divisor = b[1](values)
    if divisor == 0 or isinstance(b[0], int):
        return
    assert evaluate(a[0] // b[0], values) == a[1](values) // divisor
    assert evaluate(a[0] % b[0], values) == a[1](values) % divisor


@given(POLYNOMIALS, POLYNOMIALS)
def test_a_product_divides_exactly_by_its_factors(a: Expression, b: Expression) -> None:
    if isinstance(b[0], int) and b[0] == 0:
        return
    assert same((a[0] * b[0]) // b[0], a[0])
    assert same((a[0] * b[0]) % b[0], 0)


@given(POLYNOMIALS, POLYNOMIALS)
def test_equal_polynomials_are_equal_in_hash_and_text(a: Expression, b: Expression) -> None:
    left, right = a[0] * b[0] + a[0], a[0] * (b[0] + 1)
    assert same(left, right)
    assert hash(left) == hash(right)
    assert str(left) == str(right)


@given(EXPRESSIONS)
def test_what_is_constant_is_an_int(expression: Expression) -> None:
    size = expression[0]
    assert type(size - size) is int
    assert size - size == 0
    assert type(size) is int or names_of([size])


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS)
def test_sums_and_products_keep_the_laws_of_a_ring(a: Expression, b: Expression, c: Expression) -> None:
    x, y, z = a[0], b[0], c[0]
    assert same((x + y) + z, x + (y + z))
    assert same(x + y, y + x)
    assert same((x * y) * z, x * (y * z))
    assert same(x * y, y * x)
    assert same(x * (y + z), x * y + x * z)
    assert same(x - y, x + -1 * y)
    assert (x - x, x * 0) == (0, 0)


@given(EXPRESSIONS, st.one_of(st.integers(-7, 7).filter(bool), st.sampled_from([N, -L, 2 * S, N * S, N // 2 + 1])))
def test_a_size_is_its_quotient_times_the_divisor_and_its_remainder(a: Expression, divisor: Size) -> None:
    size = a[0]
    quotient, remainder = size // divisor, size % divisor
    assert same(quotient * divisor + remainder, size)
    assert same((size - remainder) // divisor, quotient)
    assert same((size - remainder) % divisor, 0)
    assert same((size + -size % divisor) % divisor, 0)  # what is padded to a multiple is one
    assert same(((size + -size % divisor) // divisor) * divisor, size + -size % divisor)


@given(st.lists(EXPRESSIONS, min_size=2, max_size=6), VALUES)
def test_sizes_are_looked_up_printed_and_compared_without_a_question(
    expressions: list[Expression], values: dict[str, int]
) -> None:
    sizes = [size for size, _ in expressions]
    kept = {identity(size): size for size in sizes}
    assert all(same(kept[identity(size)], size) for size in sizes)
    assert len(kept) == sum(not any(same(size, other) for other in sizes[:i]) for i, size in enumerate(sizes))
    assert {hash(size) for size in sizes} == {hash(size) for size in kept.values()}
    assert len(set(map(str, sizes))) >= len(kept)
    for size in sizes:
        again = pickle.loads(pickle.dumps(size))
        assert same(again, size)
        assert (hash(again), str(again), repr(again)) == (hash(size), str(size), repr(size))


def test_numbers_of_one_hash_do_not_confuse_sizes() -> None:
    assert hash(-1) == hash(-2)  # in CPython; sizes that differ only in these must not collide in a set
    for a, b in [
        (N - 1, N - 2),
        (-N, -2 * N),
        ((N - 1) // 2, (N - 2) // 2),
        ((-N) // 3, (-2 * N) // 3),
        (-1 % N, -2 % N),
    ]:
        assert len({a, b}) == 2
        assert len({(a, 1), (b, 1)}) == 2
        assert not same(a * b, a * a)
        assert len({lucid.spec(a), lucid.spec(b)}) == 2


@given(EXPRESSIONS)
def test_what_can_be_written_without_division_is(a: Expression) -> None:
    size = a[0]
    assert str(4 * (size // 4) + size % 4 - size) == "0"
    assert str(N * (L // N) + L % N) == "L"


def test_constants_collapse() -> None:
    assert type((N + 2) - N) is int
    assert (N + 2) - N == 2
    assert N * 0 == 0
    assert (4 * N) // 4 == N
    assert (N * L * 64) // (N * L) == 64
    assert (6 * N + 3) % 3 == 0
    assert product([N, 8, L]) == 8 * N * L
    assert product([]) == 1


def test_division_keeps_what_it_can() -> None:
    assert str((2 * N + 1) // 2) == "N"
    assert str(N // 2) == "(N//2)"
    assert str((N + 1) % 4) == "((N + 1)%4)"
    assert str(L // N) == "(L//N)"
    assert evaluate(-(-N // 4), {"N": 9}) == 3  # the usual way to round up


def test_a_quotient_of_a_quotient_is_one_quotient() -> None:
    assert same(L // 2 // 3, L // 6)
    assert same((L // 2 - 1) // 2 + 1, (L + 2) // 4)
    assert same(((L // 5 // 2 - 3) // 2 - 1) // 2, (L // 10 - 5) // 4)
    assert not same(L // 2 // 3, L // 3)
    assert str(L // 2 // 3).count("//") == 2  # shown as it was written


def test_maxima_and_minima_have_one_normal_form() -> None:
    assert [str(size) for size in (sym_max(L, 4), sym_min(2 * L, N), 2 * sym_max(L, 4))] == [
        "max(L, 4)",
        "min(2*L, N)",
        "2*max(L, 4)",
    ]
    assert same(sym_max(L, 4), sym_max(4, L))
    assert same(sym_max(L, 4) + sym_min(L, 4), L + 4)
    assert same(sym_max(2 * L + N, 8 + N), 2 * sym_max(L, 4) + N)
    assert same(sym_min(L, -(-L // 4) * 4), L - sym_max(0, L - (L + 3) // 4 * 4))
    assert len({sym_max(L, 4), sym_max(4, L), sym_min(L, 4), sym_max(L, 5)}) == 3


def test_a_maximum_that_is_certain_is_no_question() -> None:
    assert sym_max(3, 5) == 5 and sym_min(3, 5) == 3
    assert same(sym_max(L, 0), L) and same(sym_max(1, L + 1), L + 1)
    assert same(sym_min(L, L + 3 * N), L) and same(sym_min(2 * L, L), L)
    assert same(sym_max(sym_max(L, 4), 4), sym_max(L, 4))
    assert L - sym_min(L, 4) >= 0 and sym_max(L, 4) > 3
    with pytest.raises(TypeError, match=r"sym_max: size 2.5 is float, expected a whole number or a symbolic size"):
        sym_max(L, 2.5)  # type: ignore[arg-type]


def test_text_orders_powers_first_and_constants_last() -> None:
    assert str(1 + L + N * L - 2 * S) == "L*N + L - 2*S + 1"
    assert str(-N) == "-N"
    assert repr(N * N) == "N*N"


# Text to sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("N", N),
        ("12", 12),
        ("2*L + 1", 2 * L + 1),
        (" N * L+S ", N * L + S),
        ("2*L - 1", 2 * L - 1),
        ("N-1", N - 1),
        ("past_length", dim("past_length")),
    ],
)
def test_dim_reads_names_and_sums_and_differences_of_products(text: str, expected: Size) -> None:
    assert same(dim(text), expected)


@pytest.mark.parametrize("text", ["", "N--1", "-N", "N - ", "N//2", "2N", "N L", "N + ", "-3"])
def test_dim_refuses_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        dim(text)


def test_a_sum_of_many_names_is_read_term_by_term() -> None:
    text = " + ".join(sorted(f"a{number}" for number in range(10_000)))  # of a hostile file; adding sizes took minutes
    assert str(dim(text)) == text


def test_printed_polynomials_read_back() -> None:
    for size in (N, 2 * N + 1, 2 * N - 1, N * L + 3 * S, N * N):
        assert same(dim(str(size)), size)


# What is certain, and what is not -------------------------------------------------------------------------------------


def test_comparisons_that_hold_for_all_sizes_are_answered() -> None:
    assert N == N
    assert N + 1 != N
    assert N >= 0
    assert N + 1 > 0
    assert not N < 0
    assert L + S >= L
    assert L < L + 1
    assert not L > L + S
    assert L <= L + S


def test_same_never_raises() -> None:
    assert same(N, N)
    assert not same(N, L)
    assert not same(N, 3)
    assert same(3, 3)


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        (lambda: L == 4, "L == 4"),
        (lambda: L == N, "L == N"),
        (lambda: L > 4, "L > 4"),
        (lambda: L <= N, "L <= N"),
        (lambda: bool(L), "L"),
        (lambda: int(L), "L"),
        (lambda: float(L), "L"),
        (lambda: range(L), "L"),  # type: ignore[call-overload]
        (lambda: [0] * L, "L"),
        (lambda: L / 2, "L // 2"),
    ],
)
def test_a_question_about_an_unknown_size_is_an_error_that_names_it(question: Callable[[], object], shown: str) -> None:
    with pytest.raises(SymbolicSizeError) as caught:
        question()
    assert shown in str(caught.value)
    assert "run time" in str(caught.value) or "integers" in str(caught.value)


def test_the_errors_show_the_way_out() -> None:
    with pytest.raises(SymbolicSizeError, match=r"lucid.where\(...\).*lucid.sym_max\(...\) or lucid.sym_min"):
        _ = max(L, 4)
    with pytest.raises(SymbolicSizeError, match=r"x.reshape\(L, -1\).*lucid.arange\(L\).*lucid.spec"):
        int(L)  # type: ignore[call-overload]
    with pytest.raises(SymbolicSizeError, match=r"both the same name in lucid\.spec"):
        _ = L == N


def test_division_by_zero_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError, match="N // 0"):
        _ = N // 0
    with pytest.raises(ZeroDivisionError, match="N % 0"):
        _ = N % 0


def test_powers_parts_and_text_of_a_size() -> None:
    assert same(N**2, N * N) and N**0 == 1
    assert divmod(N * 4 + 1, 4) == (N, 1)
    assert same(divmod(7, N)[1], 7 % N)
    assert (f"{N:>4}", f"{N + 1}") == ("   N", "N + 1")


@pytest.mark.parametrize(
    "compute",
    [lambda n: n * 1.5, lambda n: 0.5 + n, lambda n: n**-0.5, lambda n: n**-1, lambda n: 2**n, lambda n: 1 / n],
)
def test_what_is_no_whole_number_is_refused_and_computed_as_a_tensor(compute: Callable[[Any], Any]) -> None:
    with pytest.raises(SymbolicSizeError, match=r"not always a whole number.*a tensor, with lucid\.tensor"):
        compute(N)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x * lucid.tensor(x.shape[1]) ** -0.5,
        lambda x: x + lucid.tensor([x.shape[1], x.shape[0], 1, 2]),
        lambda x: x + lucid.tensor([[x.shape[1], 0.5, 1, 2], [1, 2, 3, x.shape[0] * 2]]).sum(0),
        lambda x: x * lucid.tensor(x.shape[1], dtype="float32").sqrt(),
        lambda x: x.roll(x.shape[1] // 2, 1),
        lambda x: x.roll(x.shape[1], 2).roll((1, x.shape[0]), (0, 1)),
        lambda x: x.triu(diagonal=x.shape[1] - 1) + x.tril(diagonal=-x.shape[0]),
        lambda x: lucid.full((x.shape[1], x.shape[0] + x.shape[1]), -1.0).triu(diagonal=x.shape[0] + 1),
        lambda x: lucid.full((2,), x.shape[1]) + lucid.full((), x.shape[0], "float32") + x.new_full((), x.shape[1]),
        lambda x: F.one_hot(x.argmax(1), x.shape[1]),
    ],
)
def test_sizes_as_numbers_are_exported(compute: Callable[[Any], Any]) -> None:
    assert_parity(compute, ("N", "L", 4), providers=["cpu"])


@pytest.mark.parametrize(
    "compute",
    [
        lambda x, y: x[:, -y.shape[0] :].var(1),
        lambda x, y: x[:, : -y.shape[0]] * lucid.arange(x.shape[1] - y.shape[0]),
        lambda x, y: x[: -(x.shape[0] // 2)].mean(0) * x[: -(x.shape[0] // 2)].shape[0],
        lambda x, y: x[:, -y.shape[0]] + y.sum(),
        lambda x, y: x.narrow(1, -y.shape[0], y.shape[0]).mean(1),
        lambda x, y: x[:, -2 * y.shape[0] : -y.shape[0]].sum(1),
    ],
)
def test_a_negative_size_counts_from_the_end(compute: Callable[[Any, Any], Any]) -> None:
    draw = np.random.default_rng(0)
    x, y = (draw.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (3, 1)))
    expected = compute(*map(lucid.Tensor, (x, y))).numpy()
    graph = lucid.trace(compute, ("N", "M"), ("K", 1))
    np.testing.assert_allclose(graph.run([x, y])[0], expected, rtol=1e-5)
    np.testing.assert_allclose(Session(lucid.export.to_onnx(graph), threads=1)(x, y).numpy(), expected, rtol=1e-5)


def test_the_type_of_the_last_elements_is_their_number() -> None:
    kind = lucid.trace(lambda s, m: s + m[:, -s.shape[1] :], ("N", "L"), ("N", "S")).outputs[0].type
    assert str(kind) == "float32[N, L]"


def test_other_operands_are_refused() -> None:
    with pytest.raises(TypeError):
        _ = N + "1"  # type: ignore[operator]
    with pytest.raises(TypeError):
        _ = N ** "1"  # type: ignore[operator]
    assert (N == "N") is False


def test_a_size_is_a_whole_number_of_any_type_or_symbolic() -> None:
    assert as_size("reshape", N) is N
    assert as_size("reshape", -1) == -1
    assert type(as_size("reshape", np.int64(3))) is int
    with pytest.raises(TypeError, match=r"reshape: size 2\.0 is float, expected a whole number or a symbolic size"):
        as_size("reshape", 2.0)  # type: ignore[arg-type]


def test_names_of_a_derived_size() -> None:
    assert names_of([N * L, S // 2, 7]) == {"N", "L", "S"}
    assert isinstance(N, Dim)
    assert N.names() == {"N"}


# In models ------------------------------------------------------------------------------------------------------------


def test_rows_of_a_strided_convolution_are_joined() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            _, c, _, w = (y := self.conv(x)).shape
            return y.permute(0, 2, 3, 1).reshape(-1, w, c)

    check_at_sizes(Rows(), ("N", 3, "H", "W"), [(2, 3, 5, 6), (1, 3, 1, 1), (3, 3, 8, 3)])


def test_slices_with_a_step_stand_beside_each_other() -> None:
    def model(x: lucid.Tensor) -> lucid.Tensor:
        parts = [x[:, ::3], (x + x)[:, ::3], x[:, ::2][:, : (x.shape[1] + 2) // 3], x[:, ::-3], (x * x)[:, ::-3]]
        return lucid.stack([lucid.ops.gelu(part) for part in parts])

    check_at_sizes(model, ("N", "L"), [(2, 7), (1, 1), (3, 9), (2, 0)])


@pytest.mark.parametrize("window", [1, 2, 4, 7])
@pytest.mark.parametrize(
    "padding", [lambda l, w: -l % w, lambda l, w: (w - l % w) % w, lambda l, w: -(-l // w) * w - l]
)
def test_attention_in_windows_that_pad_and_cut_back_is_exported(
    window: int, padding: Callable[[Size, int], Size]
) -> None:
    attention = nn.MultiHeadAttention(8, 2)

    class Local(nn.Module):
        def __init__(self) -> None:
            self.attention = attention

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            n, l, e = x.shape
            p = padding(l, window)
            padded = lucid.ops.pad(x, before=(0, 0, 0), after=(0, p, 0))
            windows = padded.reshape(n, (l + p) // window, window, e).reshape(-1, window, e)
            y = self.attention(windows)
            return y.reshape(n, -1, window, e).reshape(n, l + p, e)[:, :l]

    check_at_sizes(Local(), ("N", "L", 8), [(1, length, 8) for length in (1, 2, 3, 6, 7, 8, 13, 28)])


def test_maxima_and_minima_are_exported() -> None:
    def model(x: lucid.Tensor) -> lucid.Tensor:
        n, l = x.shape
        longer = lucid.concat([x, lucid.zeros(n, sym_max(8 - l, 0))], axis=1)  # at least 8 long
        return longer[:, : sym_min(l, 11)]

    check_at_sizes(model, ("N", "L"), [(2, length) for length in (1, 5, 6, 7, 8, 9, 13)])


# Sizes of the inputs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specs", "shapes"),
    [
        ([("2*L", "N")], [(6, 1)]),
        ([("3*L + 2", "N"), ("L + P + N",)], [(11, 2), (9,)]),
        ([("N*N + L", "N")], [(13, 3)]),
    ],
)
def test_a_name_is_read_from_an_axis_that_it_alone_decides(
    specs: list[tuple[str, ...]], shapes: list[tuple[int, ...]]
) -> None:
    def model(*inputs: lucid.Tensor) -> lucid.Tensor:
        return lucid.concat([lucid.full(inputs[0].shape[0] + L, 0.5), *(x.reshape(-1) for x in inputs)])

    arrays = [np.ones(shape, np.float32) for shape in shapes]
    session = Session(lucid.export.to_onnx(model, *specs), threads=1)
    outputs = session.run(dict(zip(session.inputs, arrays, strict=True)))
    np.testing.assert_array_equal(next(iter(outputs.values())), lucid.trace(model, *specs).run(arrays)[0])


@pytest.mark.parametrize(
    ("shape", "message"), [((1, 3), "size 3 at axis 1, expected 2*L, with a whole number L"), ((0, 0), "")]
)
def test_a_length_that_no_size_gives_is_refused(shape: tuple[int, int], message: str) -> None:
    graph = lucid.trace(lambda x: x + 1, ("N", "2*L"))
    if message:
        with pytest.raises(ValueError, match=re.escape(message)):
            graph.run([np.zeros(shape, np.float32)])
    else:
        graph.run([np.zeros(shape, np.float32)])


def test_windows_of_a_symbolic_width_are_exported() -> None:
    def model(x: lucid.Tensor, window: lucid.Tensor) -> lucid.Tensor:
        (l,), (w,) = x.shape, window.shape
        padded = lucid.ops.pad(x, before=(0,), after=(-l % w,))
        return (padded.reshape((l + -l % w) // w, w) + window).reshape(-1)[:l]

    graph = lucid.trace(model, ("L",), ("W",))
    session = Session(lucid.export.to_onnx(model, ("L",), ("W",)))
    for length, width in [(1, 1), (5, 2), (6, 3), (2, 7)]:
        inputs = np.arange(length, dtype=np.float32), np.arange(width, dtype=np.float32)
        expected = inputs[0] + inputs[1][np.arange(length) % width]
        np.testing.assert_array_equal(graph(*inputs), expected)
        np.testing.assert_array_equal(session(*inputs), expected)


@pytest.mark.parametrize(
    "compute",
    [
        lambda l, s: l // 3,
        lambda l, s: -l // 3,
        lambda l, s: l // -3,
        lambda l, s: l % -3,
        lambda l, s: -l % 3,
        lambda l, s: (l - s) // s,
        lambda l, s: (l - 2 * s) % s,
        lambda l, s: l // -s,
        lambda l, s: l % -s,
        lambda l, s: (l % 5) // 2 * s,
        lambda l, s: ((l - 9) // 4) % s,
        lambda l, s: (((l - 1) // 2 - 3) // 2 + 1) // 3,
        lambda l, s: -(-(l + 1) // 4) // 2 + s // 2,
    ],
)
def test_exported_division_is_pythons(compute: Callable[[Size, Size], Size]) -> None:
    def model(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        return lucid.tensor(0) + compute(x.shape[0], y.shape[0])

    session = Session(lucid.export.to_onnx(model, ("L",), ("S",)))
    for l in (0, 1, 4, 7, 12):
        for s in (1, 2, 5):
            quotient = session(np.zeros(l, np.float32), np.zeros(s, np.float32))
            assert int(np.asarray(quotient)) == compute(l, s), (l, s)


def test_quotients_of_quotients_are_computed_at_once() -> None:
    """As the height of an image after five convolutions with a stride of 2."""

    def model(x: lucid.Tensor) -> lucid.Tensor:
        size = x.shape[0]
        for _ in range(5):
            size = (size - 1) // 2 + 1
        return lucid.tensor(size)

    exported = lucid.export.to_onnx(model, ("H",))
    assert [node.op_type for node in exported.graph.node] == ["Shape", "Add", "Div", "Squeeze"]
    assert [int(Session(exported)(np.zeros(h, np.float32)).numpy()) for h in (0, 1, 32, 33)] == [0, 1, 1, 2]


def check_at_sizes(model: Callable[..., object], spec: tuple[Size | str, ...], shapes: list[tuple[int, ...]]) -> None:
    """Compare a model with one input eagerly, as a graph and exported, at sizes that the trace never saw."""
    graph, session = lucid.trace(model, spec), Session(lucid.export.to_onnx(model, spec))
    for shape in shapes:
        x = lucid.randn(*shape)
        expected = np.asarray(model(x))
        np.testing.assert_allclose(graph(x.numpy()), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(session(x.numpy()), expected, rtol=1e-5, atol=1e-6)


def test_quotients_that_are_one_number_within_the_limits_are_that() -> None:
    """As where Mamba-2 pads to blocks of 256 and counts them."""

    def blocks(x: Any) -> Any:
        length = x.shape[0]
        padding = -length % 256
        assert padding > 0 and (length + padding) // 256 == 1
        return F.pad(x, (0, padding)).reshape(256), lucid.zeros((length + 255) // 256 + 1)

    graph = lucid.trace(blocks, ("2 <= L <= 64",))
    assert [str(output.type) for output in graph.outputs] == ["float32[256]", "float32[2]"]
    assert_parity(blocks, ("2 <= L <= 64",))
    with pytest.raises(SymbolicSizeError, match="known only at run time"):
        lucid.trace(blocks, ("2 <= L <= 300",))


def test_within_limits_sizes_are_exported_as_they_were_written() -> None:
    def padded(x: Any) -> Any:
        return F.pad(x, (0, -x.shape[0] % 8))

    with_limits, without = (to_onnx(padded, (size,)).graph.node for size in ("2 <= L <= 64", "L"))
    assert [node.op_type for node in with_limits] == [node.op_type for node in without]


def test_quotients_have_limits() -> None:
    def compare(x: Any) -> Any:
        length = x.shape[0]
        assert 1 <= length // 8 <= 8 and -(length // 8) < 0 and sym_max(length - 3, 9) >= 9
        return x

    lucid.trace(compare, ("8 <= L <= 64",))
    with pytest.raises(SymbolicSizeError):
        lucid.trace(compare, ("7 <= L <= 64",))
    quotient = lucid.trace(lambda x: lucid.zeros(5 // x.shape[0]), ("0 <= L <= 0",)).outputs[0]
    assert str(quotient.type) == "float32[(5//L)]"  # of which there is none
