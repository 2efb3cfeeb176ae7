"""A model with its checkpoint's tokenizer, compared with a file that takes texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from lucid.core.graph.types import DTypeLike, bind_sizes
from lucid.core.words.progress import phase
from lucid.export import Target
from lucid.export.half_precision import halved
from lucid.export.options import ExportOptions
from lucid.layouts.tokenizing.reference import INPUTS, TEXT, Reference, reference_of
from lucid.nn.model_parts import ModelPart
from lucid.runtime.changed_models import at_level_0
from lucid.testing.outputs import compare_outputs
from lucid.testing.report import ParityReport, WeightReport
from lucid.testing.runs import ModelOrPath, sessions_for
from lucid.testing.tolerance import Comparison
from lucid.tracing.parts import trace_part


def check_reads_text(inputs: Mapping[str, object], task: str = "") -> None:
    """Raise ValueError for a model that a text alone does not feed.

    Args:
        inputs: those of the model, by name.
        task: what it is for, as far as that is known.
    """
    others = [name for name in inputs if name not in INPUTS]
    if others or "input_ids" not in inputs:
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        why = (
            "; a decoder continues a text token by token, with its tokenizer outside"
            if "position_ids" in others
            else ""
        )
        raise ValueError(
            f"a tokenizer in the file is for models that read one text at once; this one takes {shown or 'nothing'}"
            + why
        )
    if task in ("reranking", "question-answering"):
        raise ValueError(f"a tokenizer in the file reads one text, and the task {task} has two; leave it outside")


@phase("checking parity")
def text_parity(
    part: ModelPart,
    exported: ModelOrPath,
    checkpoint: str | os.PathLike[str],
    *,
    providers: Sequence[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    target: Target | str = "any",
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
    weights: WeightReport | None = None,
) -> ParityReport:
    """Compare the model on NumPy, with the tokenizer of its checkpoint, with a file that takes texts.

    Args:
        part: what was exported.
        exported: the file, or the model.
        checkpoint: the folder of the tokenizer.
        providers, rtol, atol, target, dtype, keep_io_types: as for `lucid.testing.assert_parity`.
        weights: how what the file stores compares, for the report. A file that is damaged is not run.

    Raises:
        ValueError: for weights and inputs in 8 bits, whose rounding only `assert_parity` can tell from a fault.
    """
    if weights is not None and weights.damaged:
        return ParityReport((), {}, weights=weights)
    reference, traced = reference_of(checkpoint), trace_part(part)
    half = halved(traced, ExportOptions(target, dtype, keep_io_types))
    graph = (traced if half is None else half.traced).graph
    ops = {node.op.name for node in graph.nodes()}
    if any(name.startswith("int8_linear") for name in ops):
        raise ValueError(
            "a file that takes texts cannot be compared where inputs of products are rounded to 8 bits; compare the "
            "export without its tokenizer, and write this one unchecked (--no-check)"
        )
    exact = at_level_0(exported) if "quantized_linear" in ops else None
    compared, config = (exported, {}) if exact is None else exact
    sessions, not_run = sessions_for(compared, providers, config)
    names = [value.name for value in graph.inputs]
    comparisons: list[Comparison] = []
    for texts in _batches(reference):
        made = reference.encode(texts)
        arrays = [made[name] for name in names]
        sizes = bind_sizes(names, [value.type for value in graph.inputs], arrays)
        expected = graph.run(arrays)
        for provider, session in sessions.items():
            found = session.run({TEXT: np.array(texts, object)})
            comparisons += compare_outputs(graph, arrays, found, expected, provider, sizes, rtol, atol)
    return ParityReport(tuple(comparisons), {}, not_run, weights=weights)


def _batches(reference: Reference) -> list[list[str]]:
    """One text; several, which are padded; and one that is too long."""
    return [
        ["A cat sits on a rug."],
        ["Interest rates rose again.", "", "naïve café, 中文 and 한국어: hello😀there"],
        ["A text of more tokens than the model reads. " * (reference.length // 8 + 1)],
    ]
