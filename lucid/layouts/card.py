"""The model card of a folder, README.md: how to load it, what is in it, how it was made and from what."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

from lucid.core.graph.types import TensorType
from lucid.core.version import __version__
from lucid.core.words.safe_text import visible
from lucid.export.builder import Strings
from lucid.layouts.checkpoint_files import name_of, sources
from lucid.layouts.layout import Exported, Layout
from lucid.layouts.loading_code import Subject, lines_for
from lucid.layouts.source_card import source_card
from lucid.models.checkpoints.adapters import titles
from lucid.models.checkpoints.config import names_of
from lucid.models.checkpoints.pretrained import Pretrained, Unread
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.runtime.providers import installed
from lucid.testing.precision.report import OutputError
from lucid.testing.report import ParityReport

CARD = "README.md"
_LIBRARIES = ("transformers.js", "sentence-transformers", "optimum")  # that the hub knows, by the same names


def card_of(
    model: Module,
    checkpoint: Path,
    folder: Path,
    layout: Layout,
    files: Sequence[Exported],
    command: Sequence[str],
) -> str:
    """The card's text, in Markdown; `folder` is the name that the folder will have."""
    name = name_of(checkpoint)
    task, class_name = "", type(model).__name__
    if isinstance(model, PublishedModel):
        task, class_name = model.task, model.class_name
    subject = Subject(folder.name, task, checkpoint, tuple(files))
    language, lines = lines_for(layout.name, subject)
    parts = [
        *_for_the_hub(layout, task, checkpoint),
        f"# {visible(name)} for {layout.about}",
        f"{visible(name)} as ONNX: `{class_name}`" + (f", for the task {task}." if task else "."),
        "## Loading it",
        f"```{language}\n{lines.rstrip()}\n```",
        *_precisions(files),
        *_missing_tokenizer(subject),
        "## Inputs and outputs",
        *_all_types(files),
        f"## Agreement with the {_compared(files)}",
        _agreement(model, files),
        *_cost(files),
        "## How it was made",
        _made(model, layout, files, command),
        "The files that it was made of, and their SHA-256:",
        _table(("file", "SHA-256"), ((visible(file), digest) for file, digest in _sources(model, checkpoint))),
        *_adapters(model),
        *_options_without_effect(model),
        f"The licence of the weights is that of {visible(name)}. `lucid_export.json` lists the files of this folder.",
    ]
    return "\n\n".join(parts) + "\n"


def _missing_tokenizer(subject: Subject) -> list[str]:
    """The note on a missing tokenizer, for models that read text."""
    if not subject.reads_text or subject.takes_texts or subject.has_tokenizer:
        return []
    return [
        "The checkpoint has no tokenizer.json, so neither has this folder: the token ids have to come from elsewhere. "
        "transformers writes the file: `AutoTokenizer.from_pretrained(...).save_pretrained(...)`."
    ]


def _for_the_hub(layout: Layout, task: str, checkpoint: Path) -> list[str]:
    """The lines between dashes that Hugging Face's hub reads, with the licence and the tags of the source's card."""
    source = source_card(checkpoint)
    library = [f"library_name: {layout.name}"] * (layout.name in _LIBRARIES)
    tag = [f"pipeline_tag: {_TAGS.get(task, task)}"] * bool(task)
    tags = [f"- {name}" for name in dict.fromkeys(["onnx", *source.tags])]
    return ["\n".join(["---", *source.lines, *library, *tag, "tags:", *tags, "---"])]


_TAGS = {"reranking": "text-ranking", "text2text-generation": "text-generation"}  # what the hub calls these tasks


def _all_types(files: Sequence[Exported]) -> list[str]:
    """The inputs and outputs of each file; several precisions share one entry."""
    alike: dict[str, list[str]] = {}
    for file in files:
        alike.setdefault(_types(file), []).append(f"`{file.file}`")
    return [f"{', '.join(names)}:\n\n{types}" for types, names in alike.items()]


def _types(file: Exported) -> str:
    rows = [("input", *row) for row in _rows(file.inputs)] + [("output", *row) for row in _rows(file.outputs)]
    return _table(("", "name", "type"), rows)


def _rows(types: Mapping[str, TensorType | Strings]) -> list[tuple[str, str]]:
    """Names and types; the caches of all layers as one row, that of the first layer."""
    rows = []
    for name, kind in types.items():
        words = name.split(".")
        if len(words) > 1 and words[1].isdecimal():
            if words[1] != "0":
                continue
            name = ".".join([words[0], "{layer}", *words[2:]])
        rows.append((f"`{visible(name)}`", f"`{kind}`"))
    return rows


def _agreement(model: Module, files: Sequence[Exported]) -> str:
    """The comparison of the files with the exported model, which may be quantized."""
    measured = [(file.file, file.parity) for file in files if _was_compared(file.parity)]
    if not measured:
        reasons = dict.fromkeys(why for file in files if file.parity for why in file.parity.not_run.values())
        return f"Not measured: {'; '.join(reasons)}." if reasons else "Not measured (`--no-check`)."
    rows = [(f"`{name}`", *_figures(parity)) for name, parity in measured]
    texts = any(len(file.tensors) < len(file.inputs) for file in files)
    what = "texts, read by the checkpoint's own tokenizer for NumPy," if texts else "random inputs of several sizes"
    return (
        f"Each file was run on {what} and compared with the {_compared(files)} computed by NumPy, in float32:\n\n"
        + _table(("file", "runs", "largest difference", "of what is allowed", "equal weights", "agrees"), rows)
        + "".join(
            f"\n\n`{name}` on {provider}: {level}."
            for name, parity in measured
            for provider, level in parity.accuracy_levels.items()
        )
        + "".join(
            f"\n\n`{file.file}` was also compared with {model.read_by}: {_originally(file.original)}."
            for file in files
            if _was_compared(file.original) and isinstance(model, PublishedModel)
        )
    )


def _was_compared(report: ParityReport | None) -> TypeGuard[ParityReport]:
    return report is not None and bool(report.comparisons)


def _compared(files: Sequence[Exported]) -> str:
    """The model that the files are compared with."""
    if len({file.quantized for file in files}) > 1:
        return "source or the quantized model"
    return "quantized model" if files[0].quantized else "source"


def _cost(files: Sequence[Exported]) -> list[str]:
    """The cost of quantizing against the source, if it was measured."""
    rows = [
        (f"`{file.file}`", f"`{visible(each.name)}`", *_errors(each))
        for file in files
        if file.cost is not None
        for each in file.cost.outputs
    ]
    if not rows:
        return []
    titles = ("file", "output", "mean cosine", "worst cosine", "relative error")
    text = (
        "Outputs of the quantized model computed by NumPy (accuracy level 0) against those of the source in float32, "
        "on random inputs (token ids from all rows of their tables):"
    )
    return ["## What quantizing cost", f"{text}\n\n{_table(titles, rows)}"]


def _errors(output: OutputError) -> tuple[str, str, str]:
    return f"{output.cosine_mean:.4f}", f"{output.cosine_worst:.4f}", f"{output.error:.2g}"


def _figures(parity: ParityReport) -> tuple[str, ...]:
    runs = len({(c.provider, *c.sizes.items()) for c in parity.comparisons})
    share = parity.worst.share if parity.worst is not None else 0.0
    weights = parity.weights
    equal = "" if weights is None else f"{weights.equal} of {weights.stored}"
    return str(runs), f"{parity.max_abs:.1e}", f"{share:.0%}", equal, "yes" if parity.passed else "**no**"


def _originally(report: ParityReport) -> str:
    runs, difference, share, _, agrees = _figures(report)
    return f"largest difference {difference} in {runs} runs, {share} of what is allowed; agrees: {agrees}"


def _made(model: Module, layout: Layout, files: Sequence[Exported], command: Sequence[str]) -> str:
    first = files[0]
    opsets = ", ".join(f"{domain} {version}" for domain, version in first.opsets.items())
    by = f"```sh\n{visible(shlex.join(['lucid', *command]))}\n```\n\n" if command else ""
    rows = [
        ("made by", f"Lucid {__version__}"),
        ("layout", layout.name),
        ("target", first.target.runtime.name),
        ("opset", opsets),
        *_weights(files),
    ]
    if isinstance(model, PublishedModel) and model.read_by:
        rows.append(("read by", model.read_by))
    if _was_compared(first.parity):
        rows.append(("compared with", f"onnxruntime {installed()}"))
    return by + _table(("", ""), rows)


def _weights(files: Sequence[Exported]) -> list[tuple[str, str]]:
    """How the weights of all files are stored, or of each where they differ."""
    if len({file.weights for file in files}) == 1:
        return [("weights", ", ".join(files[0].weights))]
    return [(f"weights of `{file.file}`", ", ".join(file.weights)) for file in files]


def _precisions(files: Sequence[Exported]) -> list[str]:
    """How another precision than the first is asked for, if there are several."""
    names = list(dict.fromkeys(file.precision for file in files))
    if len(names) == 1:
        return []
    others = ", ".join(f"`{name}`" for name in names[1:])
    return [
        f"Loaded without a `dtype` it is `{names[0]}`. The folder also has {others}: a last argument such as "
        f'`{{ dtype: "{names[1]}" }}` asks for it.'
    ]


def _sources(model: Module, checkpoint: Path) -> Iterable[tuple[str, str]]:
    adapters = {**model.adapters, **model.kept_adapters} if isinstance(model, Pretrained) else {}
    return sources(checkpoint, adapters).items()


def _adapters(model: Module) -> list[str]:
    """A line for the adapters that were merged into the weights, and one for those that a run takes."""
    if not isinstance(model, Pretrained):
        return []
    kinds = {"Adapters that were merged into the weights": model.adapters, "Adapters for runs": model.kept_adapters}
    return [f"{what}: {', '.join(map(visible, titles(folders)))}." for what, folders in kinds.items() if folders]


def _options_without_effect(model: Module) -> list[str]:
    """The options of config.json that the model was made without, in a line for each reason."""
    unread = model.unread if isinstance(model, Pretrained) else Unread()
    lines = []
    if unread.on_request:
        lines.append(f"Options of its config.json that were ignored on request: {names_of(unread.on_request)}.")
    if unread.ignored:
        lines.append(f"Options of its config.json that no code of the model reads: {names_of(unread.ignored)}.")
    return lines


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
