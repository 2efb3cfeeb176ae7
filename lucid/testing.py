"""Checks that an exported model computes the same as the eager one, and finds the first node that differs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx

from lucid.comparing import compare_file as compare_file
from lucid.comparing import compare_outputs
from lucid.comparison import AS_EAGER
from lucid.comparison import Comparison as Comparison
from lucid.comparison import compare as compare
from lucid.dims import bind
from lucid.export.exporter import export_graph, to_onnx
from lucid.export.half_precision import halved
from lucid.export.target import Target
from lucid.export.writer import in_memory
from lucid.graph import Graph
from lucid.nn.parts import Draw
from lucid.overflow import Overflow as Overflow
from lucid.overflow import half_precision_overflow as half_precision_overflow
from lucid.parity import ParityError as ParityError
from lucid.parity import ParityReport as ParityReport
from lucid.parts import TracedPart
from lucid.phases import phase
from lucid.precision import PrecisionReport as PrecisionReport
from lucid.precision import precision_report as precision_report
from lucid.random_inputs import default_sizes, run_eagerly
from lucid.rounding import cut, rounded_values
from lucid.runtime.accuracy import at_level_0
from lucid.runtime.inner_values import with_inner_values
from lucid.runtime.providers import REMOTE, ProviderError, available
from lucid.runtime.session import Session
from lucid.text import visible
from lucid.threads import blas_threads_for
from lucid.tracing import Model, trace
from lucid.types import Array, DTypeLike, TensorType, bind_sizes
from lucid.values import Result

__all__ = [
    "Comparison",
    "Divergence",
    "Overflow",
    "ParityError",
    "ParityReport",
    "PrecisionReport",
    "assert_parity",
    "bisect",
    "compare_file",
    "half_precision_overflow",
    "precision_report",
]


def __dir__() -> list[str]:
    return __all__


# Run only if requested: the first calls a service, the second builds an engine for minutes.
_ON_REQUEST = (REMOTE, "TensorrtExecutionProvider")


ModelOrPath: TypeAlias = onnx.ModelProto | str | os.PathLike[str]
"""An exported model, or its path."""


@dataclass(frozen=True)
class Divergence:
    """The first node whose exported value differs from the eager one."""

    node: str
    module: str
    max_abs: float
    expected: TensorType

    def __str__(self) -> str:
        module = self.module or "the model itself"
        return visible(f"first difference: {self.node} in {module}, max abs {self.max_abs:.2e}, {self.expected}")


@phase("checking parity")
def assert_parity(
    model: Model,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    providers: Sequence[str] | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    exported: ModelOrPath | None = None,
    target: Target | str = "any",
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
    draw: Draw | None = None,
    times: float = AS_EAGER,
    **export: Any,
) -> ParityReport:
    """Export a model, run it in onnxruntime and compare with the eager results.

    A model with weights in few bits is compared at accuracy level 0; the report says what level 4 adds, if the target
    or the model that is given has it. One whose products round their inputs to 8 bits, too, is compared part by
    part: each product gets the inputs that it has in the exported model (see `lucid.rounding`).

    Args:
        model, inputs, kwargs: as for `lucid.export.to_onnx`. Specs are filled with random numbers
            (`lucid.manual_seed`): normal for floats, 0 and 1 for integers and booleans.
        rtol, atol: each element may differ by atol + rtol * |eager|. By default rtol is 1e-5 for float32, looser or
            tighter for other types, and atol is rtol times the output's typical magnitude; a larger difference passes
            if the element is about as close to the result in float64 as the eager one.
        providers: the providers to run, each of which must start; by default all that start, except TensorRT.
        sizes: values of the symbolic sizes, one run each; by default three runs, one of them all ones, or larger where
            a window of a convolution would not fit.
        exported: a model made by `to_onnx`, or its path, to be compared instead of a new export.
        target, dtype, keep_io_types: as for `to_onnx`. With `dtype` the eager results are those of the model whose
            weights are rounded to it, computed in the type in which the target computes.
        draw: called with the values of the sizes; gives arrays for inputs, by name, instead of random numbers.
        times: how many times as far from the result in float64 as the eager one an element may be.
        export: further arguments of `to_onnx`, but for `part`, `cache` and `capacity`: with `lucid verify`, which takes
            them, a step gets a cache that the model has made.

    Returns:
        The report, which is also in the message of the error.

    Raises:
        ParityError: if an output differs or holds NaN, or nothing could be compared.
        ValueError: for a tolerance that is not a finite number, or sizes that the inputs do not have; for a part or a
            cache.
    """
    _check_tolerance(rtol, atol)
    if given_parts := {"part", "cache", "capacity"} & export.keys():
        raise ValueError(
            f"assert_parity: got {', '.join(sorted(given_parts))}, expected a model as it is called; "
            "lucid verify compares parts and steps with a cache"
        )
    graph = _graph(model, inputs, kwargs, target, dtype, keep_io_types)
    _check_runs(graph, providers, sizes)
    given = to_onnx(graph, target=target, **export) if exported is None else exported
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
    whole = dict.fromkeys(sessions if inner else (), 0.0)
    for provider, session in sessions.items():
        outputs = list(session.outputs)[: len(graph.outputs) if inner else None]
        if len(session.inputs) != len(graph.inputs) or len(outputs) != len(graph.outputs):
            raise ValueError(
                "assert_parity: the file is of another model, or of another part, step or task of it; export it again. "
                f"The file maps {', '.join(session.inputs)} to {', '.join(session.outputs)}, "
                f"the model {', '.join(i.name for i in graph.inputs)} to {', '.join(graph.output_names)}"
            )
        if session.elsewhere():
            elsewhere[provider] = session.elsewhere()
        for sizes_of_run in sizes if sizes is not None else default_sizes(graph):
            with blas_threads_for(_numbers(graph, sizes_of_run)):
                arrays: list[Array] = []
                expected = run_eagerly(model, inputs, kwargs, sizes_of_run, arrays, draw)
                if dtype is not None:
                    arrays = [
                        array.astype(value.type.dtype.numpy) for value, array in zip(graph.inputs, arrays, strict=True)
                    ]
                    expected = graph.run(arrays)
                found = session.run(dict(zip(session.inputs, arrays, strict=True)))
                results = {name: found[name] for name in outputs}
                if inner:
                    whole[provider] = max(whole[provider], *map(_share, results.values(), expected))
                    arrays += [found[name] for name in inner]
                    expected = parts.run(arrays)
                    results |= dict(zip(parts.output_names[len(results) :], arrays[-len(inner) :], strict=True))
                comparisons += compare_outputs(
                    parts, arrays, results, expected, provider, sizes_of_run, rtol, atol, times
                )
                if provider in others:
                    differing = others[provider].run(dict(zip(session.inputs, arrays, strict=False)))
                    rounded[provider] = max(rounded[provider], *map(_share, differing.values(), results.values()))
    report = ParityReport(tuple(comparisons), elsewhere, not_run, rounded, whole)
    if not report.passed:
        raise ParityError(report)
    return report


def _numbers(graph: Graph, sizes: Mapping[str, int]) -> int:
    """How many numbers the inputs hold."""
    return sum(prod(bind(value.type.shape, sizes)) for value in graph.inputs)


def _share(found: Array, exact: Array) -> float:
    """The largest difference, relative to the largest number."""
    if not exact.size or exact.dtype.kind != "f":
        return 0.0
    return float(np.abs(found - exact).max() / max(float(np.abs(exact).max()), 1e-30))


def _graph(
    model: Model,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    target: Target | str,
    dtype: DTypeLike | None,
    keep_io_types: bool,
) -> Graph:
    """The graph that an export with these arguments computes."""
    graph = trace(model, *inputs, kwargs=kwargs)
    if dtype is None:
        return graph
    return halved(TracedPart.whole(graph), dtype, Target.of(target, None, None), keep_io_types).traced.graph


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


@phase("finding the first difference")
def bisect(
    model: Model,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    exported: onnx.ModelProto | None = None,
    provider: str = "cpu",
    rtol: float | None = None,
    atol: float | None = None,
    target: Target | str = "any",
    opset: int | None = None,
    attention: str = "auto",
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
) -> Divergence | None:
    """The first node, in the order of the graph, whose value differs between NumPy and onnxruntime; None if none does.

    Args:
        exported: the model to examine, made by `to_onnx` with the same arguments; by default a new export.
    """
    graph = _graph(model, inputs, kwargs, target, dtype, keep_io_types)
    values = default_sizes(graph)[-1]
    given: list[Array] = []
    run_eagerly(model, inputs, kwargs, values, given)
    arrays = [array.astype(value.type.dtype.numpy) for value, array in zip(graph.inputs, given, strict=True)]
    compared = compare_nodes(graph, arrays, exported, provider, rtol, atol, Target.of(target, opset, attention))
    for result, comparison in compared:
        if not comparison.passed:
            expected = result.type.with_shape(bind(result.type.shape, values))
            return Divergence(comparison.output, result.node.scope, comparison.max_abs, expected)
    return None


@phase("comparing every node")
def compare_nodes(
    graph: Graph,
    arrays: Sequence[Array],
    exported: onnx.ModelProto | None = None,
    provider: str = "cpu",
    rtol: float | None = None,
    atol: float | None = None,
    target: Target | str = "any",
) -> list[tuple[Result, Comparison]]:
    """Compare every value inside a graph that the exported model also has, in order, between NumPy and onnxruntime.

    Args:
        arrays: the inputs, in the order of the graph's inputs.
        exported: the model to examine, made by `to_onnx` from this graph for this target; by default a new export.

    Returns:
        Pairs of a node's result and its comparison, whose `output` is the name in the exported model.
    """
    assembled, lowering = export_graph(graph, Target.of(target, None, None))
    sizes = bind_sizes([i.name for i in graph.inputs], [i.type for i in graph.inputs], arrays)
    results: list[Result] = [result for node in graph.nodes() for result in node.results]
    inner = {name for node in assembled.skeleton.graph.node for name in node.output}
    names = {id(result): lowering.build.final_name(result) for result in results}
    shown = [result for result in results if names[id(result)] in inner]
    with_outputs = onnx.ModelProto()
    with_outputs.CopyFrom(exported if exported is not None else in_memory(assembled))
    outputs = {value.name for value in with_outputs.graph.output}
    infos = {info.name: info for info in with_outputs.graph.value_info}
    for result in shown:
        name = names[id(result)]
        if name not in outputs and name in infos:
            outputs.add(name)
            with_outputs.graph.output.append(infos[name])
    exact = at_level_0(with_outputs)
    session = Session(with_outputs if exact is None else exact[0], provider, spinning=False, optimize=False)
    found = session.run(dict(zip(session.inputs, arrays, strict=True)))
    examined = [result for result in shown if names[id(result)] in found]
    # Nodes that compute the same are one in the exported model.
    once = {names[id(result)]: result for result in reversed(examined)}
    reference = graph.with_outputs(once)
    found = {name: found[name] for name in reference.output_names}
    with blas_threads_for(sum(array.size for array in arrays)):
        compared = compare_outputs(reference, arrays, found, reference.run(arrays), provider, sizes, rtol, atol)
    by_name = dict(zip(once, compared, strict=True))
    return [(result, by_name[names[id(result)]]) for result in examined]


def _check_tolerance(rtol: float | None, atol: float | None) -> None:
    for name, number in (("rtol", rtol), ("atol", atol)):
        if number is not None and not 0 <= number < np.inf:
            raise ValueError(f"assert_parity: {name} is {number}, expected a finite number of 0 or more")


def _check_runs(graph: Graph, providers: Sequence[str] | None, sizes: Sequence[Mapping[str, int]] | None) -> None:
    if providers is not None and not providers:
        raise ValueError("assert_parity: providers is empty; leave it out to run all that are available")
    if sizes is not None and not sizes:
        raise ValueError("assert_parity: sizes is empty; leave it out for three runs with different sizes")
    for run in sizes or ():
        if run.keys() != graph.sizes() or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in run.values()):
            wanted = ", ".join(sorted(graph.sizes())) or "none"
            raise ValueError(
                f"assert_parity: sizes {dict(run)}: expected a whole number of 0 or more for each of: {wanted}"
            )
