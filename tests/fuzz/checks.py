"""The checks for every model: eager, the graph run with NumPy and every exported form agree with the judge."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import lucid
from lucid import Tensor
from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array, DType
from lucid.core.sizes.dims import bind, evaluate
from lucid.export import ExportError, Target
from lucid.export.exporter import export_graph
from lucid.export.lowering import Decision
from lucid.export.onnx_file.writer import in_memory
from lucid.runtime import Session
from lucid.runtime.ort_values import numpy_of, ort_value
from tests.fuzz.judge import Judge, Verdict
from tests.fuzz.programs import Program
from tests.fuzz.values import PLAIN, Recipe, array_of
from tests.samples import Argument, Sample, bound

# What onnx's own evaluator (1.23) computes wrongly or not at all, by op: it is not compared there.
REFERENCE_FAULTS = {
    "Attention": "probabilities after the softcap, masks of one query with is_causal, empty lengths",
    "Scan": "refuses to go from the last element to the first",
    "DequantizeLinear": "has none for opsets before 19",
}
# Kernels of onnxruntime that fail with an error if a size is 0 (docs/attention.md).
REFUSES_EMPTY = (
    "running Attention node",
    "running GroupQueryAttention node",
    "running RotaryEmbedding node",
    "cannot broadcast on dim",
    "The input tensor cannot be reshaped",  # in its GroupNormalization
)

# Ops whose parameters onnxruntime folds into one factor and one term, which can overflow where the op does not.
PARAMETERS = ("batch_norm",)

# Ops whose inputs have codes of 8 bits, which NaN and infinity have not: what comes of them is not defined.
INT8_PRODUCTS = ("int8_linear_dynamic", "int8_linear_rows", "int8_linear_static")


class DifferenceError(AssertionError):
    """Two paths gave different results for a program."""


@dataclass
class Coverage:
    """How often each op was run in each element type, target and form."""

    models: int = 0
    comparisons: int = 0
    judged: int = 0
    results: int = 0
    open: float = 0.0  # the parts of results that the judge leaves open, summed
    refused: int = 0
    ops: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    forms: Counter[tuple[str, str]] = field(default_factory=Counter)

    def decide(self, verdict: Verdict) -> None:
        self.results += 1
        self.open += float(verdict.open.mean()) if verdict.open.size else 0.0

    def note(self, graph: Graph, prepared: Prepared) -> None:
        self.models += 1
        for node in graph.nodes():
            self.ops[node.op.name, str(node.types[0].dtype), prepared.target.name] += 1
        for decision in prepared.decisions:
            self.forms[decision.op, decision.taken] += 1


@dataclass(frozen=True)
class Run:
    """A graph, its inputs, and the eager result; `where` names its model.
    `definition` is the same in plainer ops; `in_place`: the outputs that may be written over an input, and these
    inputs, by their numbers."""

    graph: Graph
    arrays: Sequence[Array]
    eager: Sequence[Array]
    where: str
    definition: Graph | None = None
    in_place: Sequence[tuple[int, int]] = ()


def runs_of_program(
    program: Program, runs: Sequence[Mapping[str, int]], seed: int, coverage: Coverage, known: bool = False
) -> Iterator[Run]:
    """A program at some sizes; `known`: a model of the first ones, which are numbers in it."""
    kinds = program.kinds
    if known:
        runs = runs[:1]
        kinds = [kind.with_shape(bind(kind.shape, runs[0])) for kind in kinds]
    graph = lucid.trace(program, *kinds)
    graph.verify()
    str(graph)
    defined = program.by_definition()
    definition = None if defined is None else lucid.trace(defined, *kinds)
    for number, sizes in enumerate(runs):
        generator = np.random.default_rng(seed + number)
        arrays = [
            array_of(k.dtype, tuple(evaluate(s, sizes) for s in k.shape), r, generator)
            for k, r in zip(program.kinds, program.recipes, strict=True)
        ]
        eager = _eager(program, arrays, sizes, coverage)
        if eager is not None:
            where = f"with {'known ' * known}{dict(sizes)}, {program!r}"
            yield Run(graph, arrays, eager, where, definition, program.in_place)


def runs_of_sample(
    s: Sample, dtype: DType, recipe: Recipe, sizes: Mapping[str, int], coverage: Coverage
) -> Iterator[Run]:
    """An op's sample at some sizes."""

    def apply(*tensors: Tensor, **attributes: Any) -> Any:
        rest = iter(tensors)
        return s.op(*(None if a is None else next(rest) for a in s.inputs), **{**s.attributes, **attributes})

    def draw(index: int, a: Argument) -> Array:
        own = a.draw is not None or a.dtype is not None
        if own or (index and s.op.name in PARAMETERS):
            return a.array(dtype, sizes, generator)
        drawn = PLAIN if recipe.kind == "special" and s.op.name in INT8_PRODUCTS else recipe
        return array_of(dtype, tuple(evaluate(size, sizes) for size in a.shape), drawn, generator)

    graph = lucid.trace(apply, *(a.type(dtype) for a in (*s.inputs, *s.carriers) if a is not None))
    generator = np.random.default_rng(sum(sizes.values()))
    arrays = [draw(i, a) for i, a in enumerate((*s.inputs, *s.carriers)) if a is not None]
    named = {name: bound(value, sizes) for name, value in s.attributes.items()}

    def call(*tensors: Tensor) -> Any:
        return apply(*tensors, **named)

    eager = _eager(call, arrays, sizes, coverage)
    if eager is not None:
        yield Run(graph, arrays, eager, f"{s.name} in {dtype} of {recipe} numbers, with {dict(sizes)}")


def _eager(
    function: Callable[..., Any], arrays: Sequence[Array], sizes: Mapping[str, int], coverage: Coverage
) -> list[Array] | None:
    """The result of the function itself; None if it refuses because there are too few elements: the maximum of none, an
    undetermined size, or a kernel that does not fit."""
    try:
        result = function(*map(Tensor.from_array, arrays))
    except ValueError as error:
        if 0 not in sizes.values() or re.search(r"has (no|0) elements|that the kernel spans", str(error)) is None:
            raise
        coverage.refused += 1
        return None
    return [t.numpy() for t in (result if isinstance(result, tuple) else (result,))]


class Prepared:
    """A model exported for a target and loaded, and its judges: all of its runs share them."""

    def __init__(self, graph: Graph, definition: Graph | None, target: Target) -> None:
        """Raises ExportError."""
        self.model, self.decisions, self.target = exported(graph, target)
        self.sessions = [Session(self.model, threads=1, optimize=level) for level in (False, True)]
        self._graphs = graph, definition
        self._judges: dict[bool, tuple[Judge, Judge | None]] = {}

    def verdicts(self, arrays: Sequence[Array], where: str) -> list[Verdict]:
        """What the judge says, of the bodies of ops and of the definition."""
        tame = all(a.dtype.kind in "biu" or (np.abs(a.astype(np.float64)) < 1e15).all() for a in arrays)
        if tame not in self._judges:
            graph, definition = self._graphs
            in_8_bits = self.target.accuracy_level == 4
            bodies = Judge(graph, tame, in_8_bits)
            self._judges[tame] = bodies, None if definition is None else Judge(definition, tame, in_8_bits)
        bodies, definition = self._judges[tame]
        verdicts = bodies(arrays)
        if definition is not None:
            for body, defined in zip(verdicts, definition(arrays), strict=True):
                same_verdict(body, defined, where)
        return verdicts


def verify(runs: Iterable[Run], target: Target, reference: bool, coverage: Coverage) -> None:
    """Export a model and compare its runs with the judge: eager, the graph run with NumPy, and onnxruntime with and
    without optimizations.

    With `reference`, compare onnx's own evaluator too.

    Raises:
        DifferenceError: naming the path and where it differs from the judge.
    """
    prepared: Prepared | None = None
    for run in runs:
        try:
            prepared = prepared or Prepared(run.graph, run.definition, target)
        except ExportError as error:
            if re.search("no type is wider|has no ONNX form", str(error)) is None:
                raise
            coverage.refused += 1
            return
        coverage.note(run.graph, prepared)
        _compare(run, prepared, reference, coverage)


def _compare(run: Run, prepared: Prepared, reference: bool, coverage: Coverage) -> None:
    model = prepared.model
    where = f"{prepared.target}, {run.where}"
    verdicts = prepared.verdicts(run.arrays, where)

    def hold(results: Sequence[Array], way: str, verdicts: Sequence[Verdict] = verdicts) -> None:
        for result, expected, verdict in zip(results, run.eager, verdicts, strict=True):
            same(result, expected, verdict, way, where)

    hold(run.eager, "eager")
    hold(run.graph.run(run.arrays), "the graph run with NumPy")
    for verdict in verdicts:
        coverage.decide(verdict)
    named = dict(zip((value.name for value in model.graph.input), run.arrays, strict=True))
    whole = all(a.size for a in run.arrays)
    for level, session in enumerate(prepared.sessions):
        try:
            results = list(session.run(named).values())
        except Exception as error:
            message = f"{error} {error.__cause__}"  # a session names the empty input, because of what onnxruntime says
            if not any(name in message for name in REFUSES_EMPTY) or whole:
                raise
            coverage.refused += 1
            return
        hold(results, f"onnxruntime, optimised {bool(level)}")
        coverage.comparisons += len(results)
    if run.in_place:
        hold(_run_in_place(prepared.sessions[1], run), "onnxruntime, buffers written in place")
    nodes = list(_nodes(model.graph))
    faults = {node.op_type for node in nodes} & REFERENCE_FAULTS.keys()
    if reference and whole and not faults and not any(node.domain for node in nodes):
        with np.errstate(all="ignore"):
            hold([np.asarray(a) for a in ReferenceEvaluator(model).run(None, named)], "onnx's reference evaluator")
        coverage.judged += len(verdicts)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those within."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


def _run_in_place(session: Session, run: Run) -> list[Array]:
    """The results of a session some of whose outputs are bound to the memory of inputs."""
    values = [ort_value(array.copy()) for array in run.arrays]
    outputs: dict[str, Any] = dict.fromkeys(session.outputs, "cpu")
    names = list(outputs)
    outputs |= {names[output]: values[over] for output, over in run.in_place}
    bound = session.bind(dict(zip(session.inputs, values, strict=True)), outputs)
    bound.run()
    return [numpy_of(value).copy() for value in bound.outputs().values()]


def exported(graph: Graph, target: Target) -> tuple[onnx.ModelProto, list[Decision], Target]:
    """The model, in the requested form if it is exact, else in any."""
    try:
        assembled, lowering = export_graph(graph, target)
    except ExportError as error:
        if "is exact here" not in str(error):
            raise
        target = replace(target, attention="auto")
        assembled, lowering = export_graph(graph, target)
    return in_memory(assembled), lowering.decisions, target


def same_verdict(body: Verdict, definition: Verdict, where: str) -> None:
    """Check that an op's body computes what its definition says: both verdicts refuse what the other one expects.

    A definition hides keys by a mask, where NaN stays NaN, so its NaN says nothing.
    """
    wrong = body.differs(definition.expected) & definition.differs(body.expected) & ~np.isnan(definition.expected)
    if np.any(wrong):
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise DifferenceError(
            f"the bodies of ops: {body.expected[at]} at {list(at)} of {list(body.expected.shape)}, by definition "
            f"{definition.expected[at]} ({int(wrong.sum())} differ)\n{where}"
        )


def same(result: Array, eager: Array, verdict: Verdict, way: str, where: str) -> None:
    """Check that shape and type are those of eager's result, that every number is within rounding of the judge's, and
    that NaN and infinities are where they must be."""
    if result.shape != eager.shape or result.dtype != eager.dtype:
        raise DifferenceError(
            f"{way}: {result.dtype}{list(result.shape)}, eager {eager.dtype}{list(eager.shape)}\n{where}"
        )
    if result.shape != verdict.expected.shape:
        raise DifferenceError(f"{way}: {list(result.shape)}, judge {list(verdict.expected.shape)}\n{where}")
    wrong = verdict.differs(result)
    if np.any(wrong):
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        allowed = np.broadcast_to(verdict.allowed, result.shape)[at]
        raise DifferenceError(
            f"{way}: {result[at]} at {list(at)} of {result.dtype}{list(result.shape)}, "
            f"judge {verdict.expected[at]} (allowed {allowed:.1e}; {int(wrong.sum())} differ)\n{where}"
        )
