"""One node of a program in all runs of the judge: the exact one, and those with rounding errors (see `judge.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.core.graph.types import Array, DType, float32
from lucid.core.graph.values import Constant, Node, Result, Value
from tests.fuzz.either import Either
from tests.fuzz.precision import precision

_IN_8_BITS = 1000  # above the numbers of operands
RUNS = 7  # the exact one, and three pairs of twins
LEAK = 2.0**-26  # of the values that a query sees: what hidden keys may add (docs/attention.md, "a hidden key's value")


# Ops that change no number, or give booleans and integers: nothing is rounded.
EXACT = frozenset(
    """abs all any arange argmax ceil concat equal expand floor full gather_nd greater greater_equal
    isnan less less_equal logical_and logical_not logical_or logical_xor max max_pool maximum min minimum neg not_equal
    pad permute reshape round sign size slice split squeeze take_along take tile topk tril
    triu unsqueeze where write_at""".split()
)
# Ops that add many numbers: each may be rounded before it is added, in half precision then in float32.
SUMS = frozenset("average_pool conv conv_transpose cumsum matmul mean prod scatter sum".split())
# Functions that libraries compute to a few units in the last place, some of them relative to the largest result.
LOOSE = {"cos": 1.0, "erf": 0.0, "exp": 0.0, "log": 1.0, "pow": 0.0, "sigmoid": 1.0, "sin": 1.0, "tanh": 0.0}

# Functions that are a number at infinity, exactly: 1 + tanh(-inf) is 0, and times infinity NaN.
SATURATED = frozenset("erf exp sigmoid tanh".split())


@dataclass(frozen=True)
class Inner:
    """What is known of a node of a body: the element type to which a kernel may round it, where the body is more exact;
    whether it is the product of weights and values, to which hidden keys may add a little; and the size of the blocks
    in which its first operand may be rounded to 8 bits."""

    coarse: DType | None = None
    leaks: bool = False
    block: int | None = None


def widened(array: Array, dtype: DType) -> Array:
    return array.astype(np.float64) if dtype.kind == "float" else array


def input_in_all_runs(array: Array, dtype: DType) -> list[Array]:
    """An input in every run: in the first, what is below the normal numbers is zero."""
    wide = widened(array, dtype)
    return [wide, _flushed(wide, dtype), *[wide] * (RUNS - 2)]


def _flushed(wide: Array, dtype: DType) -> Array:
    if dtype.kind != "float":
        return wide
    return np.where(np.abs(wide) < precision(dtype).normal, np.copysign(0.0, wide), wide)


def in_all_runs(
    node: Node,
    inputs: Sequence[tuple[Array | None, ...]],
    attributes: Mapping[str, Any],
    noise: np.random.Generator,
    inner: Inner,
) -> list[list[Array]]:
    """Every result of a node, in every run."""
    name, kind = node.op.name, node.types[0].dtype
    cast_to = attributes["dtype"] if name == "cast" else None
    source = node.inputs[0].type.dtype if node.inputs and node.inputs[0] is not None else kind
    compute: Callable[..., tuple[Array, ...]]
    if cast_to is not None:
        first = node.inputs[0]
        assert first is not None
        rounds = cast_to.kind == "float" and _loses(first.type.dtype, cast_to)
        compute = lambda run, arrays: (_cast(arrays[0], cast_to, run),)  # noqa: E731
    elif isinstance(node.op, Either):
        return [
            list(column) for column in zip(*(node.op.run(r, a, inputs[0]) for r, a in enumerate(inputs)), strict=True)
        ]
    else:
        rounds = kind.kind == "float" and name not in EXACT
        compute = lambda run, arrays: _evaluate(node, arrays, attributes)  # noqa: E731
    if not inputs:
        return [[result] * RUNS for result in compute(0, ())]
    alike = all(a is b for run in inputs[1:] for a, b in zip(run, inputs[0], strict=True))
    if alike and not rounds and cast_to is None:
        return [[result] * RUNS for result in compute(0, inputs[0])]
    moved = _Moved(noise)
    outputs: list[list[Array]] = [[] for _ in node.types]
    for run, arrays in enumerate(inputs):
        if run and rounds and name in SUMS and source.kind == "float":
            fine = precision(float32 if source.itemsize == 2 else source).epsilon
            arrays = tuple(
                a if a is None or a.dtype.kind != "f" else moved(run, i, a, fine, 0.0) for i, a in enumerate(arrays)
            )
        if run and inner.block is not None:
            arrays = (_in_8_bits(run, arrays[0], inner.block, moved), *arrays[1:])
        for index, result in enumerate(compute(run, arrays)):
            if run and rounds:
                dtype, exact = inner.coarse or node.types[index].dtype, result
                result = _rounded(
                    run, index, exact, dtype, moved, _units(name, dtype, arrays, exact), _absolute(name, dtype)
                )
                if name in SATURATED:
                    result = np.where(np.isinf(arrays[0]), exact, result)
                if inner.leaks:
                    result = result + (1 if run % 2 else -1) * _leak(*arrays)
                if run in (1, 2) and name in SUMS:
                    lost = _lost(node, arrays, attributes, outputs[index][0], index)
                    # Twins part, so that it stays open whether NaN or infinity makes NaN of what is computed from it.
                    other = np.nan if run == 1 else np.copysign(np.inf, -outputs[index][0])
                    result = np.where(lost, other, result)
            outputs[index].append(result)
    return outputs


def _leak(weights: Array, values: Array) -> Array:
    """(N, H, L, 1), from weights (N, H, L, S) and values: what hidden keys may add to a result."""
    largest = np.max(np.abs(values), -1, initial=0.0, where=np.isfinite(values))[:, :, None]
    smallest = np.min(np.where(weights > 0, largest, np.inf), -1, keepdims=True, initial=np.inf)
    return LEAK * np.where(np.isfinite(smallest), smallest, 0.0)


def _in_8_bits(run: int, x: Array, block: int, moved: _Moved) -> Array:
    """(..., K) with the errors of rounding each block of it to whole multiples of its largest number / 127."""
    starts = np.arange(0, x.shape[-1], block)
    largest = np.repeat(np.maximum.reduceat(np.abs(x), starts, -1), block, -1)[..., : x.shape[-1]]
    errors = moved(run, _IN_8_BITS, np.ones(x.shape), 1.0, 0.0) - 1
    return np.asarray(x + errors * largest / 254)


def _evaluate(node: Node, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """A primitive on float64; integers are computed in int64, then reduced to the bits of their type."""
    if node.op.name in SUMS and node.types[0].dtype.kind == "int":
        wide = [a if a is None else a.astype(np.int64) for a in arrays]
        return tuple(
            r.astype(t.dtype.numpy) for r, t in zip(node.op.evaluate(wide, attributes), node.types, strict=True)
        )
    first = arrays[0] if arrays else None
    if node.op.name in ("max", "min") and first is not None and not first.size:
        # Of no elements: only what is empty too hangs on it, as in a softmax, else the eager run has refused it.
        arrays = [first.sum(attributes["axis"], first.dtype, keepdims=True)]
    results = node.op.evaluate(arrays, attributes)
    return tuple(widened(result, kind.dtype) for result, kind in zip(results, node.types, strict=True))


def _loses(source: DType, target: DType) -> bool:
    """Whether a cast to a floating type rounds."""
    if source.kind != "float":
        return source.kind == "int" and source.itemsize >= target.itemsize
    return (
        precision(target).epsilon > precision(source).epsilon or precision(target).largest < precision(source).largest
    )


def _cast(x: Array, target: DType, run: int) -> Array:
    if target.kind == "float":
        return x.astype(np.float64)
    if target.kind == "bool" or x.dtype.kind != "f":
        return x.astype(target.numpy)
    limits = np.iinfo(target.numpy)
    whole = np.trunc(x)
    fits = (whole >= limits.min) & (whole < float(limits.max + 1))
    # A number that does not fit is open: it may be any of the type, so what is made of it differs between runs.
    any_number = (0, limits.max, limits.min)[run % 3]
    return np.where(fits, np.where(fits, whole, 0).astype(target.numpy), np.asarray(any_number, target.numpy))


class _Moved:
    """Numbers with a rounding error: the same in twin runs, with opposite signs."""

    def __init__(self, noise: np.random.Generator) -> None:
        self._noise = noise
        self._drawn: dict[tuple[int, int], Array] = {}

    def __call__(self, run: int, index: int, x: Array, relative: float, absolute: float) -> Array:
        key = ((run - 1) // 2, index)
        if key not in self._drawn:
            self._drawn[key] = self._noise.uniform(0.5, 1.0, x.shape) * self._noise.choice((-1.0, 1.0), x.shape)
        error = self._drawn[key] if run % 2 else -self._drawn[key]
        moved = x * (1 + relative * error)
        moved = np.where(np.isfinite(moved), moved, x)  # not beyond the largest float64
        return np.where(x == 0, moved, moved + absolute * error) if absolute else moved


def _units(name: str, dtype: DType, arrays: Sequence[Array | None], result: Array) -> float:
    """How many units in the last place a result may be off."""
    first = arrays[0]
    if name in LOOSE:
        return 4.0
    if first is None or name not in SUMS | {"softmax"} or dtype.itemsize == 2:  # half precision adds in float32
        return 1.0
    # Each partial sum of n alike addends is rounded: relative to the sum this grows with the root of n, and with n if
    # all round the same way.
    addends = first.shape[-1] if name in ("matmul", "softmax") else first.size / max(1, result.size)
    return max(1.0, float(addends) ** 0.5 / 2)


def _absolute(name: str, dtype: DType) -> float:
    """How far a result of a function may be off, compared with numbers of size one."""
    epsilon = precision(dtype).epsilon
    # A softmax weight may underflow if the others are much larger; a hidden one is 0 in every run.
    return epsilon**2 if name == "softmax" else LOOSE.get(name, 0.0) * epsilon


def _rounded(run: int, index: int, x: Array, dtype: DType, moved: _Moved, units: float, absolute: float) -> Array:
    p = precision(dtype)
    result = moved(run, -1 - index, x, units * p.epsilon, absolute + p.step)
    if run == 1:
        # An intermediate factor of 2, as in gelu, overflows earlier than the result.
        result = np.where(np.abs(result) > p.largest / 4, np.copysign(np.inf, result), result)
        result = _flushed(result, dtype)
    return np.where(np.isfinite(x), result, x)


def _lost(node: Node, arrays: Sequence[Array | None], attributes: Mapping[str, Any], exact: Array, index: int) -> Array:
    """Where a sum is lost because its partial sums could exceed the largest number."""
    floats = [a for a in arrays if a is not None and a.dtype.kind == "f" and a.size]
    limit = precision(node.types[index].dtype).largest * min(1.0, *map(_factor, node.inputs))
    sizes = [float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a))) for a in floats]
    if not sizes or max(sizes) < limit**0.5 / 1e4:
        return np.zeros((), bool)
    finite = [a if a is None or a.dtype.kind != "f" else np.where(np.isfinite(a), a, 0.0) for a in arrays]
    parts = _evaluate(node, [a if a is None or a.dtype.kind != "f" else np.abs(a) for a in finite], attributes)[index]
    if node.op.name == "mean":  # it overflows before it is divided
        count = floats[0].size / max(1, exact.size)
        return np.asarray((parts * count > limit) & ~np.isnan(exact))
    # With one sign they overflow to that infinity, as the sum does by itself; with both, or next to an infinity of the
    # other sign, to either or to NaN.
    total = _evaluate(node, finite, attributes)[index]
    mixed = (np.abs(total) < parts * (1 - 1e-9)) | (np.sign(total) != np.sign(exact))
    mixed |= limit < precision(node.types[index].dtype).largest
    return np.asarray((parts > limit) & mixed & ~np.isnan(exact))


def _factor(value: Value | None) -> float:
    """The size of the scalar that an operand was multiplied by, or 1: a kernel may multiply the sum by it instead."""
    if not isinstance(value, Result) or value.node.op.name != "mul":
        return 1.0
    scalars = [v.array for v in value.node.inputs if isinstance(v, Constant) and v.array.size == 1]
    return min((abs(float(array.reshape(()))) for array in scalars), default=1.0)
