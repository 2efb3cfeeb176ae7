"""Which class reads a checkpoint: by the task that its `architectures` tell, or that the caller asks for."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, TypeAlias

from lucid.models._config import Config, ConfigError, show
from lucid.models._pretrained import Pretrained

Reader: TypeAlias = type[Pretrained[Any]]

SENTENCES = "sentence-similarity"
_TASKS = {  # how the names in `architectures` end, as BertForMaskedLM; what ends with one of _NONE has no head
    "ForMaskedLM": ("fill-mask",),
    "ForSequenceClassification": ("text-classification", "audio-classification"),  # the one that the model has
    "ForTokenClassification": ("token-classification",),
    "ForQuestionAnswering": ("question-answering",),
    "ForCausalLM": ("text-generation",),
    "ForConditionalGeneration": ("text2text-generation",),
    "ForImageClassification": ("image-classification",),
    "ForImageClassificationWithTeacher": ("image-classification",),
    "ForCTC": ("automatic-speech-recognition",),
}
_NONE = ("Model", "ForPreTraining")


def class_of(place: str) -> Reader:
    """``bert.Bert``: a class by its file in `models/` and its name."""
    file, _, name = place.partition(".")
    found: Reader = vars(import_module(f"lucid.models.{file}"))[name]
    return found


def reader_for(base: Reader, task: str | None, options: Config, pooled: bool) -> Reader:
    """The class that reads a checkpoint for a task, or for the one that the checkpoint tells.

    Args:
        base: the class for its model_type, without a head.
        pooled: whether it has a modules.json with the layers of a sentence encoder.

    Raises:
        ConfigError: for an unknown task, one that the weights do not hold, and where the checkpoint tells none or
            several; the message lists the tasks that there are.
    """
    known = base.checkpoint
    if task is None:
        task = SENTENCES if pooled else _only_task(base, options)
    if task == known.task:
        return base
    if task not in known.heads:
        more = "; its modules.json is for sentence-similarity" if pooled else ""
        raise _none(base, options, f"task {show(task)} is not known for model_type {options.model_type}{more}")
    reader = class_of(known.heads[task])
    if not _holds(reader, base, options):
        raise _none(base, options, f"has no weights for task {show(task)}")
    return reader


def without_heads(base: Reader, options: Config) -> dict[str, Any]:
    """The options for a checkpoint that is saved without its head: `architectures` no longer names one."""
    told = _told(base, options) if base.checkpoint.heads else {}
    if all(task == base.checkpoint.task for task in told.values()):
        return options.options
    return {**options.options, "architectures": []}


def _only_task(base: Reader, options: Config) -> str:
    """The task that `architectures` tells; that of the class if there is no other class, or nothing is told."""
    told = _told(base, options)
    if not told or not base.checkpoint.heads:
        return base.checkpoint.task
    if len(set(told.values())) > 1:
        raise _none(base, options, f"architectures are {', '.join(map(show, told))}, expected one")
    name, task = next(iter(told.items()))
    if task is None:
        raise _none(base, options, f"architectures has {show(name)}, whose head is not known here")
    return task


def _told(base: Reader, options: Config) -> dict[str, str | None]:
    """The tasks of the names in `architectures`; None for one that is not known."""
    names = options.options.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise options.wrong("architectures", 'expected a list of names, such as ["BertModel"]')
    task, heads = base.checkpoint.task, base.checkpoint.heads
    writes = task == "text-generation" and "feature-extraction" in heads  # so the class itself has a head
    headless = "feature-extraction" if writes else task
    told: dict[str, str | None] = {}
    for name in names:
        ending = re.search(r"For[A-Z]\w*$", name)
        tasks = _TASKS.get(ending[0], ()) if ending else ()
        known = [found for found in tasks if found in heads]
        told[name] = headless if name.endswith(_NONE) else next(iter([*known, *tasks]), None)
    return told


def _holds(reader: Reader, base: Reader, options: Config) -> bool:
    """Whether the checkpoint has the weights of a head, and does not say that they are those of another one."""
    keys = _keys_of(reader, options)
    if keys is None:
        return False
    heads = base.checkpoint.heads
    others = [class_of(heads[task]) for task in _told(base, options).values() if task is not None and task in heads]
    return all(issubclass(reader, other) or keys.isdisjoint(_keys_of(other, options) or ()) for other in others)


def _keys_of(reader: Reader, options: Config) -> set[str] | None:
    """The checkpoint's keys that a class finds its head by; None if it does not find all."""
    known, found = reader.checkpoint, set[str]()
    names = {key: known.renamed(key) for key in options.weights} if known.head_keys else {}
    for pattern in known.head_keys:
        matched = {key for key, name in names.items() if re.search(pattern, name)}
        if not matched:
            return None
        found |= matched
    return found


def _none(base: Reader, options: Config, problem: str) -> ConfigError:
    known = base.checkpoint
    held = [task for task, place in known.heads.items() if _holds(class_of(place), base, options)]
    return ConfigError(f"{options.where}: {problem}; give a task that it has: {', '.join([known.task, *held])}")
