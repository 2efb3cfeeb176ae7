"""The judge of a program: its exact results, and how far a correct result may differ from them.

The program is run in float64, using only the bodies of its ops, so that no fast kernel judges itself. Further runs
perturb every result by a rounding error of its declared element type, up in one run and down in its twin (Vignes 1993,
"A stochastic arithmetic for reliable scientific computation"). The distance between the runs shows what rounding can do
to a number, at its scale and with the condition of the whole computation.

A number that overflows the element type is infinite in the first run, where numbers below the normal ones are zero, and
stays finite in the others. A sum whose parts overflow is NaN in the first run and the other infinity in the second. So
where the runs agree that a result is NaN, an infinity or a number, every backend must agree too; where they do not, the
result depends on an overflow or a denormal number and is left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid import Tensor
from lucid.core.graph.graph import Graph
from lucid.core.graph.loop_bodies import bound
from lucid.core.graph.types import Array, DType, bind_sizes
from lucid.core.graph.values import Constant, Node, Result, Value, in_order
from lucid.ops.op import Op
from tests.fuzz.either import OPERANDS, either, finite
from tests.fuzz.precision import precision
from tests.fuzz.rounding import RUNS, Inner, in_all_runs, input_in_all_runs, widened

MARGIN = 10.0  # times the distance between the runs


@dataclass(frozen=True)
class Verdict:
    """The expected output: numbers, the tolerance of each, which of them are open, and which may be NaN."""

    expected: Array
    allowed: Array
    open: Array
    may_be_nan: Array

    def differs(self, array: Array) -> Array:
        """Where a result is wrong."""
        if self.expected.dtype.kind in "biu":
            return np.asarray((array != self.expected) & ~self.open)
        wide = array.astype(np.float64)
        with np.errstate(all="ignore"):
            near = (np.abs(wide - self.expected) <= self.allowed) | (wide == self.expected)
        return np.asarray(~(near | (np.isnan(wide) & (np.isnan(self.expected) | self.may_be_nan)) | self.open))


class Judge:
    """A graph in primitive ops, run in float64 with and without rounding errors."""

    def __init__(self, graph: Graph, tame: bool = True, in_8_bits: bool = False) -> None:
        """`tame`: no input holds NaN, an infinity or a number so large that a product of two could overflow.
        `in_8_bits`: inputs of products with quantized weights may be rounded to 8 bits, in blocks of a row."""
        self._graph, self._inner = primitives(graph, tame, in_8_bits)
        self._nodes = self._graph.nodes()
        bodies = {id(node): node.attributes["body"] for node in self._nodes if node.op.name == "scan"}
        self._bodies = {
            loop: Judge(Graph(body.inputs, {f"{i}": v for i, v in enumerate(body.outputs)}), tame, in_8_bits)
            for loop, body in bodies.items()
        }

    def __call__(self, arrays: Sequence[Array], seed: int = 0) -> list[Verdict]:
        inputs = self._graph.inputs
        sizes = bind_sizes([v.name for v in inputs], [v.type for v in inputs], arrays)
        noise = np.random.default_rng(seed)
        input_runs = [input_in_all_runs(array, v.type.dtype) for v, array in zip(inputs, arrays, strict=True)]
        with np.errstate(all="ignore"):
            outputs = self.in_all_runs(input_runs, sizes, noise)
            return [_verdict(runs, v.type.dtype) for runs, v in zip(outputs, self._graph.outputs, strict=True)]

    def in_all_runs(
        self, input_runs: Sequence[Sequence[Array]], sizes: Mapping[str, int], noise: np.random.Generator
    ) -> list[list[Array]]:
        """The outputs in every run, from the inputs in every run."""
        known: dict[int, Sequence[Array]] = {
            id(v): runs for v, runs in zip(self._graph.inputs, input_runs, strict=True)
        }

        def read(value: Value | None) -> list[Array | None]:
            if isinstance(value, Constant):
                return [widened(value.array, value.type.dtype)] * RUNS
            return [None] * RUNS if value is None else [*known[id(value)]]

        for node in self._nodes:
            attributes = {name: bound(value, sizes) for name, value in node.attributes.items()}
            if id(node) in self._bodies:
                operands = [[a for a in read(v) if a is not None] for v in node.inputs]
                runs = self._looped(node, operands, attributes, sizes, noise)
            else:
                arguments = list(zip(*map(read, node.inputs), strict=True))
                runs = in_all_runs(node, arguments, attributes, noise, self._inner.get(id(node), Inner()))
            for result, values in zip(node.results, runs, strict=True):
                known[id(result)] = values
        return [[array for array in read(value) if array is not None] for value in self._graph.outputs]

    def _looped(
        self,
        node: Node,
        operands: Sequence[Sequence[Array]],
        attributes: Mapping[str, Any],
        sizes: Mapping[str, int],
        noise: np.random.Generator,
    ) -> list[Sequence[Array]]:
        """The results of a scan in every run: its body judged step by step."""
        carries, slices, reverse = (attributes[name] for name in ("carries", "slices", "reverse"))
        state, outer = list(operands[:carries]), operands[carries + slices :]
        sequences = operands[carries : carries + slices]
        length = len(sequences[0][0])
        kinds = [value.type for value in attributes["body"].outputs[carries:]]
        stacked = [[widened(np.empty((length, *k.shape), k.dtype.numpy), k.dtype) for _ in range(RUNS)] for k in kinds]
        for index in range(length)[:: -1 if reverse else 1]:
            step = [[np.asarray(run[index]) for run in runs] for runs in sequences]
            results = self._bodies[id(node)].in_all_runs([*state, *step, *outer], sizes, noise)
            state = list(results[:carries])
            for wholes, rows in zip(stacked, results[carries:], strict=True):
                for whole, row in zip(wholes, rows, strict=True):
                    whole[index] = row
        return [*state, *stacked]


def primitives(graph: Graph, tame: bool, in_8_bits: bool) -> tuple[Graph, dict[int, Inner]]:
    """The same graph with every composite replaced by its body, and what is known of nodes of bodies."""
    known: dict[int, Value] = {}
    inner: dict[int, Inner] = {}

    def mapped(value: Value | None) -> Value | None:
        return known.get(id(value), value) if value is not None else None

    def place(
        nodes: Sequence[Node], outer: DType | None = None, attends: bool = False, block: int | None = None
    ) -> None:
        products = [node for node in nodes if node.op.name == "matmul"]
        for node in nodes:
            assert isinstance(node.op, Op)
            inputs = tuple(map(mapped, node.inputs))
            results: Sequence[Value]
            if node.op.body is None:
                placed = Node(node.op, inputs, node.attributes, node.types, "")
                coarse, leaks = outer if node.op.name == "softmax" else None, attends and node is products[-1]
                inner[id(placed)] = Inner(coarse, leaks, block if node.op.name == "matmul" else None)
                results = placed.results
            else:
                results = body(node, [None if v is None else Tensor.from_value(v) for v in inputs])
                if node.op.name in OPERANDS and not tame:
                    results = either(node, results, body(node, finite(node.op.name, inputs)), inputs)
            kept.extend(node.results)
            known.update((id(old), new) for old, new in zip(node.results, results, strict=True))

    def body(node: Node, tensors: Sequence[Tensor | None]) -> list[Value]:
        assert isinstance(node.op, Op)
        results = [t.to_value() for t in node.op.expand(tensors, node.attributes)]
        before = {id(v) for v in map(mapped, node.inputs)}
        halved = node.types[0].dtype if node.types[0].dtype.itemsize == 2 else None
        block = node.attributes["block"] if in_8_bits and node.op.name == "quantized_linear" else None
        nodes = in_order(results, lambda v: id(v) in before or id(v) in known)
        place(nodes, halved, node.op.name == "attention", block)
        return [v for v in map(mapped, results) if v is not None]

    kept: list[Result] = []  # kept alive, so that an id is not reused
    place(graph.nodes())
    return graph.with_outputs({f"{i}": known.get(id(v), v) for i, v in enumerate(graph.outputs)}), inner


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
        if dtype.itemsize == 8:  # where the errors of the runs are few units, and may all cancel
            touched = touched | (size > 0)
        usual = float(np.median(spread[touched] / np.maximum(size[touched], spread[touched])))
        spread = np.where(touched, np.maximum(spread, max(usual, p.epsilon) * size), 0.0)
    allowed = MARGIN * spread
    undecided |= (allowed > 0) & (size + allowed > p.largest)
    return Verdict(exact, allowed, undecided, may_be_nan)
