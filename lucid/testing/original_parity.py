"""A file compared with what the library that read its checkpoint computes, such as torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array
from lucid.core.sizes.dims import bind
from lucid.core.words.progress import phase
from lucid.nn.model_parts import ModelPart
from lucid.nn.published_model import PublishedModel
from lucid.runtime.session import Session
from lucid.testing.outputs import compare_outputs
from lucid.testing.part_parity import TIMES_IN_CACHES
from lucid.testing.random_inputs import random_inputs
from lucid.testing.report import ParityReport
from lucid.testing.run_sizes import short_sizes
from lucid.testing.runs import ModelOrPath, check_tolerance
from lucid.testing.tolerance import Comparison
from lucid.tracing.parts import trace_part

_PROVIDER = "CPUExecutionProvider"


@phase("comparing with the original")
def original_parity(
    model: PublishedModel,
    part: ModelPart,
    exported: ModelOrPath,
    rtol: float | None = None,
    atol: float | None = None,
) -> ParityReport | None:
    """How an exported part of a model compares with the original on random inputs.

    None where Lucid read the checkpoint, and for a file of two branches.

    Texts are padded on the right, so that each position attends to a token: the result of a query without keys is not
    defined.

    Args:
        model: the exported model, in float32 and not quantized.
        part: the part of it. The file may have more outputs, which are not compared.
        exported: the file, or the model in memory.
        rtol, atol: as for `assert_parity`.
    """
    check_tolerance(rtol, atol)
    if not model.read_by or part.otherwise is not None:
        return None
    graph = trace_part(part).graph
    session = Session(exported, _PROVIDER, spinning=False)
    comparisons: list[Comparison] = []
    for run, sizes in enumerate(part.sizes or short_sizes(graph)):
        drawn = {**_masks(graph, sizes), **({} if part.draw is None else part.draw(sizes))}
        arrays = random_inputs(graph, sizes, run, drawn)
        results = session.run(arrays)
        results = {name: results[name] for name in graph.output_names}
        expected = model.by_original(arrays)[: len(results)]
        comparisons += compare_outputs(
            graph, list(arrays.values()), results, expected, _PROVIDER, sizes, rtol, atol, TIMES_IN_CACHES
        )
    return ParityReport(tuple(comparisons), {})


def _masks(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Masks of tokens whose rows are padded on the right, the first one not at all."""
    masks: dict[str, Array] = {}
    for value in graph.inputs:
        if value.name.endswith("attention_mask"):
            rows, length = bind(value.type.shape, sizes)
            hidden = np.arange(rows)[:, None] % length
            masks[value.name] = (np.arange(length) < length - hidden).astype(value.type.dtype.numpy)
    return masks
