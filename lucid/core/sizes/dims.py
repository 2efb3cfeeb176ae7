"""Symbolic sizes: an axis whose length is known only when the model runs.

A `Dim` is an integer polynomial over named sizes, so that ``n * l``, ``l + 1`` or ``e // h`` can be written in a model
exactly as with integers. A constant result *is* an ``int``: ``(n + 2) - n`` gives ``2``. Names are sizes of zero or
more; the same name means the same size everywhere in a graph. Division rounds down and remainders have the sign of the
divisor, as in Python, and this is used to simplify: ``l + (-l % w)`` is known to be a multiple of ``w``.

A Dim has no value while a model is traced. Asking for a value (``int(l)``, ``if l > 4``, ``range(l)``) raises
`SymbolicSizeError` instead of silently fixing the size to that of an example. ``==`` may raise it too, so sets, dicts
and caches compare the text of sizes instead (`identity`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NoReturn, Protocol, SupportsIndex, TypeAlias, Union, runtime_checkable

from lucid.core.process.cache_keys import type_key
from lucid.core.sizes.limits import Limits, known_limits
from lucid.core.sizes.operations import (
    Operation,
    Terms,
    extreme,
    floordiv,
    in_order,
    is_polynomial,
    mod,
    plain,
    range_of,
    settled,
    text,
)
from lucid.core.sizes.polynomials import add, constant, multiply

Size: TypeAlias = Union[int, "Dim"]
Shape: TypeAlias = tuple[Size, ...]


class SymbolicSizeError(TypeError):
    """A size that is known only at run time was used where a number is needed."""


class Dim:
    """An integer polynomial over named sizes. Made by `dim`, or by arithmetic on other Dims."""

    __slots__ = ("_key", "_terms", "_text", "limits")

    def __init__(self, terms: Terms, limits: Limits | None = None) -> None:
        self._terms = in_order(terms)
        self._key = self._text = ""  # made when they are read
        self.limits = limits  # of a name, as its text gave them

    @property
    def terms(self) -> Terms:
        """The coefficient of each monomial."""
        return self._terms

    @property
    def key(self) -> str:
        """A text that is the same for two sizes if and only if they are certainly equal."""
        self._key = self._key or text(in_order(plain(self._terms)))
        return self._key

    def names(self) -> set[str]:
        """The named sizes that this one depends on."""
        return _names(self._terms)

    def __add__(self, other: Size) -> Size:
        return _sum(self, other) if _is_size(other) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Size) -> Size:
        return _sum(self, other, -1) if _is_size(other) else NotImplemented

    def __rsub__(self, other: Size) -> Size:
        return _sum(other, self, -1) if _is_size(other) else NotImplemented

    def __neg__(self) -> Size:
        return _sum(0, self, -1)

    def __mul__(self, other: Size) -> Size:
        if not _is_size(other):
            return NotImplemented
        return as_written(multiply(self._terms, _terms(other)))

    __rmul__ = __mul__

    def __pow__(self, other: int) -> Size:
        if not _is_size(other):
            return NotImplemented
        if isinstance(other, Dim) or other < 0:
            raise SymbolicSizeError(f"{self} ** {other} {_IS_NO_SIZE}")
        return product([self] * other)

    def __rpow__(self, other: object) -> NoReturn:
        raise SymbolicSizeError(f"{other} ** ({self}) {_IS_NO_SIZE}")

    def __floordiv__(self, other: Size) -> Size:
        return _divided(self, "//", other) if _is_size(other) else NotImplemented

    def __rfloordiv__(self, other: Size) -> Size:
        return _divided(other, "//", self) if _is_size(other) else NotImplemented

    def __mod__(self, other: Size) -> Size:
        return _divided(self, "%", other) if _is_size(other) else NotImplemented

    def __rmod__(self, other: Size) -> Size:
        return _divided(other, "%", self) if _is_size(other) else NotImplemented

    def __divmod__(self, other: Size) -> tuple[Size, Size]:
        return self // other, self % other

    def __rdivmod__(self, other: Size) -> tuple[Size, Size]:
        return other // self, other % self

    def __truediv__(self, other: object) -> NoReturn:
        raise SymbolicSizeError(f"sizes are integers: write {self} // {other} instead of {self} / {other}")

    def __rtruediv__(self, other: object) -> NoReturn:
        raise SymbolicSizeError(f"{other} / ({self}) {_IS_NO_SIZE}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, Dim)):
            return NotImplemented
        sign = _sign(self - other)
        if sign is None:
            raise SymbolicSizeError(
                f"whether {self} == {other} is known only at run time; if they are the same size, "
                "give both the same name in lucid.spec(...), or make the size a number"
            )
        return sign == 0

    def __hash__(self) -> int:
        # Hash the text: hashes of numbers collide (those of -1 and -2 are equal), and sets would then compare with ==.
        return hash(self.key)

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
        self._text = self._text or text(self._terms)
        return self._text

    def __repr__(self) -> str:
        return str(self)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


_IS_NO_SIZE = "is not always a whole number, as sizes are: compute it as a tensor, with lucid.tensor(size)"


def _is_size(value: object) -> bool:
    """Whether a value can be combined with a size; an error for a number that is not whole."""
    if isinstance(value, float):
        raise SymbolicSizeError(f"a size combined with {value} {_IS_NO_SIZE}")
    return isinstance(value, (int, Dim))


def dim(text: str) -> Size:
    """A size from text: a name (``"N"``), or products that are added and subtracted (``"2*L + 1"``, ``"2*L - 1"``).

    A name may have limits: ``"L <= 64"``, ``"2 <= L"`` or ``"2 <= L <= 64"``.

    Raises:
        ValueError: for other text, or limits that no size is within.
    """
    if limited := re.fullmatch(r"\s*(?:(\d+)\s*<=\s*)?([^\W\d]\w*)\s*(?:<=\s*(\d+)\s*)?", text):
        least, name, most = limited.groups()
        limits = (int(least or 0), math.inf if most is None else int(most)) if least or most else None
        if limits and limits[0] > limits[1]:
            raise ValueError(f'size "{text}": no size is within these limits')
        return Dim({(name,): 1}, limits)
    if not re.fullmatch(r"\s*\w+(\s*[-*+]\s*\w+)*\s*", text):
        raise ValueError(f'size "{text}": expected a name such as "N", or a sum of products such as "2*L - 1"')
    terms: dict[tuple[Any, ...], int] = {}
    for sign, term in re.findall(r"(^|[-+])([^-+]+)", text):
        number, names = -1 if sign == "-" else 1, list[str]()
        for factor in (part.strip() for part in term.split("*")):
            if factor.isdigit():
                number *= int(factor)
            elif factor.isidentifier():
                names.append(factor)
            else:
                raise ValueError(f'size "{text}": "{factor}" is neither a number nor a name')
        product = tuple(sorted(names))
        terms[product] = terms.get(product, 0) + number
    return as_written({product: number for product, number in terms.items() if number})


def names_of(sizes: Iterable[Size]) -> set[str]:
    """The named sizes that the given sizes depend on."""
    return set[str]().union(*(size.names() for size in sizes if isinstance(size, Dim)))


def as_multiples(sizes: Iterable[Size]) -> str:
    """The end of an error message about sizes such as ``H // 4``: the name of an axis that 4 divides, or nothing."""
    atoms = {atom for size in sizes for factors in _terms(size) for atom in factors if isinstance(atom, Operation)}
    halves = [(text(atom.left), constant(atom.right)) for atom in atoms if atom.operator == "//"]
    axes = sorted(f'"{number}*{name}"' for name, number in halves if number and name.isidentifier())
    return f"; if it always divides, say so in the input's shape: {', '.join(axes)}" if axes else ""


def sym_max(a: Size, b: Size) -> Size:
    """The larger of two sizes, even if only the input tells which one it is: Python's `max` would have to decide.

    Raises:
        TypeError: for anything but a size.
    """
    return _extreme("max", a, b)


def sym_min(a: Size, b: Size) -> Size:
    """The smaller of two sizes; see `sym_max`.

    Raises:
        TypeError: for anything but a size.
    """
    return _extreme("min", a, b)


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are certainly equal. Never raises, unlike ``==``."""
    if a is b:  # most often
        return True
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if not known_limits():  # then no name is certainly a number, and equal sizes have one key
        return isinstance(a, Dim) and isinstance(b, Dim) and a.key == b.key
    return _sign(a - b) == 0


def positive(size: Size) -> bool:
    """Whether a size is certainly above 0."""
    return _sign(size) == 1


def identity(value: Any) -> Hashable:
    """A hashable key for a size, or nested tuples with sizes in them, which ``==`` compares by values and types."""
    if isinstance(value, tuple):
        return tuple(map(identity, value))
    return (Dim, value.key) if isinstance(value, Dim) else (type_key(value), value)


def evaluate(size: Size, sizes: Mapping[str, int]) -> int:
    """The value of a size, given the values of the named sizes."""
    return size if isinstance(size, int) else _evaluate(size.terms, sizes)


def bind(value: Any, sizes: Mapping[str, int]) -> Any:
    """The value of a size, or of nested tuples with sizes in them; anything else unchanged."""
    if isinstance(value, tuple):
        return tuple(bind(item, sizes) for item in value)
    return evaluate(value, sizes) if isinstance(value, Dim) else value


_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
    "min": min,
}


def _evaluate(terms: Terms, sizes: Mapping[str, int]) -> int:
    total = 0
    for product, coefficient in terms.items():
        for atom in product:
            if isinstance(atom, str):
                coefficient *= sizes[atom]
            else:
                coefficient *= _OPERATORS[atom.operator](_evaluate(atom.left, sizes), _evaluate(atom.right, sizes))
        total += coefficient
    return total


@runtime_checkable
class SupportsSize(Protocol):
    """A tensor, whose number may be a symbolic size."""

    def to_size(self) -> Size:
        """Its number, or the symbolic size that it was computed as."""


def as_size(where: str, value: Size | SupportsIndex) -> Size:
    """A size from a whole number of any type, including NumPy's and tensors without axes, or a symbolic size.

    Raises:
        TypeError: for anything else, such as True; the message starts with `where`.
    """
    if value.__class__ is int or isinstance(value, Dim):
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(
            f"{where}: size {value!r} is {type(value).__name__}, expected a whole number or a symbolic size"
        )
    return value.to_size() if isinstance(value, SupportsSize) else operator.index(value)


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes: the number of elements of a shape."""
    return math.prod(sizes)


def as_written(terms: Terms) -> Size:
    """The size given by a polynomial: an int if it is constant, for all sizes within their limits."""
    normal = plain(terms)
    if known_limits() and not is_polynomial(normal) and (within := settled(normal)) != normal:
        normal = terms = within
    # L % 4 + 4 * (L // 4) is L: if a size can be written without division, it is.
    terms = normal if is_polynomial(normal) else terms
    number = constant(terms)
    return Dim(terms) if number is None else number


def _terms(size: Size) -> Terms:
    return size.terms if isinstance(size, Dim) else {(): size} if size else {}


def _sum(a: Size, b: Size, times: int = 1) -> Size:
    return as_written(add(_terms(a), _terms(b), times))


def _divided(a: Size, operator: str, b: Size) -> Size:
    if isinstance(b, int) and b == 0:
        raise ZeroDivisionError(f"{a} {operator} 0")
    return as_written((floordiv if operator == "//" else mod)(_terms(a), _terms(b)))


def _extreme(operator: str, a: Size, b: Size) -> Size:
    a, b = as_size(f"sym_{operator}", a), as_size(f"sym_{operator}", b)
    difference = a - b
    if _sign(difference + 1) == 1:  # a is certainly not less
        return a if operator == "max" else b
    if _sign(difference - 1) == -1:
        return b if operator == "max" else a
    return as_written(extreme(operator, _terms(a), _terms(b)))


def _names(terms: Terms) -> set[str]:
    names: set[str] = set()
    for atom in (atom for product in terms for atom in product):
        names |= {atom} if isinstance(atom, str) else _names(atom.left) | _names(atom.right)
    return names


def _sign(difference: Size) -> int | None:
    """-1, 0 or 1 if the sign is certain for all sizes within their limits, by default of zero or more, else None."""
    if isinstance(difference, int):
        return (difference > 0) - (difference < 0)
    low, high = range_of(plain(difference.terms))
    return 1 if low > 0 else -1 if high < 0 else 0 if low == high == 0 else None


def _decide(a: Dim, operator: str, b: Size) -> int:
    """A number that compares with zero as ``a`` does with ``b``, for the given operator."""
    difference = a - b
    sign = _sign(difference)
    # L >= 0 and L + P >= L are certain although L may equal 0: check whether the difference can cross the bound at all.
    if sign is None and operator in (">=", "<"):
        sign = _sign(difference + 1)
        sign = sign if sign == 1 else None
    elif sign is None:
        sign = _sign(difference - 1)
        sign = sign if sign == -1 else None
    if sign is None:
        raise SymbolicSizeError(
            f"whether {a} {operator} {b} is known only at run time: a traced model cannot branch on it; "
            'fix the size with a number in lucid.spec(...), give its limits there, such as "2 <= L <= 64", or compute '
            "with lucid.where(...); the larger or smaller of two sizes is lucid.sym_max(...) or lucid.sym_min(...)"
        )
    return sign
