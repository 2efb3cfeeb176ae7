"""A layout: a name, its runtime, and the function that fills a folder; and the export of a file of a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import TensorType
from lucid.export import Preprocessing, Target
from lucid.export.builder import Strings
from lucid.export.exporter import lower
from lucid.export.onnx_file.writer import rename_side_file
from lucid.export.options import ExportOptions
from lucid.layouts.images import Preprocessor
from lucid.nn.model_parts import CacheKind, ModelPart
from lucid.nn.module import Module
from lucid.testing.quantizing_cost import QuantizingCost
from lucid.testing.report import ParityReport
from lucid.tracing.index_ranges import IndexRanges
from lucid.tracing.parts import TracedPart, trace_part


@dataclass(frozen=True)
class Options:
    """The options of the model in a folder; None stands for what suits the runtime best.

    Args:
        target: a target of `to_onnx`, or its name.
        cache: the kind of the cache of a decoder.
        capacity: the size of a fixed cache; other caches have none. For onnxruntime-genai the most positions of a text,
            prompt and answer together, unless the caller asks for another number.
        dtype: "float16" or "bfloat16", in which weights are stored.
        external_data: whether weights are in a side file; beyond 2 GiB they always are.
        logits_to_keep: of how many of the last tokens a decoder gives logits, or of all.
        accuracy_level: of a target that is given by name: how products with quantized weights are computed.
        preprocessing: what computes inputs within the file, such as a tokenizer.
        preprocessor: the preprocessor of images within the file.
    """

    target: Target | str | None = None
    cache: CacheKind | None = None
    capacity: int | None = None
    dtype: str | None = None
    external_data: bool = False
    logits_to_keep: int | None = None
    accuracy_level: int | None = None
    preprocessing: Preprocessing | None = None
    preprocessor: Preprocessor | None = None

    @property
    def target_name(self) -> str | None:
        """The name of the target."""
        return self.target.name if isinstance(self.target, Target) else self.target

    def target_named(self, name: str, **settings: Any) -> Target:
        """A target with these settings, unless the options have others."""
        level = {} if self.accuracy_level is None else {"accuracy_level": self.accuracy_level}
        return Target(name, **{**settings, **level})


@dataclass(frozen=True)
class Exported:
    """An ONNX file of a folder, and the part of the model in it.

    Args:
        file: its path in the folder.
        part: what was exported.
        target: for which target.
        dtype: the type in which weights are stored, if one was requested.
        inputs, outputs: their types by name.
        opsets: the version of each domain.
        weights: the types in which weights are stored, such as "4 bits" and "float32".
        precision: the runtime's name for the precision, where file names have it.
        parity: how it compares with NumPy; None if this was not measured.
        original: how it compares with the library that read the checkpoint; None if Lucid did, or it was not measured.
        cost: the cost of quantizing against the source; None if nothing was quantized, or it was not measured.
        vocabulary: how many token ids its tables have rows for; None if it takes none, or this is not known.
    """

    file: str
    part: ModelPart
    target: Target
    dtype: str | None
    inputs: Mapping[str, TensorType | Strings]
    outputs: Mapping[str, TensorType]
    opsets: Mapping[str, int]
    weights: tuple[str, ...] = ()
    precision: str = ""
    parity: ParityReport | None = None
    original: ParityReport | None = None
    cost: QuantizingCost | None = None
    vocabulary: int | None = None

    @property
    def quantized(self) -> bool:
        """Whether weights are stored in a few bits."""
        return any(kind.endswith("bits") for kind in self.weights)

    @property
    def tensors(self) -> dict[str, TensorType]:
        """The inputs that hold numbers."""
        return {name: kind for name, kind in self.inputs.items() if isinstance(kind, TensorType)}


@dataclass(frozen=True)
class Layout:
    """The form of a folder from which a runtime loads a model.

    Args:
        name: what `--for` and `write_folder` call it.
        about: the runtime.
        preprocesses: whether its files may contain the tokenizer or the preprocessor; runtimes that bring their own
            need neither.
        takes_precisions: whether a folder may hold the model in several precisions: `write` is called for each.
        write: fills a folder, and returns the ONNX files that it added. Its arguments are the model, the checkpoint
            that has its tokenizer, the folder, and the options. Its errors are those of `write_folder`.
    """

    name: str
    about: str
    write: Callable[[Module, Path, Path, Options], list[Exported]]
    preprocesses: bool = False
    takes_precisions: bool = False


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
        target=target,
        dtype=options.dtype,
        inputs=lowered.inputs,
        outputs=traced.output_types(),
        opsets={entry.domain or "ai.onnx": entry.version for entry in exported.opset_import},
        vocabulary=_vocabulary(traced.joint()),
    )


def _vocabulary(graph: Graph) -> int | None:
    """The rows of the smallest table that token ids index."""
    use = IndexRanges(graph).uses(dict.fromkeys(graph.sizes(), 1)).get("input_ids")
    return None if use is None or use.allowed is None else use.allowed.high + 1
