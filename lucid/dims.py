"""Symbolic sizes: an axis whose length is known only when the model runs.

A `Dim` is an integer polynomial over named sizes, so that ``n * l``, ``l + 1`` or ``e // h`` can be written in
a model exactly as with integers. Whatever turns out to be constant *is* an ``int``: ``(n + 2) - n`` gives ``2``. Names
stand for sizes that are zero or more; the same name means the same size everywhere in a graph.

A Dim has no value while a model is traced. Asking for one (``int(l)``, ``if l > 4``, ``range(l)``) raises
`SymbolicSizeError` instead of quietly fixing the size to what it was in some example.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn, SupportsIndex, TypeAlias, Union

Size: TypeAlias = Union[int, "Dim"]
Shape: TypeAlias = tuple[Size, ...]


class SymbolicSizeError(TypeError):
    """A size that is known only at run time was used where a number is needed."""


class Derived(NamedTuple):
    """A quotient or remainder that is no polynomial, such as ``L // 2``."""

    operator: str
    left: Size
    right: Size

    def __str__(self) -> str:
        return f"{_bracket(self.left)}{self.operator}{_bracket(self.right)}"


Atom: TypeAlias = str | Derived
Monomial: TypeAlias = tuple[Atom, ...]  # sorted, with repetition: N*N*L is ("L", "N", "N")


class Dim:
    """An integer polynomial over named sizes. Made by `dim`, or by arithmetic on other Dims."""

    __slots__ = ("_hash", "_terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self._terms = dict(sorted(terms.items(), key=lambda item: _order(item[0])))
        self._hash = hash(tuple(self._terms.items()))

    @property
    def terms(self) -> Mapping[Monomial, int]:
        """The coefficient of each monomial."""
        return self._terms

    def names(self) -> set[str]:
        """The named sizes that this one depends on."""
        found: set[str] = set()
        for monomial in self._terms:
            for atom in monomial:
                if isinstance(atom, str):
                    found.add(atom)
                else:
                    found |= names_of((atom.left, atom.right))
        return found

    def __add__(self, other: Size) -> Size:
        return _sum(self, other, 1) if isinstance(other, (int, Dim)) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Size) -> Size:
        return _sum(self, other, -1) if isinstance(other, (int, Dim)) else NotImplemented

    def __rsub__(self, other: Size) -> Size:
        return _sum(other, self, -1) if isinstance(other, (int, Dim)) else NotImplemented

    def __neg__(self) -> Size:
        return _sum(0, self, -1)

    def __mul__(self, other: Size) -> Size:
        if not isinstance(other, (int, Dim)):
            return NotImplemented
        product: dict[Monomial, int] = {}
        for left, a in self._terms.items():
            for right, b in _terms(other).items():
                monomial = tuple(sorted(left + right, key=str))
                product[monomial] = product.get(monomial, 0) + a * b
        return _collapse(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return _floordiv(self, other) if isinstance(other, (int, Dim)) else NotImplemented

    def __rfloordiv__(self, other: Size) -> Size:
        return _floordiv(other, self) if isinstance(other, (int, Dim)) else NotImplemented

    def __mod__(self, other: Size) -> Size:
        return _mod(self, other) if isinstance(other, (int, Dim)) else NotImplemented

    def __rmod__(self, other: Size) -> Size:
        return _mod(other, self) if isinstance(other, (int, Dim)) else NotImplemented

    def __truediv__(self, other: object) -> NoReturn:
        raise SymbolicSizeError(f"sizes are integers: write {self} // {other} instead of {self} / {other}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, Dim)):
            return NotImplemented
        sign = _sign(self - other)
        if sign is None:
            raise SymbolicSizeError(
                f"whether {self} == {other} is known only at run time; where they are the same size, "
                "give both the same name in lucid.spec(...), or make the size a number"
            )
        return sign == 0

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Size) -> bool:
        return _decide(self, "<", other) < 0

    def __le__(self, other: Size) -> bool:
        return _decide(self, "<=", other) <= 0

    def __gt__(self, other: Size) -> bool:
        return _decide(self, ">", other) > 0

    def __ge__(self, other: Size) -> bool:
        return _decide(self, ">=", other) >= 0

    def __bool__(self) -> NoReturn:
        raise SymbolicSizeError(f"whether {self} is zero is known only at run time: a model cannot branch on it")

    def __index__(self) -> NoReturn:
        raise SymbolicSizeError(
            f"the size {self} is known only at run time, so it has no integer value here: use it in shapes "
            f"(x.reshape({self}, -1)) or as lucid.arange({self}), or fix it with a number in lucid.spec(...)"
        )

    __int__ = __float__ = __index__

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self._terms.items():
            factors = [str(abs(coefficient))] if abs(coefficient) != 1 or not monomial else []
            product = "*".join(factors + [_bracket_atom(atom) for atom in monomial])
            sign = "-" if coefficient < 0 else "+"
            text += f" {sign} {product}" if text else ("-" if coefficient < 0 else "") + product
        return text

    def __repr__(self) -> str:
        return str(self)


def dim(text: str) -> Size:
    """A size from text: a name (``"N"``) or a sum of products (``"2*L + 1"``).

    Raises:
        ValueError: when the text is neither.
    """
    total: Size = 0
    if not re.fullmatch(r"\s*\w+(\s*[*+]\s*\w+)*\s*", text):
        raise ValueError(f'size "{text}": expected a name such as "N", or a sum of products such as "2*L + 1"')
    for term in text.split("+"):
        product: Size = 1
        for factor in (part.strip() for part in term.split("*")):
            if not factor.isdigit() and not factor.isidentifier():
                raise ValueError(f'size "{text}": "{factor}" is neither a number nor a name')
            product = product * (int(factor) if factor.isdigit() else Dim({(factor,): 1}))
        total = total + product
    return total


def names_of(sizes: Iterable[Size]) -> set[str]:
    """The named sizes that the given sizes depend on."""
    return set[str]().union(*(size.names() for size in sizes if isinstance(size, Dim)))


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are certainly equal. Never raises, unlike ``==``."""
    return _sign(a - b) == 0


def evaluate(size: Size, sizes: Mapping[str, int]) -> int:
    """The value of a size where the named sizes have the given values."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, coefficient in size.terms.items():
        for atom in monomial:
            if isinstance(atom, str):
                coefficient *= sizes[atom]
            else:
                left, right = evaluate(atom.left, sizes), evaluate(atom.right, sizes)
                coefficient *= left // right if atom.operator == "//" else left % right
        total += coefficient
    return total


def as_size(where: str, value: Size | SupportsIndex) -> Size:
    """A size from a whole number of any type, NumPy's included, or a symbolic size.

    Raises:
        TypeError: for anything else; `where` opens the message.
    """
    if isinstance(value, (int, Dim)):
        return value
    if not isinstance(value, SupportsIndex):
        raise TypeError(
            f"{where}: size {value!r} is {type(value).__name__}, expected a whole number or a symbolic size"
        )
    return operator.index(value)


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes: the number of elements of a shape."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def _order(monomial: Monomial) -> tuple[bool, int, list[str]]:
    """Constants last, higher powers first, then by name: N*L + N + 1."""
    return (not monomial, -len(monomial), [str(atom) for atom in monomial])


def _terms(size: Size) -> Mapping[Monomial, int]:
    return size.terms if isinstance(size, Dim) else {(): size}


def _collapse(terms: Mapping[Monomial, int]) -> Size:
    kept = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}
    if not kept:
        return 0
    return kept[()] if len(kept) == 1 and () in kept else Dim(kept)


def _sum(a: Size, b: Size, sign: int) -> Size:
    total = dict(_terms(a))
    for monomial, coefficient in _terms(b).items():
        total[monomial] = total.get(monomial, 0) + sign * coefficient
    return _collapse(total)


def _divide(a: Size, b: Size) -> tuple[Size, Size]:
    """Polynomial long division: quotient and remainder with ``a == quotient * b + remainder``."""
    lead, scale = next(iter(_terms(b).items()))
    quotient: Size = 0
    remainder: Size = 0
    while not (isinstance(a, int) and a == 0):
        monomial, coefficient = next(iter(_terms(a).items()))
        rest = list(monomial)
        divisible = coefficient % scale == 0
        for atom in lead:
            divisible = divisible and atom in rest
            if divisible:
                rest.remove(atom)
        if divisible:
            term = _collapse({tuple(rest): coefficient // scale})
            quotient, a = quotient + term, a - term * b
        else:
            term = _collapse({monomial: coefficient})
            remainder, a = remainder + term, a - term
    return quotient, remainder


def _floordiv(a: Size, b: Size) -> Size:
    if isinstance(b, int) and b == 0:
        raise ZeroDivisionError(f"{a} // 0")
    quotient, remainder = _divide(a, b)
    if isinstance(remainder, int) and isinstance(b, int):
        return quotient + remainder // b
    if isinstance(remainder, int) and remainder == 0:
        return quotient
    # (q*b + r) // b is q + r // b for integers, whatever the sign of r.
    return quotient + Dim({(Derived("//", remainder, b),): 1})


def _mod(a: Size, b: Size) -> Size:
    if isinstance(b, int) and b == 0:
        raise ZeroDivisionError(f"{a} % 0")
    _, remainder = _divide(a, b)
    if isinstance(remainder, int) and (isinstance(b, int) or remainder == 0):
        return remainder % b if isinstance(b, int) else 0
    return Dim({(Derived("%", remainder, b),): 1})


def _sign(difference: Size) -> int | None:
    """-1, 0 or 1 where the sign is certain for all sizes of zero or more, else None."""
    if isinstance(difference, int):
        return (difference > 0) - (difference < 0)
    constant = difference.terms.get((), 0)
    plain = all(isinstance(atom, str) for monomial in difference.terms for atom in monomial)
    coefficients = [c for monomial, c in difference.terms.items() if monomial]
    if plain and constant > 0 and all(c > 0 for c in coefficients):
        return 1
    if plain and constant < 0 and all(c < 0 for c in coefficients):
        return -1
    return None


def _decide(a: Dim, operator: str, b: Size) -> int:
    """A number that compares with zero as ``a`` does with ``b``, for the given operator."""
    difference = a - b
    sign = _sign(difference)
    # L >= 0 and L + P >= L hold although L may equal 0: ask whether the difference can pass the bound at all.
    if sign is None and operator in (">=", "<"):
        sign = _sign(difference + 1)
        sign = sign if sign == 1 else None
    elif sign is None:
        sign = _sign(difference - 1)
        sign = sign if sign == -1 else None
    if sign is None:
        raise SymbolicSizeError(
            f"whether {a} {operator} {b} is known only at run time: a traced model cannot branch on it; "
            "fix the size with a number in lucid.spec(...), or compute with lucid.where(...)"
        )
    return sign


def _bracket(size: Size) -> str:
    text = str(size)
    return f"({text})" if " " in text or "*" in text or "/" in text else text


def _bracket_atom(atom: Atom) -> str:
    return atom if isinstance(atom, str) else f"({atom})"
