"""What must hold for every program: eager, the graph run with NumPy and every exported form give what the judge
says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
from tests.fuzz.judge import Judge, Verdict
from tests.fuzz.programs import Program
from tests.fuzz.values import PLAIN, Recipe, array_of
from tests.samples import Argument, Sample, bound

# What onnx's own evaluator (1.23) gets wrong or cannot do, by op: it is no judge there.
REFERENCE_FAULTS = {
    "Attention": "probabilities after the softcap, masks of one query with is_causal, empty lengths",
}

# Kernels of onnxruntime that fail, and say so, where a size is 0 (docs/attention.md).
REFUSES_EMPTY = ("running Attention node", "running RotaryEmbedding node")


class DifferenceError(AssertionError):
    """Two ways to compute a program gave different results."""


@dataclass
class Coverage:
    """How often each op met each element type, target and form."""

    models: int = 0
    comparisons: int = 0
    judged: int = 0
    elements: int = 0
    open: int = 0
    refused: int = 0
    ops: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    forms: Counter[tuple[str, str]] = field(default_factory=Counter)

    def decide(self, verdict: Verdict) -> None:
        self.elements += verdict.expected.size
        self.open += int(verdict.open.sum())

    def note(self, graph: Graph, target: Target, decisions: list[Decision]) -> None:
        self.models += 1
        for node in graph.nodes():
            self.ops[node.op.name, str(node.types[0].dtype), target.provider] += 1
        for decision in decisions:
            self.forms[decision.op, decision.taken] += 1


def verify(program: Program, target: Target, runs: Sequence[Mapping[str, int]], seed: int, coverage: Coverage) -> None:
    """Compute a program in every way there is.

    Raises:
        DifferenceError: naming the way and where it parts from the judge.
    """
    graph = lucid.trace(program, *program.kinds)
    graph.verify()
    str(graph)
    for number, sizes in enumerate(runs):
        generator = np.random.default_rng(seed + number)
        arrays = [
            array_of(k.dtype, tuple(evaluate(s, sizes) for s in k.shape), r, generator)
            for k, r in zip(program.kinds, program.recipes, strict=True)
        ]
        try:
            eager = [t.numpy() for t in program(*map(Tensor.from_array, arrays))]
        except ValueError as error:
            if not _of_nothing(error, sizes):
                raise
            coverage.refused += 1
            continue
        judged = seed < 3 and all(recipe == PLAIN for recipe in program.recipes)
        target = compare(graph, target, arrays, eager, f"with {dict(sizes)}, {program!r}", judged, coverage)


def verify_sample(
    s: Sample, dtype: DType, recipe: Recipe, target: Target, sizes: Mapping[str, int], coverage: Coverage
) -> None:
    """Compute an op's sample in every way there is.

    Raises:
        DifferenceError: naming the way and where it parts from the judge.
    """

    def model(*given: Tensor) -> Any:
        rest = iter(given)
        return s.op(*(None if a is None else next(rest) for a in s.inputs), **s.attributes)

    graph = lucid.trace(model, *(a.type(dtype) for a in (*s.inputs, *s.carriers) if a is not None))
    generator = np.random.default_rng(sum(sizes.values()))

    def draw(a: Argument) -> Array:
        if a.draw is not None or a.dtype is not None:
            return a.array(dtype, sizes, generator)
        return array_of(dtype, tuple(evaluate(size, sizes) for size in a.shape), recipe, generator)

    drawn = [a if a is None else draw(a) for a in s.inputs]
    carried = [a.array(dtype, sizes, generator) for a in s.carriers]
    named = {name: bound(value, sizes) for name, value in s.attributes.items()}
    try:
        result = s.op(*(a if a is None else Tensor.from_array(a) for a in drawn), **named)
    except ValueError as error:
        if not _of_nothing(error, sizes):
            raise
        coverage.refused += 1
        return
    eager = [t.numpy() for t in (result if isinstance(result, tuple) else (result,))]
    arrays = [a for a in (*drawn, *carried) if a is not None]
    compare(
        graph, target, arrays, eager, f"{s.name} in {dtype} of {recipe} numbers, with {dict(sizes)}", False, coverage
    )


def compare(
    graph: Graph,
    target: Target,
    arrays: Sequence[Array],
    eager: Sequence[Array],
    where: str,
    reference: bool,
    coverage: Coverage,
) -> Target:
    """Hold eager, the graph run with NumPy and onnxruntime, rewriting the model and not, to the judge; and onnx's own
    evaluator, if asked. The target is the one that was taken."""
    verdicts = Judge(graph)(arrays)
    model, decisions, target = exported(graph, target)
    coverage.note(graph, target, decisions)
    where = f"{target}, {where}"
    for got, verdict in zip(eager, verdicts, strict=True):
        coverage.decide(verdict)
        same(got, verdict, "eager", where)
    for got, want, verdict in zip(graph.run(arrays), eager, verdicts, strict=True):
        like(got, want, "the graph run with NumPy", where)
        same(got, verdict, "the graph run with NumPy", where)
    named = dict(zip((value.name for value in model.graph.input), arrays, strict=True))
    for level in (False, True):
        session = Session(model, threads=1, optimize=level)
        try:
            results = list(session.run(named).values())
        except Exception as error:
            if not any(name in str(error) for name in REFUSES_EMPTY) or all(a.size for a in arrays):
                raise
            coverage.refused += 1
            return target
        for got, want, verdict in zip(results, eager, verdicts, strict=True):
            like(got, want, f"onnxruntime, optimised {level}", where)
            same(got, verdict, f"onnxruntime, optimised {level}", where)
            coverage.comparisons += 1
    faults = {node.op_type for node in model.graph.node} & REFERENCE_FAULTS.keys()
    if reference and not faults and not any(node.domain for node in model.graph.node):
        coverage.judged += 1
        with np.errstate(all="ignore"):
            judged = ReferenceEvaluator(model).run(None, named)
        for got, verdict in zip(judged, verdicts, strict=True):
            same(np.asarray(got), verdict, "onnx's reference evaluator", where)
    return target


def _of_nothing(error: ValueError, sizes: Mapping[str, int]) -> bool:
    """Whether an op refused to choose among no elements: the maximum of none, or a size that none decide."""
    return 0 in sizes.values() and re.search(r"has (no|0) elements", str(error)) is not None


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


def same(got: Array, verdict: Verdict, way: str, where: str) -> None:
    """Every number as near to the judge's as rounding lets it be, NaN and infinities where they must be."""
    if got.shape != verdict.expected.shape:
        raise DifferenceError(f"{way}: {list(got.shape)}, judge {list(verdict.expected.shape)}\n{where}")
    wrong = verdict.differs(got)
    if np.any(wrong):
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        allowed = np.broadcast_to(verdict.allowed, got.shape)[at]
        raise DifferenceError(
            f"{way}: {got[at]} at {list(at)} of {got.dtype}{list(got.shape)}, "
            f"judge {verdict.expected[at]} (allowed {allowed:.1e}; {int(wrong.sum())} differ)\n{where}"
        )


def like(got: Array, want: Array, way: str, where: str) -> None:
    """Equal shapes and types."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise DifferenceError(f"{way}: {got.dtype}{list(got.shape)}, eager {want.dtype}{list(want.shape)}\n{where}")
