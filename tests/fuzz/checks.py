"""What must hold for every program: eager, the graph run with NumPy, and every exported form give the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import lucid
from lucid import Tensor
from lucid.dims import evaluate
from lucid.export import ExportError, Target
from lucid.export.api import export_graph
from lucid.export.rows import Decision
from lucid.export.writer import in_memory
from lucid.graph import Graph
from lucid.runtime import Session
from lucid.types import Array, DType
from tests.fuzz.programs import Program, array_of
from tests.samples import Sample, bound

# What onnx's own evaluator (1.23) gets wrong or cannot do, by op: it is no judge there.
REFERENCE_FAULTS = {
    "Attention": "probabilities after the softcap, masks of one query with is_causal, empty lengths",
}
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_GROWTH = 256  # how many units of the last place a program may lose: some dozen sums, norms with epsilon 0.05


class DifferenceError(AssertionError):
    """Two ways to compute a program gave different results."""


@dataclass
class Coverage:
    """How often each op met each element type, target and form."""

    models: int = 0
    comparisons: int = 0
    judged: int = 0
    ops: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    forms: Counter[tuple[str, str]] = field(default_factory=Counter)

    def note(self, graph: Graph, target: Target, decisions: list[Decision]) -> None:
        self.models += 1
        for node in graph.nodes():
            self.ops[node.op.name, str(node.types[0].dtype), target.provider] += 1
        for decision in decisions:
            self.forms[decision.op, decision.taken] += 1


def verify(
    program: Program, target: Target, runs: list[Mapping[str, int]], seed: int, judge: bool, coverage: Coverage
) -> None:
    """Compute a program in every way there is.

    Raises:
        DifferenceError: naming the two ways and where they part.
    """
    graph = lucid.trace(program, *program.kinds)
    graph.verify()
    str(graph)
    model, decisions, target = exported(graph, target)
    coverage.note(graph, target, decisions)
    sessions = {f"onnxruntime, optimised {level}": Session(model, threads=1, optimize=level) for level in (False, True)}
    faults = {node.op_type for node in model.graph.node} & REFERENCE_FAULTS.keys()
    contrib = any(node.domain for node in model.graph.node)
    for number, sizes in enumerate(runs):
        generator = np.random.default_rng(seed + number)
        arrays = [array_of(k.dtype, tuple(evaluate(s, sizes) for s in k.shape), generator) for k in program.kinds]
        expected = [t.numpy() for t in program(*map(Tensor.from_array, arrays))]
        scale = magnitude(graph, arrays)
        where = f"with {dict(sizes)}, {target}, {program!r}"
        for got, want in zip(graph.run(arrays), expected, strict=True):
            same(got, want, "the graph run with NumPy", where, 0.0)
        named = dict(zip((value.name for value in model.graph.input), arrays, strict=True))
        for way, session in sessions.items():
            for got, want in zip(session.run(named).values(), expected, strict=True):
                same(got, want, way, where, scale)
                coverage.comparisons += 1
        if judge and not faults and not contrib:
            coverage.judged += 1
            with np.errstate(all="ignore"):
                judged = ReferenceEvaluator(model).run(None, named)
            for got, want in zip(judged, expected, strict=True):
                same(np.asarray(got), want, "onnx's reference evaluator", where, scale)


def verify_sample(s: Sample, dtype: DType, target: Target, sizes: Mapping[str, int], coverage: Coverage) -> None:
    """Compute an op's sample eagerly and in onnxruntime, rewritten by it and not.

    Raises:
        DifferenceError: naming the way that differs.
    """

    def model(*given: Tensor) -> Any:
        rest = iter(given)
        return s.op(*(None if a is None else next(rest) for a in s.inputs), **s.attributes)

    inputs = [a for a in (*s.inputs, *s.carriers) if a is not None]
    graph = lucid.trace(model, *(a.type(dtype) for a in inputs))
    made, decisions, target = exported(graph, target)
    coverage.note(graph, target, decisions)
    generator = np.random.default_rng(sum(sizes.values()))
    drawn = [a if a is None else a.array(dtype, sizes, generator) for a in s.inputs]
    carried = [a.array(dtype, sizes, generator) for a in s.carriers]
    named = {name: bound(value, sizes) for name, value in s.attributes.items()}
    result = s.op(*(a if a is None else Tensor.from_array(a) for a in drawn), **named)
    expected = [t.numpy() for t in (result if isinstance(result, tuple) else (result,))]
    arrays = [a for a in (*drawn, *carried) if a is not None]
    scale = magnitude(graph, arrays)
    where = f"{s.name} in {dtype}, {target}, with {dict(sizes)}"
    for level in (False, True):
        session = Session(made, threads=1, optimize=level)
        for got, want in zip(
            session.run(dict(zip(session.inputs, arrays, strict=True))).values(), expected, strict=True
        ):
            same(got, want, f"onnxruntime, optimised {level}", where, scale)
            coverage.comparisons += 1


def exported(graph: Graph, target: Target) -> tuple[onnx.ModelProto, list[Decision], Target]:
    """The model, in the form that was asked for where one is exact, else in any."""
    try:
        assembled, lowering = export_graph(graph, target)
    except ExportError as error:
        if target.attention in ("auto", "expanded"):
            raise
        assert "is exact here" in str(error)
        target = Target(target.provider, target.opset)
        assembled, lowering = export_graph(graph, target)
    return in_memory(assembled), lowering.decisions, target


def magnitude(graph: Graph, arrays: list[Array]) -> float:
    """The allowed difference: the coarsest type that is computed in, times the largest number that occurs."""
    values = {f"v{i}": result for i, result in enumerate(r for node in graph.nodes() for r in node.results)}
    epsilon, largest = _EPSILON["float64"], 1.0
    for array in graph.with_outputs(values).run(arrays) if values else ():
        epsilon = max(epsilon, _EPSILON.get(str(array.dtype), 0.0))
        wide = np.abs(array.astype(np.float64))
        largest = max(largest, float(np.max(wide, initial=0.0, where=np.isfinite(wide))))
    return _GROWTH * epsilon * largest


def same(got: Array, want: Array, way: str, where: str, allowed: float) -> None:
    """Equal shapes and types, and every number within what is allowed."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise DifferenceError(f"{way}: {got.dtype}{list(got.shape)}, eager {want.dtype}{list(want.shape)}\n{where}")
    if got.dtype.kind in "biu":
        wrong: Any = got != want
    else:
        x, y = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(all="ignore"):
            wrong = ~((np.abs(x - y) <= allowed) | (x == y) | (np.isnan(x) & np.isnan(y)))
    if np.any(wrong):
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise DifferenceError(f"{way}: {got[at]} at {list(at)}, eager {want[at]} (allowed {allowed:.1e})\n{where}")
