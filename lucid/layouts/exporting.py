"""An ONNX file of a folder."""

from __future__ import annotations

from pathlib import Path

from lucid.export import Target
from lucid.export.exporter import lower
from lucid.export.onnx_file.writer import rename_side_file
from lucid.export.options import ExportOptions
from lucid.layouts.layout import Exported, Options
from lucid.nn.model_parts import ModelPart
from lucid.tracing.parts import TracedPart, trace_part


def export_file(
    part: ModelPart,
    folder: Path,
    file: str,
    target: Target,
    options: Options,
    side_file: str | None = None,
    traced: TracedPart | None = None,
) -> Exported:
    """Export a part of a model to a file of a folder.

    Args:
        part: what is exported.
        folder: the folder.
        file: the path in it; its folders are made.
        target: for which target.
        options: `dtype`, `external_data` and `preprocessing` are obeyed.
        side_file: the name of the file of weights, if there is one; by default what `to_onnx` chooses.
        traced: its graph, where that is known.
    """
    traced = trace_part(part) if traced is None else traced
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    lowered = lower(traced, ExportOptions(target, options.dtype, preprocessing=options.preprocessing))
    exported = lowered.write(path, options.external_data or "auto")
    if side_file is not None:
        rename_side_file(path, side_file)
    return Exported(
        file=file,
        part=part,
        target=target.runtime.name,
        dtype=options.dtype,
        inputs=lowered.inputs,
        outputs=traced.output_types(),
        opsets={entry.domain or "ai.onnx": entry.version for entry in exported.opset_import},
    )
