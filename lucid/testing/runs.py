"""A model run eagerly and in onnxruntime, in several runs: what the checks of exports compare."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array, DTypeLike, as_dtype
from lucid.core.graph.values import Constant, Input, Node, Result, Value
from lucid.core.number_ranges import Range, check_all
from lucid.core.process.threads import blas_threads_for
from lucid.core.sizes.dims import bind
from lucid.export.exporter import export_graph
from lucid.export.target import Target
from lucid.nn.model_parts import Draw, Step, Steps
from lucid.ops.int8 import ROUNDING
from lucid.runtime.changed_models import with_inner_values
from lucid.runtime.providers import REMOTE, ProviderError, available
from lucid.runtime.session import Session
from lucid.testing.outputs import compare_outputs, in_float32
from lucid.testing.precision.report import worst_of
from lucid.testing.random_inputs import random_inputs, run_eagerly
from lucid.testing.report import ParityReport
from lucid.testing.run_sizes import default_sizes
from lucid.testing.tolerance import AS_EAGER, Comparison
from lucid.tracing.trace import Model

# Run only if requested: the first calls a service, the second builds an engine for minutes.
_ON_REQUEST = (REMOTE, "TensorrtExecutionProvider")
_TOLERANCE = Range("a finite number of 0 or more", lambda number: number >= 0)


ModelOrPath: TypeAlias = onnx.ModelProto | str | os.PathLike[str]
"""An exported model, or its path."""


class Loaded(NamedTuple):
    """An exported model that is ready to be compared."""

    sessions: Mapping[str, Session]  # by provider, at accuracy level 0
    not_run: Mapping[str, str]  # why other providers do not run
    # By provider, the model as it was exported, if it rounds inputs of products at level 4.
    rounding: Mapping[str, Session]
    cut_at: Mapping[str, Result]  # values that products round to 8 bits and that the sessions return as well, by name


def load(exported: ModelOrPath, graph: Graph, providers: Sequence[str] | None, target: Target | str = "any") -> Loaded:
    """Load the export of a graph."""
    exact, config = in_float32(exported, graph)
    compared = exact
    cut_at: dict[str, Result] = {}
    if rounded := rounded_values(graph):
        _, lowering = export_graph(graph, Target.of(target, None, None))
        values = {lowering.build.final_name(value): value for value in rounded}
        compared, more, inner = with_inner_values(compared, list(values))
        config, cut_at = {**config, **more}, {name: values[name] for name in inner}
    sessions, not_run = sessions_for(compared, providers, config)
    others = {} if exact is exported else sessions_for(exported, list(sessions), {})[0]
    return Loaded(sessions, not_run, others, cut_at)


def compare_runs(
    model: Model,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    export: ModelOrPath | Loaded,
    graph: Graph,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    providers: Sequence[str] | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    target: Target | str = "any",
    dtype: DTypeLike | None = None,
    draw: Draw | None = None,
    times: float = AS_EAGER,
    steps: Sequence[Steps] = (),
) -> ParityReport:
    """The report of `assert_parity` for a model and its graph, whether or not the results agree.

    Args:
        export: the exported model, or its path.
        graph: what the export computes.
        steps: more runs; each except the first takes outputs of the one before.
        model, inputs, kwargs, rtol, atol, providers, sizes, target, dtype, draw, times: as for `assert_parity`.
    """
    loaded = export if isinstance(export, Loaded) else load(export, graph, providers, target)
    runs = [_Run(values) for values in (default_sizes(graph) if sizes is None else sizes)]
    runs += [_Run(step.sizes, step, consecutive) for consecutive in steps for step in consecutive.runs]
    eager = _Eager(model, inputs, kwargs, graph, draw, rounded=dtype is not None)
    parts = cut(graph, loaded.cut_at) if loaded.cut_at else graph
    comparisons: list[Comparison] = []
    failing: dict[str, Array] = {}
    rounded: dict[str, float] = {}
    whole: dict[str, float] = {}
    for provider, session in loaded.sessions.items():
        outputs = _outputs(session, graph, more=bool(loaded.cut_at))
        before: list[Array] = []  # the outputs of the step before
        for number, run in enumerate(runs):
            with blas_threads_for(_numbers(graph, run.sizes)):
                arrays, expected = eager.run(number, run, before)
                feeds = dict(zip([*session.inputs, *session.optional], arrays, strict=True))
                by_name = session.run(feeds)
                results = {name: by_name[name] for name in outputs}
                before = list(results.values())
                if provider in loaded.rounding:
                    differing = loaded.rounding[provider].run(feeds)
                    rounded[provider] = worst_of([rounded.get(provider, 0.0), _share(differing, results.values())])
                if loaded.cut_at:
                    whole[provider] = worst_of([whole.get(provider, 0.0), _share(results, expected)])
                    arrays += [by_name[name] for name in loaded.cut_at]
                    expected = parts.run(arrays)
                    results |= dict(zip(parts.output_names[len(results) :], arrays[len(graph.inputs) :], strict=True))
                comparisons += compare_outputs(parts, arrays, results, expected, provider, run.sizes, rtol, atol, times)
                failing = failing or ({} if all(c.passed for c in comparisons) else _named(graph, arrays))
    elsewhere = {name: session.elsewhere() for name, session in loaded.sessions.items() if session.elsewhere()}
    return ParityReport(tuple(comparisons), elsewhere, loaded.not_run, rounded, whole, failing=failing)


class _Run(NamedTuple):
    """Values of the sizes; and if it is a step, the steps that it is one of."""

    sizes: Mapping[str, int]
    step: Step | None = None
    steps: Steps | None = None


class _Eager(NamedTuple):
    """A model as NumPy computes it; with `rounded` as its graph, whose weights are rounded."""

    model: Model
    inputs: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    graph: Graph
    draw: Draw | None
    rounded: bool

    def run(self, number: int, run: _Run, before: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """The inputs of a run, some of them from the step before, and the results."""
        draw: Draw | Mapping[str, Array] | None = self.draw
        if run.step is not None and run.steps is not None:
            first = run.step is run.steps.runs[0]
            draw = {**run.step.inputs, **_carried(self.graph, run.steps, run.sizes, [] if first else before)}
        arrays: list[Array] = []
        drawn = random_inputs(self.graph, run.sizes, number, draw)
        expected = run_eagerly(self.model, self.inputs, self.kwargs, drawn, arrays)
        if not self.rounded:
            return arrays, expected
        pairs = zip(self.graph.inputs, arrays, strict=True)
        arrays = [array.astype(value.type.dtype.numpy) for value, array in pairs]
        return arrays, self.graph.run(arrays)


def _outputs(session: Session, graph: Graph, more: bool) -> list[str]:
    """The names of the outputs that are compared; with `more` the session has others after them."""
    outputs = list(session.outputs)[: len(graph.outputs) if more else None]
    if len(session.inputs) + len(session.optional) != len(graph.inputs) or len(outputs) != len(graph.outputs):
        raise ValueError(
            "assert_parity: the file has other inputs or outputs than the model as it is called here; give the "
            "inputs of the export, its part, step or task, or export it again. "
            f"The file maps {', '.join(session.inputs)} to {', '.join(session.outputs)}, "
            f"the model {', '.join(i.name for i in graph.inputs)} to {', '.join(graph.output_names)}"
        )
    return outputs


def _named(graph: Graph, arrays: Sequence[Array]) -> dict[str, Array]:
    return {value.name: array for value, array in zip(graph.inputs, arrays, strict=False)}


def _carried(graph: Graph, steps: Steps, sizes: Mapping[str, int], before: Sequence[Array]) -> dict[str, Array]:
    """The inputs that a step takes from the one before it; zeros for the first step."""
    types = {value.name: value.type for value in graph.inputs}
    return {
        name: before[place] if before else np.zeros(bind(types[name].shape, sizes), types[name].dtype.numpy)
        for name, place in steps.carried.items()
    }


def _numbers(graph: Graph, sizes: Mapping[str, int]) -> int:
    """How many numbers the inputs hold."""
    return sum(prod(bind(value.type.shape, sizes)) for value in graph.inputs)


def _share(results: Mapping[str, Array], exact: Iterable[Array]) -> float:
    """The largest difference of an output, relative to its largest number."""
    pairs = zip(results.values(), exact, strict=False)
    floats = [(got, want) for got, want in pairs if as_dtype(want.dtype).kind == "float" and want.size]
    return worst_of(float(np.abs(got - want).max() / max(float(np.abs(want).max()), 1e-30)) for got, want in floats)


def sessions_for(
    exported: ModelOrPath | bytes, providers: Sequence[str] | None, config: Mapping[str, str]
) -> tuple[dict[str, Session], dict[str, str]]:
    """A session for each requested provider, or for each that starts; and why the others do not.

    Threads that spin would only heat the processor between the few runs that are compared.
    """
    if providers:
        return {name: Session(exported, name, spinning=False, config=config) for name in providers}, {}
    sessions: dict[str, Session] = {}
    not_run: dict[str, str] = {}
    for name in available():
        if name not in _ON_REQUEST:
            try:
                sessions[name] = Session(exported, name, spinning=False, config=config)
            except ProviderError as error:
                not_run[name] = str(error)
    return sessions, not_run


def check_tolerance(rtol: float | None, atol: float | None) -> None:
    """Refuse tolerances that everything or nothing would pass.

    Raises:
        ValueError: for a number that is negative, infinite or NaN.
        TypeError: for anything but a number.
    """
    check_all({"rtol": rtol, "atol": atol}, {"rtol": _TOLERANCE, "atol": _TOLERANCE}, "assert_parity: ")


def rounded_values(graph: Graph) -> list[Result]:
    """The results of nodes that products of a graph round, each once."""
    factors = {id(x): x for node in graph.nodes() if node.op in ROUNDING and isinstance(x := node.inputs[0], Result)}
    return list(factors.values())


def cut(graph: Graph, values: Mapping[str, Result]) -> Graph:
    """A graph whose products round new inputs instead of these values, which become outputs, by their names.

    The inputs and outputs of the original graph come first.
    """
    sources = {id(x): Input(f"given {name}", x.type) for name, x in values.items()}
    copies: dict[int, Value] = {}

    def read(value: Value | None, is_rounded: bool) -> Value | None:
        if value is None or isinstance(value, (Constant, Input)):
            return value
        return sources[id(value)] if is_rounded and id(value) in sources else copies[id(value)]

    for node in graph.nodes():
        inputs = tuple(read(x, index == 0 and node.op in ROUNDING) for index, x in enumerate(node.inputs))
        new = Node(node.op, inputs, node.attributes, node.types, node.scope)
        copies.update((id(before), after) for before, after in zip(node.results, new.results, strict=True))
    outputs = {name: copies.get(id(x), x) for name, x in zip(graph.output_names, graph.outputs, strict=True)}
    outputs |= {f"input of a product: {name}": copies[id(x)] for name, x in values.items()}
    return graph.with_outputs(outputs, [*graph.inputs, *sources.values()])
