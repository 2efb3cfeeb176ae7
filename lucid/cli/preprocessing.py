"""Files that take texts or images: `lucid export --with-tokenizer`, `--with-preprocessor`, and verifying both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from lucid.cli.errors import usage
from lucid.cli.options.groups import SourceOptions
from lucid.cli.source import checkpoint_in
from lucid.export import Preprocessing
from lucid.layouts.checkpoint_files import text_module
from lucid.layouts.images import IMAGES, Preprocessor, with_preprocessor
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.testing.report import ParityReport
from lucid.testing.runs import ModelOrPath
from lucid.tracing.parts import ModelPart
from lucid.tracing.trace import Model


@dataclass(frozen=True)
class Texts:
    """The tokenizer of a checkpoint, and `lucid.layouts.tokenizing`, which needs extras."""

    checkpoint: Path
    package: Any

    @classmethod
    def of(cls, options: SourceOptions, part: ModelPart, model: Model) -> Texts:
        """The checkpoint that a command line names, for a part of a model; a ValueError unless it reads one text."""
        checkpoint = _checkpoint(options, "tokenizer")
        package = text_module("layouts.tokenizing")
        package.check_reads_text(_inputs(part, model), model.task if isinstance(model, PublishedModel) else "")
        return cls(checkpoint, package)

    def preprocessing(self) -> Preprocessing:
        """The preprocessing inside a file, which computes the inputs of the model."""
        result: Preprocessing = self.package.text_preprocessing(self.checkpoint)
        return result

    def parity(self, part: ModelPart, exported: ModelOrPath, **options: Any) -> ParityReport:
        """The comparison of the model with a file that takes texts, with the options of `text_parity`."""
        report: ParityReport = self.package.text_parity(part, exported, self.checkpoint, **options)
        return report


def of_images(options: SourceOptions, part: ModelPart, model: Model) -> ModelPart:
    """A part of a model with the preprocessor of its checkpoint: it takes images instead of pixels."""
    preprocessor = Preprocessor.from_folder(_checkpoint(options, "preprocessor"))
    return with_preprocessor(part, _inputs(part, model), preprocessor)


def _checkpoint(options: SourceOptions, what: str) -> Path:
    checkpoint = checkpoint_in(options)
    if checkpoint is None:
        raise usage(f"SOURCE {options.source!r} has no {what}; give the folder of a checkpoint as SOURCE or --weights")
    return checkpoint


def _inputs(part: ModelPart, model: Model) -> Mapping[str, Any]:
    return part.inputs or (model.input_specs() if isinstance(model, Module) else {})


def takes_images(model: onnx.ModelProto) -> bool:
    """Whether a file was exported with a preprocessor."""
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    return kinds.get(IMAGES) == onnx.TensorProto.UINT8


def takes_texts(model: onnx.ModelProto) -> bool:
    """Whether a file has an input of texts."""
    return any(value.type.tensor_type.elem_type == onnx.TensorProto.STRING for value in model.graph.input)
