"""Writing a folder in one of the layouts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lucid.core.words.safe_text import encoded
from lucid.export.options import ExportOptions
from lucid.export.target import Target
from lucid.files.atomic import write_atomically
from lucid.files.folders import new_folder
from lucid.files.hub import local_checkpoint
from lucid.layouts.adapters import write_kept_adapters
from lucid.layouts.card import CARD, card_of
from lucid.layouts.checkpoint_files import check_vocabulary, files_home, text_module
from lucid.layouts.hub import ONNXRUNTIME, OPTIMUM, SENTENCE_TRANSFORMERS, TRANSFORMERS_JS
from lucid.layouts.images import Preprocessor
from lucid.layouts.layout import Exported, Layout, Options
from lucid.layouts.manifest import check_replaceable, write_manifest
from lucid.layouts.parts import parts_of
from lucid.layouts.triton import TRITON
from lucid.layouts.web import WEB
from lucid.nn.model_parts import CacheKind, ModelPart
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.nn.quantized import WeightModule
from lucid.testing.original_parity import original_parity
from lucid.testing.part_parity import part_parity
from lucid.testing.quantizing_cost import measurable, quantizing_cost
from lucid.testing.report import ParityReport
from lucid.testing.weights import compare_weights, export_again
from lucid.tracing.parts import trace_part


def _genai(model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    files: list[Exported] = text_module("layouts.genai").write(model, checkpoint, folder, options)
    return files


GENAI = Layout("genai", "onnxruntime-genai", _genai)
LAYOUTS = {
    layout.name: layout for layout in (ONNXRUNTIME, TRANSFORMERS_JS, SENTENCE_TRANSFORMERS, OPTIMUM, GENAI, TRITON, WEB)
}
"""The layouts by name."""


def write_folder(
    model: Module,
    checkpoint: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    layout: str,
    target: Target | str | None = None,
    cache: CacheKind | None = None,
    capacity: int | None = None,
    dtype: str | None = None,
    external_data: bool = False,
    logits_to_keep: int | None = None,
    accuracy_level: int | None = None,
    with_tokenizer: bool = False,
    with_preprocessor: bool = False,
    check: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    force: bool = False,
    command: Sequence[str] = (),
    original: Module | None = None,
    also: Sequence[tuple[Module, str | None]] = (),
) -> list[Exported]:
    """Export a model to a folder from which another runtime loads it. The folder appears whole or not at all.

    It has the runtime's files, a model card (README.md) and a list of these files (lucid_export.json).

    Args:
        model: what to export.
        checkpoint: the folder, GGUF file or name of the hub with its config and tokenizer, from which it was loaded.
        folder: where to write. An existing folder is replaced as a whole, if it is empty or holds only what Lucid wrote
            there; it stays as it is until the new one is complete.
        layout: a name in `LAYOUTS`, such as "transformers.js".
        target, cache, capacity, dtype, external_data, logits_to_keep, accuracy_level: as `Options`; the defaults suit
            the runtime best.
        with_tokenizer: whether the file takes texts: it contains the checkpoint's tokenizer as operators of
            onnxruntime-extensions. For layout "onnxruntime" and models that read one text at once.
        with_preprocessor: whether the file takes decoded images, (N, height, width, 3) uint8, and resizes and scales
            them as preprocessor_config.json says; for layout "onnxruntime".
        check: whether to run each file in onnxruntime and compare it with NumPy, for the card and the result.
        rtol, atol: of the comparison, as for `lucid.testing.assert_parity`.
        force: replace the folder, whatever it holds.
        command: the command line, for the card.
        original: the model from which `model` was quantized. With `check` the cost of quantizing is measured.
        also: further precisions of the model, for layout "transformers.js": pairs of a model, such as one that was
            quantized from `original`, and a dtype. Readers of the folder load `model` unless they ask for another
            precision.

    Returns:
        The ONNX files in the folder, what each was exported from, and how it compares.

    Raises:
        ValueError: for a layout that does not exist, a model that the runtime does not run, an option that it does not
            take, or a checkpoint without what it needs to know; nothing is written then.
        FileExistsError: for a folder with other files, one that holds the checkpoint, and the working folder.
        OSError: if the tokenizer is missing or the folder cannot be written; an earlier folder is then unchanged.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r} does not exist: choose one of {', '.join(LAYOUTS)}")
    source, output = local_checkpoint(checkpoint), Path(folder)
    _check_apart(source, output)
    chosen = LAYOUTS[layout]
    if accuracy_level is not None and isinstance(target, Target):
        raise ValueError("write_folder: accuracy_level is given next to a Target, which has its own; leave it out")
    options = Options(target, cache, capacity, dtype, external_data, logits_to_keep, accuracy_level)
    if also and not chosen.takes_precisions:
        names = ", ".join(repr(name) for name, known in LAYOUTS.items() if known.takes_precisions)
        raise ValueError(f"{chosen.about} loads one precision of a model; several are for layout {names}")
    if (with_tokenizer or with_preprocessor) and not chosen.preprocesses:
        names = ", ".join(repr(name) for name, known in LAYOUTS.items() if known.preprocesses)
        raise ValueError(
            f"{chosen.about} runs the tokenizer or preprocessor itself; a file that contains one is for layout {names}"
        )
    if with_preprocessor:
        options = replace(options, preprocessor=Preprocessor.from_folder(files_home(source)))
    tokenizing = _tokenizing(model, options) if with_tokenizer else None
    if tokenizing is not None:
        options = replace(options, preprocessing=tokenizing.text_preprocessing(source))
    with new_folder(output, replacing(force)) as staging:
        files: list[Exported] = []
        for each, stored in reversed([(model, dtype), *also]):  # what the folder says of its default is written last
            how = replace(options, dtype=stored)
            new = [replace(f, weights=weight_types(each, stored)) for f in chosen.write(each, source, staging, how)]
            if known := {file.file for file in files} & {file.file for file in new}:
                raise ValueError(f"two models would be {min(known)}: give each precision once")
            for rows in {file.vocabulary for file in new if file.vocabulary is not None}:
                check_vocabulary(source, rows)
            if check:
                compare = part_parity if tokenizing is None else partial(_text_parity, tokenizing, source)
                new = [_compared(file, staging, how, compare, rtol=rtol, atol=atol) for file in new]
                new = _against_sources(new, each, staging, how, original, rtol=rtol, atol=atol)
            files = [*new, *files]
        write_kept_adapters(model, staging)
        with write_atomically(staging / CARD) as card:
            card.write(encoded(card_of(model, source, output, chosen, files, command)))
        write_manifest(staging, layout, {file.file: file.weights for file in files})
    return files


def weight_types(model: Module, dtype: str | None) -> tuple[str, ...]:
    """The types in which weights are stored: quantized ones in how many bits, then the others."""
    quantized = [module for module in model.modules() if isinstance(module, WeightModule) and module.quantized]
    held = {id(array) for weight in quantized for array in weight.parameters()}
    others = {str(array.dtype) for array in model.parameters() if id(array) not in held}
    return *sorted({f"{weight.bits} bits" for weight in quantized}), *([dtype] if dtype else sorted(others))


def _compared(
    file: Exported, folder: Path, options: Options, compare: Callable[..., ParityReport], **tolerance: float | None
) -> Exported:
    """The file with the report of its parity."""
    how = ExportOptions(file.target, file.dtype, preprocessing=options.preprocessing)
    return replace(file, parity=compare(file.part, folder / file.file, how, **tolerance))


def _against_sources(
    files: list[Exported],
    model: Module,
    folder: Path,
    options: Options,
    original: Module | None,
    **tolerance: float | None,
) -> list[Exported]:
    """The files, compared with the library that read the model, or with the model that was quantized."""
    if original is not None:
        quantized = any(file.quantized for file in files)
        return _with_costs(files, original.to("float32"), model) if quantized and measurable(original) else files
    as_read = options == replace(options, dtype=None, preprocessing=None, preprocessor=None)
    if not as_read or not isinstance(model, PublishedModel):
        return files
    return [replace(f, original=original_parity(model, f.part, folder / f.file, **tolerance)) for f in files]


def _tokenizing(model: Module, options: Options) -> Any:
    """The package that writes tokenizers, for a model that may have one in the file."""
    package = text_module("layouts.tokenizing")
    for part in parts_of(model, options, states=False).values():
        package.check_reads_text(part.inputs, model.task if isinstance(model, PublishedModel) else "")
    return package


def _text_parity(
    tokenizing: Any, checkpoint: Path, part: ModelPart, file: Path, options: ExportOptions, **tolerance: float | None
) -> ParityReport:
    """The report of a file that takes texts."""
    report: ParityReport = tokenizing.text_parity(
        part,
        file,
        checkpoint,
        target=options.target,
        dtype=options.dtype,
        weights=compare_weights(file, export_again(trace_part(part), file, options)),
        **tolerance,
    )
    return report


def _with_costs(files: list[Exported], original: Module, model: Module) -> list[Exported]:
    """The files with the cost of quantizing each part; a decoder is called without a cache."""
    before, after = (list(parts_of(each, Options(), states=False, cached=False).values()) for each in (original, model))
    costs = [quantizing_cost(*parts) for parts in zip(before, after, strict=True)]
    if len(costs) != len(files):
        costs = costs[:1]
    return [replace(file, cost=cost) for file, cost in zip(files, costs, strict=False)] + files[len(costs) :]


def _check_apart(checkpoint: Path, folder: Path) -> None:
    if checkpoint.resolve().is_relative_to(folder.resolve()):
        raise FileExistsError(f"cannot write {folder}: {checkpoint} is in it; give the name of another folder")


def replacing(force: bool) -> Callable[[Path], None]:
    """The check of a folder that is there already: with `force` any may be replaced, else those that Lucid wrote."""
    return (lambda _: None) if force else check_replaceable
