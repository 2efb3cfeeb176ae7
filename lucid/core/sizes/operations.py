"""Operations on integer polynomials whose result may not be a polynomial: quotients, remainders, maxima and minima.

Quotients round down, as in Python.

If a division is exact, the result is a polynomial again. Otherwise it is an atom, an `Operation`, which is shown as it
was written; `plain` gives the normal form that equal ones share: ``l + -l % 4`` and ``(l + 3) // 4 * 4`` are one size,
and so are ``max(l, 4) + min(l, 4)`` and ``l + 4``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TypeAlias, Union

from lucid.core.sizes.limits import known_limits
from lucid.core.sizes.polynomials import Product, add, constant, divide, multiply, order

Atom: TypeAlias = Union[str, "Operation"]
Terms: TypeAlias = Mapping[Product[Atom], int]
Bounds: TypeAlias = tuple[float, float]


class Operation:
    """An atom that is not a name: ``L // 2``, ``L % 2``, ``max(L, 4)``, ``min(L, 4)``; equal if its text is."""

    __slots__ = ("_text", "left", "operator", "plain", "right")

    def __init__(self, operator: str, left: Terms, right: Terms) -> None:
        self.operator, self.left, self.right = operator, left, right
        if operator in ("max", "min"):
            self._text = f"{operator}({text(left)}, {text(right)})"
        else:
            self._text = f"{_bracket(text(left))}{operator}{_bracket(text(right))}"
        self.plain: Terms | None = None  # set on first use

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def text(terms: Terms) -> str:
    """A polynomial as text, with the terms in their order."""
    shown = ""
    for product, coefficient in terms.items():
        factors = [str(abs(coefficient))] if abs(coefficient) != 1 or not product else []
        factor = "*".join(factors + [_factor(atom) for atom in product])
        sign = "-" if coefficient < 0 else "+"
        shown += f" {sign} {factor}" if shown else ("-" if coefficient < 0 else "") + factor
    return shown or "0"


def _factor(atom: Atom) -> str:
    return f"({atom})" if isinstance(atom, Operation) and atom.operator in ("//", "%") else str(atom)


def in_order(terms: Terms) -> Terms:
    """The terms as they are shown: powers first, constants last."""
    return dict(sorted(terms.items(), key=lambda item: order(item[0]))) if len(terms) > 1 else terms


def floordiv(a: Terms, b: Terms) -> Terms:
    """a // b."""
    return _whole_and_rest(*_divided(a, b), b)


def mod(a: Terms, b: Terms) -> Terms:
    """a % b."""
    _, remainder = _divided(a, b)
    divisor, number = constant(b), constant(remainder)
    if number is not None and (number == 0 or divisor is not None):
        return add({(): number % divisor} if divisor else {}, {})
    return {(Operation("%", in_order(remainder), in_order(b)),): 1}


def _divided(a: Terms, b: Terms) -> tuple[Terms, Terms]:
    """Quotient and remainder with a = quotient * b + remainder: as written, or the normal forms if these divide."""
    quotient, remainder = divide(a, b)
    if constant(remainder) is None:
        exact, rest = divide(plain(a), plain(b))
        if constant(rest) is not None:
            return exact, rest
    return quotient, remainder


def is_polynomial(terms: Terms) -> bool:
    """Whether all atoms are names."""
    for product in terms:
        for atom in product:
            if not isinstance(atom, str):
                return False
    return True


def extreme(operator: str, a: Terms, b: Terms) -> Terms:
    """The larger ("max") or smaller ("min") of two."""
    return {(Operation(operator, in_order(a), in_order(b)),): 1}


def range_of(terms: Terms) -> Bounds:
    """The least and the largest value of plain terms for all sizes within their limits, by default of 0 or more."""
    low = high = float(terms.get((), 0))
    for product, coefficient in terms.items():
        if product:
            factor: Bounds = (coefficient, coefficient)
            least, most = functools.reduce(_product, map(_range_of_atom, product), factor)
            low, high = low + least, high + most
    return low, high


def settled(terms: Terms) -> Terms:
    """Plain terms in which quotients and maxima that are one number within the limits are that: ``L // 64`` is 0 for
    ``L < 64``.
    """
    total: Terms = {}
    for product, coefficient in terms.items():
        atoms: Product[Atom] = ()
        for atom in product:
            low, high = (0.0, 1.0) if isinstance(atom, str) else _range_of_atom(atom)
            if low == high and math.isfinite(low):
                coefficient *= int(low)
            else:
                atoms = (*atoms, atom)
        total = add(total, {atoms: coefficient})
    return total


def _product(a: Bounds, b: Bounds) -> Bounds:
    products = [x * y if x and y else 0.0 for x in a for y in b]  # 0 times infinity is 0
    return min(products), max(products)


def _range_of_atom(atom: Atom) -> Bounds:
    if isinstance(atom, str):
        return known_limits().get(atom, (0, math.inf))
    (low, high), (least, most) = range_of(atom.left), range_of(atom.right)
    if atom.operator == "max":
        return max(low, least), max(high, most)
    if atom.operator == "//" and least >= 0:
        return _quotient(low, most if low >= 0 else least), _quotient(high, least if high >= 0 else most)
    return -math.inf, math.inf


def _quotient(a: float, b: float) -> float:
    """Rounded down; of infinity, or by 0, infinity."""
    return a // b if b and math.isfinite(a) else math.copysign(math.inf, a)


def plain(terms: Terms) -> Terms:
    """The normal form that all spellings of a size share: no remainders, and only some kinds of quotients."""
    if is_polynomial(terms):
        return terms
    total: Terms = {}
    for product, coefficient in terms.items():
        term: Terms = {(): coefficient}
        for atom in product:
            term = multiply(term, {(atom,): 1} if isinstance(atom, str) else _plain_atom(atom))
        total = add(total, term)
    return total


def _plain_atom(atom: Operation) -> Terms:
    if atom.plain is None:
        left, right = plain(atom.left), plain(atom.right)
        if atom.operator == "//":
            atom.plain = _plain_quotient(left, right)
        elif atom.operator == "%":  # a % b is a - b * (a // b)
            atom.plain = add(left, multiply(right, _plain_quotient(left, right)), -1)
        elif atom.operator == "max":
            atom.plain = _plain_maximum(left, right)
        else:  # min(a, b) is a + b - max(a, b)
            atom.plain = add(add(left, right), _plain_maximum(left, right), -1)
    return atom.plain


def _plain_maximum(a: Terms, b: Terms) -> Terms:
    """max(a, b) as b + f * max(d, 0): f is positive, and d begins with a positive term and has no common factor."""
    difference: Terms = add(a, b, -1)
    if not difference:
        return a
    if difference[min(difference, key=order)] < 0:
        a, b, difference = b, a, _negative(difference)
    factor = math.gcd(*difference.values())
    divided = {product: coefficient // factor for product, coefficient in difference.items()}
    return add(b, {(Operation("max", in_order(divided), {}),): factor})


def _plain_quotient(a: Terms, b: Terms) -> Terms:
    """a // b with a positive divisor b, in the form (c*x + ...) // b where c > 0, and a constant from 0 to b - 1."""
    if b[min(b, key=order)] < 0:
        a, b = _negative(a), _negative(b)
    whole, rest = divide(a, b)
    divisor = constant(b)
    if constant(rest) is not None or divisor is None:
        return _whole_and_rest(whole, rest, b)
    upwards = rest[min(rest, key=order)] < 0
    if upwards:  # -(-l // 4), the usual way to round up, is (l + 3) // 4
        rest = add(_negative(rest), {(): divisor - 1})
    inner = _sum_with_quotient(rest)
    if inner is not None:  # (l // 3 + 1) // 2 is (l + 3) // 6
        numerator, denominator = inner
        rounded = _plain_quotient(numerator, {(): denominator * divisor})
    else:
        extra = rest.get((), 0) // divisor
        rounded = _whole_and_rest({(): extra}, add(rest, {(): extra * divisor}, -1), b)
    return add(whole, rounded, -1 if upwards else 1)


def _sum_with_quotient(terms: Terms) -> tuple[Terms, int] | None:
    """a + k * b and b, of a // b + k with a positive number b; None for any other sum."""
    atoms = [product for product in terms if product]
    if len(atoms) != 1 or len(atoms[0]) != 1 or terms[atoms[0]] != 1:
        return None
    (atom,) = atoms[0]
    if not isinstance(atom, Operation) or atom.operator != "//":
        return None
    divisor = constant(atom.right)
    if divisor is None or divisor <= 0:
        return None
    return add(atom.left, {(): terms.get((), 0) * divisor}), divisor


def _whole_and_rest(whole: Terms, rest: Terms, b: Terms) -> Terms:
    """(whole * b + rest) // b, which is whole + rest // b for integers, whatever the sign of the rest."""
    number, divisor = constant(rest), constant(b)
    if number is not None and (number == 0 or divisor is not None):
        return add(whole, {(): number // divisor} if divisor else {})
    return add(whole, {(Operation("//", in_order(rest), in_order(b)),): 1})


def _negative(terms: Terms) -> Terms:
    return {product: -coefficient for product, coefficient in terms.items()}


def _bracket(shown: str) -> str:
    return f"({shown})" if " " in shown or "*" in shown or "/" in shown else shown
