"""Symbolic sizes in an exported model: vectors of sizes, each computed once from the shapes of the inputs.

A form may also compute a size in a way of its own (`Builder.sizes`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid.core.sizes.dims import Dim, Shape, Size, as_written, same
from lucid.core.sizes.operations import Operation, Terms, plain, range_of
from lucid.core.sizes.readings import Reading, readings
from lucid.export.builder import Builder, Operand
from lucid.export.target import ExportError


def sizes_vector(build: Builder, sizes: Sequence[Size]) -> str:
    """A vector of sizes: a constant if all are known, else computed when the model runs."""
    if all(isinstance(size, int) for size in sizes):
        return build.name_of(np.asarray(sizes, np.int64))
    parts: list[str] = []
    numbers: list[int] = []
    for size in sizes:
        if isinstance(size, int):
            numbers.append(size)
            continue
        parts += [build.name_of(np.asarray(numbers, np.int64))] if numbers else []
        numbers = []
        parts.append(size_vector(build, size))
    parts += [build.name_of(np.asarray(numbers, np.int64))] if numbers else []
    return parts[0] if len(parts) == 1 else build.op("Concat", *parts, axis=0)


def size_vector(build: Builder, size: Size) -> str:
    """One size as a vector of one number."""
    if isinstance(size, int):
        return build.name_of(np.asarray([size], np.int64))
    terms = min(size.terms, plain(size.terms), key=_count)
    with build.inside(f"size {size}"):
        total: str | None = None
        for monomial, coefficient in terms.items():
            factors = [_atom(build, atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.append(build.name_of(np.asarray([coefficient], np.int64)))
            term = factors[0]
            for factor in factors[1:]:
                term = build.op("Mul", term, factor)
            total = term if total is None else build.op("Add", total, term)
        assert total is not None, "a Dim has at least one term"
        return total


def _count(terms: Terms) -> int:
    """The nodes that compute a polynomial."""
    count = len(terms) - 1
    for monomial, coefficient in terms.items():
        count += max(len(monomial) - 1, 0) + (coefficient != 1 and bool(monomial))
        for atom in monomial:
            if isinstance(atom, Operation):
                steps = 3 if atom.operator == "//" and not _truncates(atom) else 1
                count += steps + _count(atom.left) + _count(atom.right)
    return count


def _truncates(quotient: Operation) -> bool:
    """Whether neither side of a quotient can be negative, so that ONNX Div, which truncates, rounds down."""
    return all(range_of(plain(side))[0] >= 0 for side in (quotient.left, quotient.right))


def _atom(build: Builder, atom: str | Operation) -> str:
    if isinstance(atom, Operation):
        left, right = size_vector(build, as_written(atom.left)), size_vector(build, as_written(atom.right))
        if atom.operator in ("max", "min"):
            return build.op(atom.operator.capitalize(), left, right)
        if atom.operator == "//" and _truncates(atom):
            return build.op("Div", left, right)
        rest = build.op("Mod", left, right)
        # ONNX Div truncates; after subtracting the remainder the division is exact, so it rounds down as in Python.
        return rest if atom.operator == "%" else build.op("Div", build.op("Sub", left, rest), right)
    if atom in build.sizes:
        return build.sizes[atom]
    for reading in readings([value.type.shape for value in build.graph.inputs]):
        if reading.name == atom:
            return _read(build, reading)
    raise ExportError(
        f"size {atom} is not an axis of any input, so the model cannot compute it: give an input that has it"
    )


def _read(build: Builder, reading: Reading) -> str:
    """A named size from the length of an axis."""
    length = build.op("Shape", build.graph.inputs[reading.source], start=reading.axis, end=reading.axis + 1)
    if not isinstance(reading.rest, int) or reading.rest:
        length = build.op("Sub", length, size_vector(build, reading.rest))
    return length if reading.times == 1 else build.op("Div", length, np.asarray([reading.times], np.int64))


def reshaped(build: Builder, operand: Operand, before: Shape, shape: Shape) -> str:
    """Reshape from sizes to sizes: 0 copies an axis, or one -1 is inferred; otherwise sizes are computed.

    0 and -1 are not combined, because -1 cannot be inferred if the copied axis is empty. Where sizes are computed, a 0
    among them is a size.
    """
    entries: list[Size] = []
    for axis, size in enumerate(shape):
        copied = not isinstance(size, int) and axis < len(before) and same(size, before[axis])
        entries.append(0 if copied else size)
    unknown = [axis for axis, size in enumerate(shape) if not isinstance(size, int)]
    if not any(isinstance(size, int) and size == 0 for size in shape):
        if len(unknown) == 1 and isinstance(entries[unknown[0]], Dim):
            entries[unknown[0]] = -1
        if all(isinstance(size, int) for size in entries):
            return build.op("Reshape", operand, sizes_vector(build, entries))
    return build.op("Reshape", operand, sizes_vector(build, shape), allowzero=1)
