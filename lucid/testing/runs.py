"""A model run eagerly and in onnxruntime, in several runs: what the checks of exports compare."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array, DTypeLike
from lucid.core.process.threads import blas_threads_for
from lucid.core.sizes.dims import bind
from lucid.core.words.phases import phase
from lucid.export.exporter import export_graph
from lucid.export.target import Target
from lucid.nn.parts import Draw, Step, Steps
from lucid.runtime.accuracy import at_level_0
from lucid.runtime.inner_values import with_inner_values
from lucid.runtime.providers import REMOTE, ProviderError, available
from lucid.runtime.session import Session
from lucid.testing.cut_at_rounding import cut, rounded_values
from lucid.testing.outputs import compare_outputs
from lucid.testing.random_inputs import default_sizes, random_inputs, run_eagerly
from lucid.testing.report import ParityReport
from lucid.testing.tolerance import AS_EAGER, Comparison
from lucid.tracing.trace import Model

# Run only if requested: the first calls a service, the second builds an engine for minutes.
_ON_REQUEST = (REMOTE, "TensorrtExecutionProvider")


ModelOrPath: TypeAlias = onnx.ModelProto | str | os.PathLike[str]
"""An exported model, or its path."""


@phase("checking parity")
def compare_runs(
    model: Model,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    given: ModelOrPath,
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
        given: the exported model, or its path.
        graph: what the export computes.
        steps: more runs, of which each but the first takes outputs of the one before.
        model, inputs, kwargs, rtol, atol, providers, sizes, target, dtype, draw, times: as for `assert_parity`.
    """
    planned: list[tuple[Mapping[str, int], Steps | None, Step | None]] = [
        (values, None, None) for values in (default_sizes(graph) if sizes is None else sizes)
    ]
    planned += [(step.sizes, consecutive, step) for consecutive in steps for step in consecutive.runs]
    exact = at_level_0(given) if "quantized_linear" in graph.op_names() else None
    compared, config = (given, {}) if exact is None else exact
    inner: list[str] = []  # names of values that products round to 8 bits
    parts = graph
    if rounded_values(graph):
        _, lowering = export_graph(graph, Target.of(target, None, None))
        values = {lowering.build.final_name(value): value for value in rounded_values(graph)}
        compared, more, inner = with_inner_values(compared, list(values))
        config = {**config, **more}
        parts = cut(graph, {name: values[name] for name in inner})
    comparisons: list[Comparison] = []
    elsewhere: dict[str, Mapping[str, str]] = {}
    sessions, not_run = sessions_for(compared, providers, config)
    others = {} if exact is None else sessions_for(given, list(sessions), {})[0]
    rounded = dict.fromkeys(others, 0.0)
    failing: dict[str, Array] = {}
    whole = dict.fromkeys(sessions if inner else (), 0.0)
    for provider, session in sessions.items():
        outputs = list(session.outputs)[: len(graph.outputs) if inner else None]
        if len(session.inputs) != len(graph.inputs) or len(outputs) != len(graph.outputs):
            raise ValueError(
                "assert_parity: the file has other inputs or outputs than the model as it is called here; give the "
                "inputs of the export, its part, step or task, or export it again. "
                f"The file maps {', '.join(session.inputs)} to {', '.join(session.outputs)}, "
                f"the model {', '.join(i.name for i in graph.inputs)} to {', '.join(graph.output_names)}"
            )
        if session.elsewhere():
            elsewhere[provider] = session.elsewhere()
        before: list[Array] = []  # the outputs of the step before
        for run, (sizes_of_run, consecutive, step) in enumerate(planned):
            with blas_threads_for(_numbers(graph, sizes_of_run)):
                arrays: list[Array] = []
                if consecutive is None or step is None:
                    drawn = random_inputs(graph, sizes_of_run, run, draw)
                else:
                    before = [] if step is consecutive.runs[0] else before
                    continued = {**step.given, **_carried(graph, consecutive, sizes_of_run, before)}
                    drawn = random_inputs(graph, sizes_of_run, run, continued)
                expected = run_eagerly(model, inputs, kwargs, drawn, arrays)
                if dtype is not None:
                    arrays = [
                        array.astype(value.type.dtype.numpy) for value, array in zip(graph.inputs, arrays, strict=True)
                    ]
                    expected = graph.run(arrays)
                found = session.run(dict(zip(session.inputs, arrays, strict=True)))
                results = {name: found[name] for name in outputs}
                before = [] if step is None else list(results.values())
                if inner:
                    whole[provider] = max(whole[provider], *map(_share, results.values(), expected))
                    arrays += [found[name] for name in inner]
                    expected = parts.run(arrays)
                    results |= dict(zip(parts.output_names[len(results) :], arrays[-len(inner) :], strict=True))
                comparisons += compare_outputs(
                    parts, arrays, results, expected, provider, sizes_of_run, rtol, atol, times
                )
                if not failing and not all(c.passed for c in comparisons):
                    failing = {value.name: array for value, array in zip(graph.inputs, arrays, strict=False)}
                if provider in others:
                    differing = others[provider].run(dict(zip(session.inputs, arrays, strict=False)))
                    rounded[provider] = max(rounded[provider], *map(_share, differing.values(), results.values()))
    return ParityReport(tuple(comparisons), elsewhere, not_run, rounded, whole, failing=failing)


def _carried(graph: Graph, steps: Steps, sizes: Mapping[str, int], before: Sequence[Array]) -> dict[str, Array]:
    """What a step takes of the one before; zeros for the first one."""
    types = {value.name: value.type for value in graph.inputs}
    return {
        name: before[place] if before else np.zeros(bind(types[name].shape, sizes), types[name].dtype.numpy)
        for name, place in steps.carried.items()
    }


def _numbers(graph: Graph, sizes: Mapping[str, int]) -> int:
    """How many numbers the inputs hold."""
    return sum(prod(bind(value.type.shape, sizes)) for value in graph.inputs)


def _share(found: Array, exact: Array) -> float:
    """The largest difference, relative to the largest number."""
    if not exact.size or exact.dtype.kind != "f":
        return 0.0
    return float(np.abs(found - exact).max() / max(float(np.abs(exact).max()), 1e-30))


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
    """
    for name, number in (("rtol", rtol), ("atol", atol)):
        if number is not None and not 0 <= number < np.inf:
            raise ValueError(f"assert_parity: {name} is {number}, expected a finite number of 0 or more")
