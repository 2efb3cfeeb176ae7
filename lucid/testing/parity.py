"""Checks that an exported model computes the same as the eager one, and finds the first node that differs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array, DTypeLike, TensorType, as_dtype
from lucid.core.graph.values import Result
from lucid.core.number_ranges import is_whole
from lucid.core.process.threads import blas_threads_for
from lucid.core.sizes.dims import bind
from lucid.core.words.progress import phase
from lucid.core.words.safe_text import listed, visible
from lucid.export.exporter import Lowered, export_graph, lower, to_onnx
from lucid.export.half_precision import halved
from lucid.export.onnx_file.writer import in_memory
from lucid.export.options import ExportOptions
from lucid.export.target import Target
from lucid.nn.model_parts import Draw
from lucid.runtime.changed_models import at_level_0, with_inner_values
from lucid.runtime.model_file import check_model_file
from lucid.runtime.session import Session
from lucid.testing.outputs import compare_outputs
from lucid.testing.random_inputs import random_inputs, run_eagerly
from lucid.testing.report import DifferentWeight, ParityError, ParityReport
from lucid.testing.run_sizes import QUICK, Branches, branches_by_size, default_sizes
from lucid.testing.runs import ModelOrPath, check_tolerance, compare_runs, load
from lucid.testing.tolerance import AS_EAGER, Comparison
from lucid.testing.weights import compare_weights, export_again
from lucid.tracing.inner_outputs import further_outputs, with_outputs
from lucid.tracing.parts import TracedPart
from lucid.tracing.trace import Model, trace, with_known_inputs


@dataclass(frozen=True)
class Divergence:
    """The first node whose exported value differs from the eager one; or, where none does, stored weights that differ.

    Attributes:
        node, module: the node and where it is; or the first of the weights and where that is.
        max_abs: the largest difference of its numbers.
        expected: its type.
        weights: the stored weights that differ; empty where a node does.
    """

    node: str
    module: str
    max_abs: float
    expected: TensorType
    weights: tuple[DifferentWeight, ...] = ()

    def __str__(self) -> str:
        if self.weights:
            names = listed([weight.name for weight in self.weights])
            return visible(f"no node differs on these inputs; these weights differ: {names}")
        module = self.module or "the model itself"
        return visible(f"first difference: {self.node} in {module}, max abs {self.max_abs:.2e}, {self.expected}")


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
    outputs: Sequence[str] = (),
    **export: Any,
) -> ParityReport:
    """Export a model, run it in onnxruntime and compare with the eager results.

    A model with quantized weights is compared at accuracy level 0; the report says what level 4 adds if the target or
    the given model has it. A model whose products also round their inputs to 8 bits is compared part by part: each
    product gets the inputs that it has in the exported model.

    Args:
        model, inputs, kwargs: as for `lucid.export.to_onnx`. Specs are filled with random numbers
            (`lucid.manual_seed`): normal ones for floats, all rows of the tables that they index for integers, and 0
            and 1 for masks, which pad on the left in one run and on the right in others.
        rtol, atol: each element may differ by atol + rtol * |eager|. By default rtol is 1e-5 for float32, looser or
            tighter for other types, and atol is rtol times the output's typical magnitude; a larger difference passes
            if the element is about as close to the result in float64 as the eager one.
        providers: the providers to run, each of which must start; by default all that start, except TensorRT.
        sizes: values of the symbolic sizes, one run each; by default three runs, one of them all ones, or larger where
            a window of a convolution would not fit, and for sequences of indices a long one: as long as the table of
            positions, or as can be computed in some tenths of a second; and one for each branch of the exported model
            that a size chooses, within that time.
        exported: a model made by `to_onnx`, or its path, to be compared instead of a new export.
        target, dtype, keep_io_types: as for `to_onnx`. With `dtype` the eager results are those of the model whose
            weights are rounded to it, computed in the type in which the target computes.
        draw: called with the values of the sizes; gives arrays for inputs, by name, instead of random numbers.
        times: how many times as far from the result in float64 as the eager one an element may be.
        outputs: further outputs, as for `to_onnx`, which the traced graph gives in NumPy.
        export: further arguments of `to_onnx`, except `part`, `cache` and `capacity`: with `lucid verify`, which takes
            them, a step gets a cache that the model has made.

    Returns:
        The report, which is also in the message of the error.

    Raises:
        ParityError: if an output differs or holds NaN, or nothing could be compared.
        ValueError: for a tolerance that is not a finite number, or sizes that the inputs do not have; for a part or a
            cache.
        TypeError: for a tolerance that is no number, and for providers or sizes that are no list of names and of
            values by name.
    """
    check_tolerance(rtol, atol)
    if given_parts := {"part", "cache", "capacity"} & export.keys():
        raise ValueError(
            f"assert_parity: got {', '.join(sorted(given_parts))}, expected a model as it is called; "
            "lucid verify compares parts and steps with a cache"
        )
    if outputs := further_outputs(model, outputs):
        kwargs, model = with_known_inputs(model, inputs, kwargs), with_outputs(model, outputs)
    graph = _graph(model, inputs, kwargs, ExportOptions(target, dtype, keep_io_types))
    _check_runs(graph, providers, sizes)
    again, weights = None, None
    if exported is not None:
        again = export_again(TracedPart(graph), exported, ExportOptions(target))
        weights = compare_weights(exported, again)
        if weights.damaged:
            raise ParityError(ParityReport((), {}, weights=weights))
    file = to_onnx(graph, target=target, **export) if exported is None else exported
    runs: Sequence[Mapping[str, int]] | None = sizes
    not_run: Sequence[str] = ()
    if runs is None:
        chosen_target = Target.of(target, export.get("opset"), export.get("attention"))
        runs, not_run = _runs(graph, again or lower(TracedPart(graph), ExportOptions(chosen_target)))
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "dtype": dtype, "draw": draw, "times": times}
    with phase("checking parity"):
        loaded = load(file, graph, providers, target)
        report = compare_runs(model, inputs, kwargs, loaded, graph, sizes=runs, **options)
    report = replace(report, weights=weights, branches_not_run=not_run)
    if not report.passed:
        raise ParityError(report)
    return report


def _runs(graph: Graph, lowered: Lowered | str) -> Branches:
    """Values of the sizes, some of which reach the branches of the exported model, and the branches that none does."""
    runs = default_sizes(graph)
    thresholds = () if isinstance(lowered, str) else lowered.lowering.build.thresholds
    reached, not_run = branches_by_size(graph, thresholds, runs, QUICK.branches)
    return Branches([*runs, *reached], not_run)


def _graph(
    model: Model,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    options: ExportOptions,
) -> Graph:
    """The graph that an export with these options computes."""
    graph = trace(model, *inputs, kwargs=kwargs)
    half = halved(TracedPart(graph), options)
    return graph if half is None else half.traced.graph


@phase("finding the first difference")
def bisect(
    model: Model,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    exported: ModelOrPath | None = None,
    provider: str = "cpu",
    rtol: float | None = None,
    atol: float | None = None,
    target: Target | str = "any",
    opset: int | None = None,
    attention: str = "auto",
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
    arrays: Mapping[str, Array] | None = None,
) -> Divergence | None:
    """The first node, in the order of the graph, whose value differs between NumPy and onnxruntime.

    Where no node differs on these inputs, but weights that the exported model stores do, such as rows of a table that
    no input reads, it is a `Divergence` that names these weights. None if nothing differs.

    Args:
        model, inputs, kwargs, rtol, atol, dtype, keep_io_types: as for `assert_parity`.
        exported: the model to examine, made by `to_onnx` with the same arguments, or its path; by default a new export.
        arrays: the inputs by name, such as `failing` of a report of parity. Without any, as where only weights failed,
            they are random ones, in the runs of `assert_parity` until there is a difference.

    Raises:
        KeyError: for `arrays` without one of the inputs.
        ModelError, OSError: as `lucid.runtime.check_model_file`, for a path.
    """
    graph = _graph(model, inputs, kwargs, ExportOptions(target, dtype, keep_io_types))
    record = Target.of(target, opset, attention)
    missing = [value.name for value in graph.inputs if arrays and value.name not in arrays]
    if missing:
        raise KeyError(
            f"bisect: arrays has no {', '.join(missing)}, expected one array for each of: "
            f"{', '.join(value.name for value in graph.inputs)}"
        )
    file = exported if exported is None or isinstance(exported, onnx.ModelProto) else _loaded(exported)
    runs = [] if arrays else list(enumerate(default_sizes(graph)))
    for example in [arrays] if arrays else (random_inputs(graph, values, run) for run, values in reversed(runs)):
        taken: list[Array] = []
        run_eagerly(model, inputs, kwargs, example, taken)
        taken = [array.astype(value.type.dtype.numpy) for value, array in zip(graph.inputs, taken, strict=True)]
        values = graph.sizes_in(taken)
        for result, comparison in compare_nodes(graph, taken, file, provider, rtol, atol, record):
            if not comparison.passed:
                expected = result.type.with_shape(bind(result.type.shape, values))
                return Divergence(comparison.output, result.node.scope, comparison.max_abs, expected)
    return None if exported is None else _different_weights(graph, exported, target)


def _loaded(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """A file with its data."""
    check_model_file(path)
    return onnx.load(path)


def _different_weights(graph: Graph, exported: ModelOrPath, target: Target | str) -> Divergence | None:
    """The weights of an exported model that are not the graph's; None if there are none."""
    again = export_again(TracedPart(graph), exported, ExportOptions(target))
    if isinstance(again, str):
        return None
    stored = again.assembled.initializers
    different = tuple(weight for weight in compare_weights(exported, again).different if weight.name in stored)
    if not different:
        return None
    first = different[0]
    array = stored[first.name]
    kind = TensorType(as_dtype(array.dtype), array.shape)
    return Divergence(first.name, first.name.rpartition(".")[0], first.max_abs, kind, different)


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
    sizes = graph.sizes_in(arrays)
    results: list[Result] = [result for node in graph.nodes() for result in node.results]
    inner = {name for node in assembled.skeleton.graph.node for name in node.output}
    names = {id(result): lowering.build.final_name(result) for result in results}
    shown = [result for result in results if names[id(result)] in inner]
    model = exported if exported is not None else in_memory(assembled)
    with_outputs, _, _ = with_inner_values(model, list(dict.fromkeys(names[id(result)] for result in shown)))
    exact = at_level_0(with_outputs)
    session = Session(with_outputs if exact is None else exact[0], provider, spinning=False, optimize=False)
    computed = session.run(dict(zip([*session.inputs, *session.optional], arrays, strict=True)))
    examined = [result for result in shown if names[id(result)] in computed]
    # The export merges nodes that compute the same, so several results may have one name.
    once = {names[id(result)]: result for result in reversed(examined)}
    reference = graph.with_outputs(once)
    computed = {name: computed[name] for name in reference.output_names}
    with blas_threads_for(sum(array.size for array in arrays)):
        compared = compare_outputs(reference, arrays, computed, reference.run(arrays), provider, sizes, rtol, atol)
    by_name = dict(zip(once, compared, strict=True))
    return [(result, by_name[names[id(result)]]) for result in examined]


def _check_runs(graph: Graph, providers: Sequence[str] | None, sizes: Sequence[Mapping[str, int]] | None) -> None:
    for name, value, of, example in (("providers", providers, str, ["cpu"]), ("sizes", sizes, Mapping, [{"N": 2}])):
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        if value is not None and not (is_list and all(isinstance(each, of) for each in value)):
            raise TypeError(f"assert_parity: {name} is {value!r}, expected a list, such as {example}")
    if providers is not None and not providers:
        raise ValueError("assert_parity: providers is empty; leave it out to run all that are available")
    if sizes is not None and not sizes:
        raise ValueError("assert_parity: sizes is empty; leave it out for three runs with different sizes")
    for run in sizes or ():
        if run.keys() != graph.sizes() or not all(is_whole(n) and n >= 0 for n in run.values()):
            names = ", ".join(sorted(graph.sizes())) or "none"
            raise ValueError(
                f"assert_parity: sizes {dict(run)}: expected a whole number of 0 or more for each of: {names}"
            )
