"""A part of a model compared with what was exported of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lucid.comparing import compare_outputs
from lucid.comparison import Comparison
from lucid.export.half_precision import halved
from lucid.export.target import Target
from lucid.nn.parts import ModelPart
from lucid.parity import ParityError, ParityReport
from lucid.parts import trace_part
from lucid.phases import phase
from lucid.random_inputs import default_sizes, run_eagerly
from lucid.testing import ModelOrPath, assert_parity, sessions_for
from lucid.types import Array, DTypeLike

# A step with a cache has two outputs for each layer: that one of hundreds of results has a rounding error of more than
# three times eager's is usual. In SmolLM2, 30 layers, it is up to 7.5 times; a fault is thousands of times.
_TIMES_IN_CACHES = 10.0


def part_parity(
    part: ModelPart,
    exported: ModelOrPath,
    *,
    providers: Sequence[str] | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    **export: Any,
) -> ParityReport:
    """The report of `assert_parity` for a part of a model, whether or not the results agree.

    Args:
        part: what was exported. Of one with a condition both alternatives are compared.
        exported: the model, or its path.
        providers, sizes, rtol, atol: as for `assert_parity`; by default the part's own sizes.
        export: `target`, `dtype` and `keep_io_types` of the export.
    """
    runs = part.sizes if sizes is None else sizes
    if part.condition is not None:
        return _alternatives(part, part.condition, exported, providers, runs, rtol, atol, **export)
    given: dict[str, Any] = {"providers": providers, "sizes": runs, "rtol": rtol, "atol": atol}
    if part.draw is not None:
        given |= {"draw": part.draw, "times": _TIMES_IN_CACHES}
    try:
        return assert_parity(part.function, kwargs=part.inputs, exported=exported, **given, **export)
    except ParityError as error:
        return error.report


@phase("checking parity")
def _alternatives(
    part: ModelPart,
    condition: str,
    exported: ModelOrPath,
    providers: Sequence[str] | None,
    sizes: Sequence[Mapping[str, int]] | None,
    rtol: float | None,
    atol: float | None,
    target: Target | str = "any",
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
) -> ParityReport:
    """The graph of such a part has the outputs of both alternatives, one after the other, and the exported model those
    of the one that the condition chooses.
    """
    traced = trace_part(part)
    if dtype is not None:
        traced = halved(traced, dtype, Target.of(target, None, None), keep_io_types).traced
    graph, names = traced.graph, traced.output_names
    sessions, not_run = sessions_for(exported, providers, {})
    comparisons: list[Comparison] = []
    for provider, session in sessions.items():
        for sizes_of_run in default_sizes(graph) if sizes is None else sizes:
            arrays: list[Array] = []
            run_eagerly(part.function, (), part.inputs, sizes_of_run, arrays, part.draw)
            arrays = [array.astype(value.type.dtype.numpy) for value, array in zip(graph.inputs, arrays, strict=True)]
            expected, inputs = graph.run(arrays), dict(zip(session.inputs, arrays, strict=True))
            for chosen, start in ((True, 0), (False, len(names))):
                half = graph.with_outputs(dict(zip(names, graph.outputs[start : start + len(names)], strict=True)))
                found = session.run({**inputs, condition: np.array([chosen])})
                results = {name: found[name] for name in names}
                wanted = expected[start : start + len(names)]
                comparisons += compare_outputs(half, arrays, results, wanted, provider, sizes_of_run, rtol, atol)
    return ParityReport(tuple(comparisons), {}, not_run)
