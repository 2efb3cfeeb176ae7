"""Outputs of a graph, compared between NumPy and what an exported file computes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array, DType
from lucid.runtime.changed_models import Model, at_level_0
from lucid.runtime.session import Session
from lucid.testing.in_float64 import NarrowOpError, coarsest, run_in_float64
from lucid.testing.tolerance import AS_EAGER, Comparison, compare


def compare_outputs(
    graph: Graph,
    arrays: Sequence[Array],
    results: Mapping[str, Array],
    expected: Sequence[Array],
    provider: str,
    sizes: Mapping[str, int],
    rtol: float | None,
    atol: float | None,
    times: float = AS_EAGER,
) -> list[Comparison]:
    """Compare the outputs; if rounding may explain a difference, also with the results in float64."""

    def compared(exact: Sequence[Array | None], computed_in: DType | None = None) -> list[Comparison]:
        rounded = None if computed_in is None else computed_in.numpy
        return [
            compare(got, want, name, provider, sizes, rtol, atol, exact_result, rounded, times)
            for (name, got), want, exact_result in zip(results.items(), expected, exact, strict=True)
        ]

    comparisons = compared([None] * len(expected))
    if rtol is None and atol is None and any(not c.passed and not c.problem for c in comparisons):
        try:
            return compared(run_in_float64(graph, arrays), coarsest(graph))
        except NarrowOpError:  # only the magnitudes are known
            return comparisons
    return comparisons


def compare_file(
    graph: Graph,
    arrays: Sequence[Array],
    path: str | os.PathLike[str],
    provider: str = "cpu",
    expected: Sequence[Array] | None = None,
) -> list[Comparison]:
    """Compare the outputs of a file, exported from this graph, with those of NumPy on these inputs.

    A model with quantized weights is compared at accuracy level 0, as by `assert_parity`. One whose products round
    their inputs to 8 bits differs by that rounding: only `assert_parity` can tell it from a fault.

    Args:
        expected: NumPy's outputs, if they are known.
    """
    compared, config = in_float32(path, graph)
    session = Session(compared, provider, spinning=False, config=config)
    results = session.run(dict(zip(session.inputs, arrays, strict=True)))
    expected = graph.run(arrays) if expected is None else expected
    return compare_outputs(graph, arrays, results, expected, provider, graph.sizes_in(arrays), None, None)


def in_float32(exported: Model, graph: Graph) -> tuple[Model, dict[str, str]]:
    """The exported model of a graph at accuracy level 0, and the config for its session; as it is if it has that level.

    Raises:
        ModelError, OSError: as `Session`, for a file.
    """
    changed = at_level_0(exported) if "quantized_linear" in graph.op_names() else None
    return (exported, {}) if changed is None else changed
