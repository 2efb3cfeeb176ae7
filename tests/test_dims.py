"""Symbolic sizes: integer polynomials over named sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucid.dims import Dim, Size, SymbolicSizeError, as_size, dim, evaluate, names_of, product, same

N, L, S = dim("N"), dim("L"), dim("S")

NAMES = ("N", "L", "S")
VALUES = st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES})

Expression = tuple[Size, Callable[[dict[str, int]], int]]  # the same arithmetic on symbols and on numbers


def _join(pair: tuple[Expression, Expression, Callable[[Size, Size], Size]]) -> Expression:
    (left, left_value), (right, right_value), apply = pair
    return apply(left, right), lambda values: int(apply(left_value(values), right_value(values)))  # type: ignore[arg-type]


def _divide(pair: tuple[Expression, int, Callable[[Size, Size], Size]]) -> Expression:
    (left, left_value), divisor, apply = pair
    return apply(left, divisor), lambda values: int(apply(left_value(values), divisor))  # type: ignore[arg-type]


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
        st.tuples(inner, inner, st.sampled_from([operator.add, operator.sub, operator.mul])).map(_join),
        st.tuples(
            inner,
            st.integers(-7, 7).filter(bool),
            st.sampled_from([operator.floordiv, operator.mod]),
        ).map(_divide),
    ),
    max_leaves=6,
)


# Arithmetic is arithmetic ---------------------------------------------------------------------------------------------


@given(EXPRESSIONS, VALUES)
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


def test_text_orders_powers_first_and_constants_last() -> None:
    assert str(1 + L + N * L - 2 * S) == "L*N + L - 2*S + 1"
    assert str(-N) == "-N"
    assert repr(N * N) == "N*N"


# Text to sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("N", N), ("12", 12), ("2*L + 1", 2 * L + 1), (" N * L+S ", N * L + S), ("past_length", dim("past_length"))],
)
def test_dim_reads_names_and_sums_of_products(text: str, expected: Size) -> None:
    assert same(dim(text), expected)


@pytest.mark.parametrize("text", ["", "N-1", "N//2", "2N", "N L", "N + ", "-3"])
def test_dim_refuses_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        dim(text)


def test_printed_polynomials_with_positive_terms_read_back() -> None:
    for size in (N, 2 * N + 1, N * L + 3 * S, N * N):
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
    with pytest.raises(SymbolicSizeError, match=r"lucid.where\(...\)"):
        _ = L > 4
    with pytest.raises(SymbolicSizeError, match=r"x.reshape\(L, -1\).*lucid.arange\(L\).*lucid.spec"):
        int(L)  # type: ignore[call-overload]
    with pytest.raises(SymbolicSizeError, match=r"both the same name in lucid\.spec"):
        _ = L == N


def test_division_by_zero_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError, match="N // 0"):
        _ = N // 0
    with pytest.raises(ZeroDivisionError, match="N % 0"):
        _ = N % 0


def test_other_operands_are_refused() -> None:
    with pytest.raises(TypeError):
        _ = N + "1"  # type: ignore[operator]
    with pytest.raises(TypeError):
        _ = N * 1.5  # type: ignore[operator]
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
