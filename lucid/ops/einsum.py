"""`einsum` and its relatives, made of transposes and matrix products, which every target has."""

from __future__ import annotations

import functools
import string
from collections.abc import Sequence
from typing import Any

from lucid.core.graph.types import float32, promote, show_shape
from lucid.core.sizes.dims import Size, product, same
from lucid.ops.creation import arange
from lucid.ops.elementwise import logical_and, mul
from lucid.ops.indexing import take
from lucid.ops.linalg import matmul
from lucid.ops.op import function
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.reduction import sum_
from lucid.ops.shaping import expand, permute, reshape, unsqueeze
from lucid.ops.tensor.tensor import Tensor, TensorLike


@function
def einsum(equation: str, *operands: Any) -> Tensor:
    """Multiply tensors elementwise by axes of the same name and sum over those that the result does not name.

    Args:
        equation: for example ``"bqhd,bkhd->bhqk"``; spaces do not count. ``...`` stands for any axes, which broadcast.
            Without ``->``, the result has the names that occur once, in alphabetical order.
        operands: a tensor for each term of the equation, between commas. Integers and booleans are summed as int64.

    A name twice in one term takes the diagonal of the two axes.

    Raises:
        ValueError: for an equation that does not fit the tensors, or sizes that differ.
    """
    parts = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    tensors = [as_tensor("einsum", operand) for operand in parts]
    names, result = _parsed(equation, tensors)
    for place, (tensor, axes) in enumerate(zip(tensors, names, strict=True)):
        tensors[place], names[place] = _diagonals(equation, tensor, axes)
    sizes = _sizes(equation, names, tensors)
    product, current = _without_sums(tensors[0], names[0], {*result, *_all(names[1:])})
    for place, tensor in enumerate(tensors[1:], start=1):
        kept = {*result, *_all(names[place + 1 :])}
        tensor, axes = _without_sums(tensor, names[place], kept | set(current))
        product, current = _without_sums(product, current, kept | set(axes))
        product, current = _pair(product, current, tensor, axes, kept, sizes)
    return permute(product, [current.index(name) for name in result])


def _all(names: Sequence[str]) -> set[str]:
    return set("".join(names))


def _parsed(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """The names of each tensor's axes and those of the result; the axes of ``...`` get letters that are free."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ValueError(f"einsum: {equation!r} has {len(terms)} terms for {len(tensors)} tensors, expected as many")
    letters = set((left + right).replace("...", "").replace(",", ""))
    if not letters <= set(string.ascii_letters):
        raise ValueError(f"einsum: {equation!r}: expected letters, commas, '...' and '->'")
    hidden = [
        t.ndim - len(term.replace("...", "")) if "..." in term else 0 for term, t in zip(terms, tensors, strict=True)
    ]
    free = "".join(letter for letter in string.ascii_uppercase + string.ascii_lowercase if letter not in letters)
    widest = free[: max(0, *hidden)]
    names = [
        term.replace("...", widest[len(widest) - count :]) if count >= 0 else term
        for term, count in zip(terms, hidden, strict=True)
    ]
    for term, tensor, axes in zip(terms, tensors, names, strict=True):
        if len(axes) != tensor.ndim:
            raise ValueError(f"einsum: {term!r} in {equation!r} does not fit the axes of {show_shape(tensor.shape)}")
    once = [letter for letter in sorted(letters) if "".join(terms).count(letter) == 1]
    result = right.replace("...", widest) if arrow else widest + "".join(once)
    if len(set(result)) != len(result) or not set(result) <= _all(names):
        raise ValueError(f"einsum: the result of {equation!r} must name axes of the tensors, each once")
    return names, result


def _diagonals(equation: str, x: Tensor, names: str) -> tuple[Tensor, str]:
    """A tensor in which two axes of one name are replaced by their diagonal."""
    for name in dict.fromkeys(names):
        while names.count(name) > 1:
            first, second = names.index(name), names.rindex(name)
            size = x.shape[first]
            if not same(size, x.shape[second]):
                raise ValueError(f"einsum: {equation!r}: axis {name} has sizes {size} and {x.shape[second]}")
            rest = [axis for axis in range(x.ndim) if axis not in (first, second)]
            x = permute(x, [*rest, first, second])
            x = take(reshape(x, (*x.shape[:-2], size * size)), arange(size) * (size + 1), x.ndim - 2)
            names = "".join(names[axis] for axis in rest) + name
    return x, names


def _sizes(equation: str, names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, Size]:
    """The size of each name; an axis of size 1 broadcasts."""
    sizes: dict[str, Size] = {}
    for axes, tensor in zip(names, tensors, strict=True):
        for name, size in zip(axes, tensor.shape, strict=True):
            if name not in sizes or same(sizes[name], 1):
                sizes[name] = size
            elif not same(size, 1) and not same(size, sizes[name]):
                raise ValueError(f"einsum: {equation!r}: axis {name} has sizes {sizes[name]} and {size}")
    return sizes


def _without_sums(x: Tensor, names: str, kept: set[str]) -> tuple[Tensor, str]:
    """A tensor summed over the axes that nothing else names."""
    gone = tuple(axis for axis, name in enumerate(names) if name not in kept)
    rest = "".join(name for name in names if name in kept)
    return (sum_(x, axis=gone, keepdims=False) if gone else x), rest


def _pair(x: Tensor, left: str, y: Tensor, right: str, kept: set[str], sizes: dict[str, Size]) -> tuple[Tensor, str]:
    """The product of two tensors, summed over the names that both have and nothing else needs."""
    summed = [name for name in left if name in right and name not in kept]
    batch = [name for name in left if name in right and name in kept]
    own, other = ([name for name in names if name not in summed and name not in batch] for names in (left, right))
    if not summed:
        order = "".join([*batch, *own, *other])
        combine = logical_and if x.dtype.kind == y.dtype.kind == "bool" else mul
        return combine(_aligned(x, left, order), _aligned(y, right, order)), order
    x = _joined(x, left, (batch, own, summed), sizes)
    y = _joined(y, right, (batch, summed, other), sizes)
    shape = [sizes[name] for name in (*batch, *own, *other)]
    return reshape(matmul(x, y), shape), "".join([*batch, *own, *other])


def _aligned(x: Tensor, names: str, order: str) -> Tensor:
    """Axes in an order that has more names, with size 1 for these."""
    x = permute(x, [names.index(name) for name in order if name in names])
    missing = tuple(axis for axis, name in enumerate(order) if name not in names)
    return unsqueeze(x, missing) if missing else x


def _joined(x: Tensor, names: str, groups: Sequence[Sequence[str]], sizes: dict[str, Size]) -> Tensor:
    """(batch..., first, second): batch axes as they are, each of the other groups joined to one axis."""
    order = [name for group in groups for name in group]
    x = expand(permute(x, [names.index(name) for name in order]), [sizes[name] for name in order])
    batch, first, second = groups
    return reshape(x, (*(sizes[n] for n in batch), product(sizes[n] for n in first), product(sizes[n] for n in second)))


@function
def outer(x: Tensor, other: TensorLike) -> Tensor:
    """The products (n, m) of all elements of a vector (n) with all of another (m).

    Raises:
        ValueError: for tensors that are not vectors.
    """
    y = as_tensor("outer", other)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"outer: got {x.spec} and {y.spec}, expected two vectors")
    return mul(unsqueeze(x, 1), unsqueeze(y, 0))


@function
def addmm(x: Tensor, mat1: TensorLike, mat2: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * x + alpha * (mat1 @ mat2)``; of half precision computed in float32 and rounded once."""
    return baddbmm(x, mat1, mat2, beta=beta, alpha=alpha)


@function
def baddbmm(x: Tensor, batch1: TensorLike, batch2: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * x + alpha * (batch1 @ batch2)``; of half precision computed in float32 and rounded once."""
    tensors = [x, as_tensor("baddbmm", batch1), as_tensor("baddbmm", batch2)]
    half = all(t.dtype.itemsize == 2 for t in tensors)
    wide, left, right = (t.astype(float32) for t in tensors) if half else tensors
    product = matmul(left, right)
    product = product if alpha == 1 else product * alpha
    total = product if beta == 0 else product + (wide if beta == 1 else wide * beta)
    return total.astype(functools.reduce(promote, [t.dtype for t in tensors])) if half else total
