"""Arithmetic of integer polynomials, stored as the coefficient of each product of atoms.

An atom is any hashable object with a unique text. A product is a tuple of atoms, sorted by text, with repetition: N*N*L
is ("L", "N", "N"), and the key of the constant term is ().
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

A = TypeVar("A")
Product: TypeAlias = tuple[A, ...]


def order(product: Product[A]) -> tuple[bool, int, list[str]]:
    """A key that sorts constants last, higher powers first, then by name: N*L + N + 1."""
    return (not product, -len(product), [str(atom) for atom in product])


def constant(terms: Mapping[Product[A], int]) -> int | None:
    """The value of a constant polynomial; None for one that depends on an atom."""
    if len(terms) > 1:
        return None
    return terms.get(()) if terms else 0


def add(a: Mapping[Product[A], int], b: Mapping[Product[A], int], times: int = 1) -> dict[Product[A], int]:
    """a + times * b."""
    total = dict(a)
    for product, coefficient in b.items():
        total[product] = total.get(product, 0) + times * coefficient
    return {product: coefficient for product, coefficient in total.items() if coefficient}


def multiply(a: Mapping[Product[A], int], b: Mapping[Product[A], int]) -> dict[Product[A], int]:
    """a * b."""
    total: dict[Product[A], int] = {}
    for left, x in a.items():
        for right, y in b.items():
            product = _join(left, right)
            total[product] = total.get(product, 0) + x * y
    return {product: coefficient for product, coefficient in total.items() if coefficient}


def divide(
    a: Mapping[Product[A], int], b: Mapping[Product[A], int]
) -> tuple[dict[Product[A], int], dict[Product[A], int]]:
    """Long division: quotient and remainder with a = quotient * b + remainder. No term of b is zero."""
    lead = min(b, key=order) if len(b) > 1 else next(iter(b))
    scale = b[lead]
    others = {product: coefficient for product, coefficient in b.items() if product != lead}
    rest = dict(a)
    quotient: dict[Product[A], int] = {}
    remainder: dict[Product[A], int] = {}
    while rest:
        product = min(rest, key=order) if others else next(iter(rest))
        coefficient = rest.pop(product)
        factor = _without(product, lead) if coefficient % scale == 0 else None
        if factor is None:
            remainder[product] = coefficient
            continue
        quotient[factor] = coefficient // scale
        if others:
            rest = add(rest, multiply({factor: coefficient // scale}, others), -1)
    return quotient, remainder


def _join(left: Product[A], right: Product[A]) -> Product[A]:
    return tuple(sorted(left + right, key=str)) if left and right else left or right


def _without(product: Product[A], factors: Product[A]) -> Product[A] | None:
    """A product divided by other factors; None if it does not contain them all."""
    rest = list(product)
    for atom in factors:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)
