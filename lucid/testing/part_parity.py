"""A part of a model compared with its export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array
from lucid.core.words.progress import phase
from lucid.export.exporter import Lowered
from lucid.export.half_precision import halved
from lucid.export.options import DEFAULT, ExportOptions
from lucid.nn.model_parts import Alternative, ModelPart, Steps
from lucid.testing.report import ParityReport
from lucid.testing.run_sizes import QUICK, Effort, branches, branches_by_size, default_sizes, longest_run, short_sizes
from lucid.testing.runs import Loaded, ModelOrPath, check_tolerance, compare_runs, load
from lucid.testing.tolerance import AS_EAGER
from lucid.testing.weights import compare_weights, export_again
from lucid.tracing.index_ranges import IndexRanges, largest
from lucid.tracing.parts import TracedPart, trace_part, with_ranks

# A step with a cache has two outputs for each layer, and among so many some have a rounding error of more than three
# times the eager one's: in SmolLM2 (30 layers) up to 7.5 times. A fault gives thousands of times.
TIMES_IN_CACHES = 10.0


def part_parity(
    part: ModelPart,
    exported: ModelOrPath,
    options: ExportOptions = DEFAULT,
    *,
    providers: Sequence[str] | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    effort: Effort = QUICK,
    again: Lowered | None = None,
) -> ParityReport:
    """The report of `assert_parity` for a part of a model, whether or not the results agree.

    A part with a cache is also run step by step: a prompt, and tokens after it with the cache that the file itself
    returned. If the exported model chooses a branch by a size, some run reaches each branch.

    Args:
        part: what was exported. If an input chooses between two functions, both are compared.
        exported: the model, or its path.
        options: how it was exported.
        providers, sizes, rtol, atol: as for `assert_parity`; by default the part's own sizes.
        effort: about how many operations the runs may take.
        again: the part as it is exported now with these options, if that is known, which the file's weights are
            compared with.
    """
    check_tolerance(rtol, atol)
    part = with_ranks(part)
    traced = trace_part(part) if again is None else again.traced
    half = halved(traced, options) if again is None else again.half
    compared = traced if half is None else half.traced
    expected = export_again(traced, exported, options) if again is None else again
    weights = compare_weights(exported, expected)
    if weights.damaged:
        return ParityReport((), {}, weights=weights)
    graph = compared.joint()
    runs, steps, not_run = (sizes, (), ()) if sizes is not None else _planned(part, graph, expected, effort)
    how: dict[str, Any] = {"rtol": rtol, "atol": atol, "sizes": runs, "dtype": options.dtype}
    with phase("checking parity"):
        loaded = load(exported, graph, providers, options.target)
        if part.otherwise is not None:
            report = _alternatives(part, compared, part.otherwise, loaded, **how)
        else:
            how["times"] = AS_EAGER if part.draw is None else TIMES_IN_CACHES
            report = compare_runs(part.function, (), part.inputs, loaded, graph, draw=part.draw, steps=steps, **how)
    return replace(report, weights=weights, branches_not_run=not_run)


def _alternatives(
    part: ModelPart, traced: TracedPart, otherwise: Alternative, loaded: Loaded, **options: Any
) -> ParityReport:
    """Each of two functions, compared with what the file computes where the input that chooses says so."""
    reports = []
    for function, graph, chosen in zip((part.function, otherwise.function), traced.graphs, (True, False), strict=True):

        def draw(sizes: Mapping[str, int], chosen: bool = chosen) -> Mapping[str, Array]:
            drawn = {} if part.draw is None else part.draw(sizes)
            return {**drawn, otherwise.condition: np.array([chosen])}

        reports.append(compare_runs(function, (), part.inputs, loaded, graph, draw=draw, **options))
    first, last = reports
    rounded = {provider: max(share, last.rounded[provider]) for provider, share in first.rounded.items()}
    comparisons, failing = (*first.comparisons, *last.comparisons), first.failing or last.failing
    return replace(first, comparisons=comparisons, rounded=rounded, failing=failing)


def _planned(
    part: ModelPart, graph: Graph, expected: Lowered | str, effort: Effort
) -> tuple[Sequence[Mapping[str, int]], Sequence[Steps], Sequence[str]]:
    """Values of the sizes, one run each; steps that follow each other; and the branches that these do not reach."""
    usual = short_sizes(graph) if part.steps is not None else default_sizes(graph, effort.longest)
    sizes: list[Mapping[str, int]] = list(usual if part.sizes is None else part.sizes)
    steps = [] if part.steps is None else [_steps(graph, part.steps, effort.longest)]
    if steps and not isinstance(expected, str) and expected.lowering.build.rows_apart:
        sizes = []  # these runs have several new tokens in several rows
    runs = [*sizes, *(step.sizes for each in steps for step in each.runs)]
    if isinstance(expected, str):
        return sizes, steps, ()
    thresholds = expected.lowering.build.thresholds
    if part.steps is None:
        reached, not_run = branches_by_size(graph, thresholds, sizes, effort.branches)
        return [*sizes, *reached], steps, not_run
    consecutive, ranges = part.steps, IndexRanges(graph)

    def reachable(lengths: Mapping[str, int]) -> bool:
        first = consecutive(max(lengths.values()))
        return lengths.items() <= first.runs[0].sizes.items() and _fit(ranges, first)

    prompts, not_run = branches(graph, thresholds, runs, effort.branches, reachable)
    return sizes, [*steps, *(consecutive(max(lengths.values())) for lengths in prompts)], not_run


def _steps(graph: Graph, steps: Callable[[int], Steps], operations: float) -> Steps:
    """Steps after the longest prompt whose positions the tables of a graph hold, and that this takes."""
    ranges = IndexRanges(graph)
    return steps(largest(longest_run(graph, operations) // 2, lambda prompt: _fit(ranges, steps(prompt))))


def _fit(ranges: IndexRanges, steps: Steps) -> bool:
    """Whether tables hold all positions of steps."""
    for step in steps.runs:
        uses = ranges.uses(step.sizes)
        allowed = {name: use.allowed for name, use in uses.items() if use.allowed is not None}
        if not ranges.fits(step.sizes) or not all(
            allowed[name].low <= array.min() and array.max() <= allowed[name].high
            for name, array in step.inputs.items()
            if name in allowed
        ):
            return False
    return True
