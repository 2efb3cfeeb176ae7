"""Which class of transformers reads a checkpoint, by its task or its `architectures`, and the model that it makes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from transformers import AutoConfig

from lucid.core.words.suggestions import did_you_mean
from lucid.importing.torch_import import TorchImportError

TEXTS, TEXT_TO_TEXT, SPEECH = "text-generation", "text2text-generation", "automatic-speech-recognition"
_TASKS = {
    "fill-mask": ("AutoModelForMaskedLM",),
    "text-classification": ("AutoModelForSequenceClassification",),
    "token-classification": ("AutoModelForTokenClassification",),
    "question-answering": ("AutoModelForQuestionAnswering",),
    TEXT_TO_TEXT: ("AutoModelForSeq2SeqLM",),
    TEXTS: ("AutoModelForCausalLM",),
    SPEECH: ("AutoModelForSpeechSeq2Seq", "AutoModelForCTC"),
    "audio-classification": ("AutoModelForAudioClassification",),
    "image-classification": ("AutoModelForImageClassification",),
    "zero-shot-image-classification": ("AutoModelForZeroShotImageClassification",),
    "object-detection": ("AutoModelForObjectDetection",),
    "image-segmentation": ("AutoModelForSemanticSegmentation",),
    "depth-estimation": ("AutoModelForDepthEstimation",),
    "reranking": ("AutoModelForSequenceClassification",),
    "feature-extraction": ("AutoModel",),
    "image-feature-extraction": ("AutoModel",),
}
"""Hugging Face's tasks and transformers' automatic classes for them. A class that is for several gets the first."""
_FAULTS = (OSError, ValueError, LookupError, ImportError, RuntimeError, AttributeError, TypeError)  # of a checkpoint


class Checkpoint(NamedTuple):
    """A checkpoint as transformers reads it."""

    model: torch.nn.Module
    class_name: str
    task: str  # by Hugging Face's name; "" for a class of no known task
    missing: Sequence[str]  # the keys of weights that the files do not have: transformers draws random numbers for them
    options: Mapping[str, Any]  # the options of preprocessor_config.json


def read(folder: Path, task: str | None, architecture: str | None, trust_remote_code: bool) -> Checkpoint:
    """The model of a folder in float32, in evaluation mode; nothing is asked of the network.

    Raises:
        TorchImportError: for an unknown task or one without a class of the type, a class that transformers lacks, the
            checkpoint's own code without leave to run it, and files that transformers does not read.
    """
    if task is not None and task not in _TASKS:
        raise TorchImportError(
            f"task {task!r} is not known with torch, expected one of {', '.join(_TASKS)}{did_you_mean(task, _TASKS)}"
        )
    if task is None and architecture is None and (folder / "modules.json").is_file():
        raise TorchImportError(
            f"{folder}: modules.json makes one vector of the states of tokens, which torch's way does not: give "
            "task='feature-extraction' (--task feature-extraction) for the states of tokens"
        )
    how = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    with quiet():
        try:
            config = AutoConfig.from_pretrained(folder, **how)
        except _FAULTS as error:
            raise _unread(folder, error) from error
        name, chosen, loader = _class(folder, config, task, architecture, trust_remote_code)
        try:
            model, loading = loader.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **how)
        except _FAULTS as error:
            raise _unread(folder, error) from error
    path = folder / "preprocessor_config.json"
    options = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return Checkpoint(model.eval(), name, chosen, list(loading["missing_keys"]), options)


def _class(
    folder: Path, config: Any, task: str | None, architecture: str | None, trust_remote_code: bool
) -> tuple[str, str, Any]:
    """The name of a class, its task, and what loads it."""
    names = list(dict.fromkeys([architecture] if architecture else config.architectures or []))
    if len(names) > 1 and task is None:
        raise TorchImportError(f"{folder}: architectures are {', '.join(names)}, expected one: give a task")
    name = names[0] if names else ""
    if name and not hasattr(transformers, name):
        return _own_code(folder, config, name, task, trust_remote_code)
    known = {each: _classes(each, config) for each in _TASKS}
    if task is not None:
        if not known[task]:
            tasks = ", ".join(each for each, classes in known.items() if classes)
            raise TorchImportError(
                f"{folder}: transformers has no class for task {task!r} of model_type {config.model_type}; "
                f"it has those for {tasks or 'no task'}"
            )
        name = name if architecture or name in known[task] else known[task][0]
    name = name or next(iter(known["feature-extraction"]), "")
    if not name:
        raise TorchImportError(f"{folder}: config.json has no architectures: give a task")
    class_ = getattr(transformers, name)
    task = task or next((each for each, classes in known.items() if name in classes), "")
    if task == "feature-extraction" and class_.main_input_name == "pixel_values":
        task = "image-feature-extraction"
    return name, task, class_


def _classes(task: str, config: Any) -> list[str]:
    """The names of transformers' classes for a task and a type."""
    names: list[str] = []
    for auto in _TASKS[task]:
        mapping = getattr(transformers, auto)._model_mapping
        classes = mapping.get(type(config), ())
        names += [each.__name__ for each in (classes if isinstance(classes, (list, tuple)) else [classes])]
    return names


def _own_code(folder: Path, config: Any, name: str, task: str | None, trust_remote_code: bool) -> tuple[str, str, Any]:
    """A class of the checkpoint's own code, which transformers runs where that is asked for."""
    own = {str(place).rpartition(".")[2]: auto for auto, place in (getattr(config, "auto_map", None) or {}).items()}
    if name not in own:
        version = transformers.__version__
        raise TorchImportError(f"{folder}: architectures has {name!r}, which transformers {version} does not have")
    if not trust_remote_code:
        raise TorchImportError(f"{folder}: {name} is code of the checkpoint's own, which is not run; {TRUST}")
    task = task or next((each for each, autos in _TASKS.items() if own[name] in autos), "")
    return name, task, getattr(transformers, own[name])


TRUST = "if you have read it and trust it, give trust_remote_code=True (--trust-remote-code)"


def _unread(folder: Path, error: BaseException) -> TorchImportError:
    """transformers' error in a line."""
    text = str(error)
    if "trust_remote_code" in text:
        return TorchImportError(f"{folder}: has code of its own, which is not run; {TRUST}")
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    return TorchImportError(f"{folder}: transformers {transformers.__version__} does not read it: {lines[0]}")


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' bars and warnings, which are about training and other uses."""
    logs = transformers.utils.logging
    verbosity, bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logs.set_verbosity(verbosity)
        if bars:
            logs.enable_progress_bar()
