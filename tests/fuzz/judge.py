"""The judge of a program: its exact results, and how far a correct result may differ from them.

The program is run in float64, using only the bodies of its ops, so that no fast kernel judges itself. Further runs
perturb every result by a rounding error of its declared element type, up in one run and down in its twin (Vignes 1993,
"A stochastic arithmetic for reliable scientific computation"). The distance between the runs shows what rounding can do
to a number, at its scale and with the condition of the whole computation.

A number that overflows the element type is infinite in the first run and stays finite in the others, where numbers
below the normal ones are zero. So where the runs agree that a result is NaN, an infinity or a number, every backend
must agree too; where they do not, the result depends on an overflow or a denormal number and is left open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from lucid import Tensor
from lucid.dims import bind
from lucid.graph import Graph
from lucid.ops.op import Op
from lucid.order import in_order
from lucid.types import Array, DType, bind_sizes, float32
from lucid.values import Constant, Node, Result, Value
from tests.fuzz.either import Either, either, finite

RUNS = 5  # the exact one, and two pairs of twins
MARGIN = 10.0  # times the distance between the runs

# Ops that change no number, or give booleans and integers: nothing is rounded.
EXACT = frozenset(
    """abs all any arange argmax ceil concat equal expand floor full gather_nd greater greater_equal
    isnan less less_equal logical_and logical_not logical_or logical_xor max max_pool maximum min minimum neg not_equal
    pad permute reshape round sign size slice split squeeze take_along take tile tril
    triu unsqueeze where""".split()
)
# Ops that add many numbers: each may be rounded before it is added, in half precision then in float32.
SUMS = frozenset("average_pool conv cumsum matmul mean prod sum".split())
# Functions that libraries compute to a few units in the last place, some of them relative to the largest result.
LOOSE = {"cos": 1.0, "erf": 0.0, "exp": 0.0, "log": 1.0, "pow": 0.0, "sigmoid": 1.0, "sin": 1.0, "tanh": 0.0}


@dataclass(frozen=True)
class Precision:
    """A floating type as the judge sees it."""

    epsilon: float
    largest: float
    normal: float  # numbers below it may count as zero
    step: float  # the distance of its smallest numbers

    @classmethod
    def of(cls, dtype: DType) -> Precision:
        info = ml_dtypes.finfo(dtype.numpy)
        flushed = float(max(info.tiny, np.finfo(np.float32).tiny)) if dtype.itemsize < 8 else float(info.tiny)
        if dtype.name == "float16":  # its denormals are computed in float32, in which they are normal
            flushed = float(np.finfo(np.float32).tiny)
        # The judge itself computes in float64, where an error of one unit would be rounded away.
        epsilon = float(info.eps) * (4 if dtype.itemsize == 8 else 1)
        return cls(epsilon, float(info.max), flushed, float(max(info.smallest_subnormal, flushed)))


_PRECISIONS: dict[DType, Precision] = {}


def precision(dtype: DType) -> Precision:
    if dtype not in _PRECISIONS:
        _PRECISIONS[dtype] = Precision.of(dtype)
    return _PRECISIONS[dtype]


@dataclass(frozen=True)
class Verdict:
    """The expected output: numbers, the tolerance of each, which of them are open, and which may be NaN."""

    expected: Array
    allowed: Array
    open: Array
    may_be_nan: Array

    def differs(self, got: Array) -> Array:
        """Where a result is wrong."""
        if self.expected.dtype.kind in "biu":
            return np.asarray((got != self.expected) & ~self.open)
        wide = got.astype(np.float64)
        with np.errstate(all="ignore"):
            near = (np.abs(wide - self.expected) <= self.allowed) | (wide == self.expected)
        return np.asarray(~(near | (np.isnan(wide) & (np.isnan(self.expected) | self.may_be_nan)) | self.open))


class Judge:
    """A graph in primitive ops, run in float64 with and without rounding errors."""

    def __init__(self, graph: Graph, numbers_only: bool = True) -> None:
        """`numbers_only`: no input holds NaN or an infinity."""
        self._graph, self._coarse = primitives(graph, numbers_only)
        self._nodes = self._graph.nodes()

    def __call__(self, arrays: Sequence[Array], seed: int = 0) -> list[Verdict]:
        inputs = self._graph.inputs
        sizes = bind_sizes([v.name for v in inputs], [v.type for v in inputs], arrays)
        noise = np.random.default_rng(seed)
        known: dict[int, list[Array]] = {
            id(v): _given(array, v.type.dtype) for v, array in zip(inputs, arrays, strict=True)
        }

        def read(value: Value | None) -> list[Array | None]:
            if isinstance(value, Constant):
                return [_wide(value.array, value.type.dtype)] * RUNS
            return [None] * RUNS if value is None else [*known[id(value)]]

        with np.errstate(all="ignore"):
            for node in self._nodes:
                attributes = {name: bind(value, sizes) for name, value in node.attributes.items()}
                given = list(zip(*map(read, node.inputs), strict=True))
                runs = _run(node, given, attributes, noise, self._coarse.get(id(node)))
                for result, values in zip(node.results, runs, strict=True):
                    known[id(result)] = values
            verdicts = []
            for value in self._graph.outputs:
                values = [array for array in read(value) if array is not None]
                verdicts.append(_verdict(values, value.type.dtype))
        return verdicts


def primitives(graph: Graph, numbers_only: bool) -> tuple[Graph, dict[int, DType]]:
    """The same graph with every composite replaced by its body; and the nodes that the body computes in float32, but a
    kernel of onnxruntime may give in half precision: the weights of attention."""
    known: dict[int, Value] = {}
    coarse: dict[int, DType] = {}

    def mapped(value: Value | None) -> Value | None:
        return known.get(id(value), value) if value is not None else None

    def place(nodes: Sequence[Node], outer: DType | None = None) -> None:
        for node in nodes:
            assert isinstance(node.op, Op)
            inputs = tuple(map(mapped, node.inputs))
            results: Sequence[Value]
            if node.op.body is None:
                placed = Node(node.op, inputs, node.attributes, node.types, "")
                if outer is not None and node.op.name == "softmax":
                    coarse[id(placed)] = outer
                results = placed.results
            else:
                given = [None if v is None else Tensor.from_value(v) for v in inputs]
                inner = [t.to_value() for t in node.op.expand(given, node.attributes)]
                before = {id(v) for v in inputs}
                halved = node.types[0].dtype if node.types[0].dtype.itemsize == 2 else None
                place(in_order(inner, lambda v, before=before: id(v) in before or id(v) in known), halved)  # type: ignore[misc]
                results = [v for v in map(mapped, inner) if v is not None]
                if node.op.name == "attention" and not numbers_only:
                    inner = [t.to_value() for t in node.op.expand(finite(inputs), node.attributes)]
                    place(in_order(inner, lambda v, before=before: id(v) in before or id(v) in known), halved)  # type: ignore[misc]
                    results = either(node, results, [v for v in map(mapped, inner) if v is not None], inputs)
            kept.extend(node.results)
            known.update((id(old), new) for old, new in zip(node.results, results, strict=True))

    kept: list[Result] = []  # kept alive, so that an id is not reused
    place(graph.nodes())
    return graph.with_outputs({f"{i}": known.get(id(v), v) for i, v in enumerate(graph.outputs)}), coarse


def _wide(array: Array, dtype: DType) -> Array:
    return array.astype(np.float64) if dtype.kind == "float" else array


def _given(array: Array, dtype: DType) -> list[Array]:
    wide = _wide(array, dtype)
    return [wide, _flushed(wide, dtype), *[wide] * (RUNS - 2)]


def _flushed(wide: Array, dtype: DType) -> Array:
    if dtype.kind != "float":
        return wide
    return np.where(np.abs(wide) < precision(dtype).normal, np.copysign(0.0, wide), wide)


def _run(
    node: Node,
    inputs: Sequence[tuple[Array | None, ...]],
    attributes: Mapping[str, Any],
    noise: np.random.Generator,
    coarse: DType | None,
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
        return [list(column) for column in zip(*(node.op.run(r, a) for r, a in enumerate(inputs)), strict=True)]
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
        for index, result in enumerate(compute(run, arrays)):
            if run and rounds:
                result = _rounded(run, index, result, name, coarse or node.types[index].dtype, moved)
                if run == 1 and name in SUMS:
                    result = _overflown(node, arrays, attributes, result, outputs[index][0], index)
            outputs[index].append(result)
    return outputs


def _evaluate(node: Node, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """A primitive on float64; integers are computed in int64, then reduced to the bits of their type."""
    if node.op.name in SUMS and node.types[0].dtype.kind == "int":
        wide = [a if a is None else a.astype(np.int64) for a in arrays]
        return tuple(
            r.astype(t.dtype.numpy) for r, t in zip(node.op.evaluate(wide, attributes), node.types, strict=True)
        )
    results = node.op.evaluate(arrays, attributes)
    return tuple(_wide(result, kind.dtype) for result, kind in zip(results, node.types, strict=True))


def _loses(source: DType, wanted: DType) -> bool:
    """Whether a cast to a floating type rounds."""
    if source.kind != "float":
        return source.kind == "int" and source.itemsize >= wanted.itemsize
    return (
        precision(wanted).epsilon > precision(source).epsilon or precision(wanted).largest < precision(source).largest
    )


def _cast(x: Array, wanted: DType, run: int) -> Array:
    if wanted.kind == "float":
        return x.astype(np.float64)
    if wanted.kind == "bool" or x.dtype.kind != "f":
        return x.astype(wanted.numpy)
    limits = np.iinfo(wanted.numpy)
    whole = np.trunc(x)
    fits = (whole >= limits.min) & (whole < float(limits.max + 1))
    # A number that does not fit is open: it differs in every run.
    return np.where(fits, np.where(fits, whole, 0).astype(wanted.numpy), np.asarray(run % 2, wanted.numpy))


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
        return np.where(x == 0, moved, moved + absolute * error) if absolute else moved


def _rounded(run: int, index: int, x: Array, name: str, dtype: DType, moved: _Moved) -> Array:
    p = precision(dtype)
    units = 4.0 if name in LOOSE else 1.0
    # A softmax weight may underflow if the others are much larger; a hidden one is 0 in every run.
    absolute = p.epsilon**2 if name == "softmax" else LOOSE.get(name, 0.0) * p.epsilon
    result = moved(run, -1 - index, x, units * p.epsilon, absolute + p.step)
    if run == 1:
        # An intermediate factor of 2, as in gelu, overflows earlier than the result.
        result = np.where(np.abs(result) > p.largest / 4, np.copysign(np.inf, result), result)
        result = _flushed(result, dtype)
    return np.where(np.isfinite(x), result, x)


def _overflown(
    node: Node, arrays: Sequence[Array | None], attributes: Mapping[str, Any], result: Array, exact: Array, index: int
) -> Array:
    """In the run that overflows, a sum is lost if its partial sums could exceed the largest number."""
    floats = [a for a in arrays if a is not None and a.dtype.kind == "f" and a.size]
    limit = precision(node.types[index].dtype).largest
    sizes = [float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a))) for a in floats]
    if not sizes or max(sizes) < limit**0.5 / 1e4:
        return result
    parts = _evaluate(node, [a if a is None or a.dtype.kind != "f" else np.abs(a) for a in arrays], attributes)
    # With one sign they overflow to that infinity; with both, to either or to NaN.
    return np.where((parts[index] > limit) & (np.abs(exact) < parts[index] * (1 - 1e-9)), np.nan, result)


def _verdict(values: Sequence[Array], dtype: DType) -> Verdict:
    exact = values[0]
    if dtype.kind != "float":
        apart = np.zeros(exact.shape, bool)
        for other in values[1:]:
            apart |= other != exact
        return Verdict(exact, np.zeros(()), apart, np.zeros((), bool))
    all_runs = np.stack(values)
    numbers = np.isfinite(all_runs)
    # Some runs may have NaN where the others agree on a number: then both are right. With an infinity it is open.
    first = np.argmax(numbers, 0)
    exact = np.where(numbers.any(0), np.take_along_axis(all_runs, first[None], 0)[0], exact)
    may_be_nan = numbers.any(0) & np.isnan(all_runs).any(0)
    infinite = np.isinf(all_runs)
    overflown = ~numbers[1] & (numbers[0] | numbers[3])
    undecided = infinite.any(0) & (all_runs != all_runs[0]).any(0) | overflown | may_be_nan & (numbers.sum(0) < 2)
    spread = np.max(np.abs(all_runs - exact), 0, where=numbers, initial=0.0)
    # By chance the runs may be close together at one number: its tolerance is at least that of most of its tensor, or
    # one rounding.
    p = precision(dtype)
    size = np.abs(np.where(np.isfinite(exact), exact, 0.0))
    touched = spread > 0
    if touched.any():
        usual = float(np.median(spread[touched] / np.maximum(size[touched], spread[touched])))
        spread = np.where(touched, np.maximum(spread, max(usual, p.epsilon) * size), 0.0)
    allowed = MARGIN * spread
    undecided |= (allowed > 0) & (size + allowed > p.largest)
    return Verdict(exact, allowed, undecided, may_be_nan)
