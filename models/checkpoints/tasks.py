"""Which class reads a checkpoint: by its `architectures`, or by the task that is asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

from lucid.core.words.safe_text import show
from lucid.core.words.suggestions import did_you_mean
from lucid.models.checkpoints.config import Config, ConfigError
from lucid.models.checkpoints.config_file import by_torch
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.options_read import CLASSES, TRANSFORMERS
from lucid.models.checkpoints.pretrained import Pretrained
from lucid.models.checkpoints.registry import family_of, type_of
from lucid.models.checkpoints.sentence_files import MODULE_TASKS, SENTENCES

Reader: TypeAlias = type[Pretrained[Any]]

_TASKS = {  # how transformers' names end, and what for; of several tasks it is the one that the model has
    "ForMaskedLM": ("fill-mask",),
    "ForSequenceClassification": ("text-classification", "audio-classification"),
    "ForAudioClassification": ("audio-classification",),
    "ForTokenClassification": ("token-classification",),
    "ForQuestionAnswering": ("question-answering",),
    "ForMultipleChoice": ("multiple-choice",),
    "ForCausalLM": ("text-generation",),
    "LMHeadModel": ("text-generation",),
    "ForConditionalGeneration": (
        *("text2text-generation", "automatic-speech-recognition", "text-generation", "image-text-to-text"),
    ),
    "MTModel": ("text2text-generation",),
    "ForImageClassification": ("image-classification",),
    "ForImageClassificationWithTeacher": ("image-classification",),
    "ForMaskedImageModeling": ("masked-im",),
    "ForXVector": ("audio-xvector",),
    "ForSemanticSegmentation": ("image-segmentation",),
    "ForSegmentation": ("image-segmentation",),
    "ForObjectDetection": ("object-detection",),
    "ForDepthEstimation": ("depth-estimation",),
    "ForAudioFrameClassification": ("audio-frame-classification",),
    "ForCTC": ("automatic-speech-recognition",),
    "EncoderModel": ("feature-extraction",),
}
_WRITING = _TASKS["ForConditionalGeneration"]
_OTHER_NAMES = {"feature-extraction": "image-feature-extraction"}  # of a task, where the type has none of that name
_ENDING = re.compile(r"(?:For[A-Z]\w*|LMHeadModel|DoubleHeadsModel|MTModel|EncoderModel|Model(?:WithProjection)?)$")
_FORMER = {"T5WithLMHeadModel": "T5ForConditionalGeneration", "LLaMAForCausalLM": "LlamaForCausalLM"}  # names once


def class_of(place: str) -> Reader:
    """``bert.Bert``: a class by its file in `models/` and its name; ``package.module:Class`` is one from outside.

    Raises:
        ImportError: if there is no such module.
        TypeError: for what is no class of models.
    """
    module, outside, name = place.partition(":")
    if not outside:
        module, _, name = f"lucid.models.{place}".rpartition(".")
    value = vars(import_module(module)).get(name)
    if not isinstance(value, type) or not issubclass(value, Pretrained):
        raise TypeError(f"{place}: expected a class derived from lucid.models.Pretrained, found {value!r}")
    return value


def with_architecture(options: Config, name: str) -> Config:
    """The options of a checkpoint whose class, by its name in transformers, the caller knows.

    Raises:
        ConfigError: for a name that transformers does not have for its model_type; the message lists those that are
            read.
    """
    known = _classes(options)
    if name not in known:
        read = _read_here(options)
        raise ConfigError(
            f"{options.where}: architecture {show(name)} is not known for model_type {options.model_type}; "
            f"known: {', '.join(read)}{did_you_mean(name, read)}"
        )
    options.options = {key: value for key, value in options.options.items() if key != "auto_map"}
    options.options["architectures"] = [name]
    return options


def reader_for(task: str | None, options: Config, of_modules: str | None) -> Reader:
    """The class that reads a checkpoint for a task, by default for the task that the checkpoint names.

    Args:
        of_modules: the task that its modules.json tells, if it has one.

    Raises:
        ConfigError: for a class that transformers does not have, code of the checkpoint's own, an unknown task, one
            that the weights do not hold, and where the checkpoint tells none or several; the message lists the tasks
            that there are.
    """
    _no_foreign_code(options)
    tasks = family_of(options.model_type).tasks
    if task is None:
        task = of_modules or _only_task(options)
    if task in MODULE_TASKS and task not in (of_modules, family_of(options.model_type).task):
        raise _none(options, f"task {show(task)} needs a modules.json that is for it, which the folder does not have")
    if of_modules in MODULE_TASKS and task == SENTENCES:
        raise ConfigError(f"{options.where}: its modules.json is for the task {of_modules}, got {task}; leave it out")
    if task not in tasks and _OTHER_NAMES.get(task) in tasks:
        task = _OTHER_NAMES[task]
    if task not in tasks:
        more = f"; its modules.json is for {of_modules}" if of_modules else ""
        elsewhere = any(task in family.tasks for family in FAMILIES.values())
        if elsewhere and _classes(options):
            more += f"; {by_torch()}"
        similar = "" if elsewhere else did_you_mean(task, tasks)
        raise _none(options, f"task {show(task)} is not known for model_type {options.model_type}{more}", similar)
    reader = class_of(tasks[task])
    if not holds(reader, options):
        raise _none(options, f"has no weights for task {show(task)}")
    return reader


def saved_options(model: Pretrained[Any], options: Config) -> dict[str, Any]:
    """The options of a saved model: `architectures` name its class, and no code is mentioned."""
    kept = {key: value for key, value in options.options.items() if key != "auto_map"}
    names, task = _names(options), model.checkpoint.task
    own = [name for name in _classes(options) if _task_of(name, options) == task]
    if not own or not (names or task != family_of(options.model_type).task) or (names and set(names) <= set(own)):
        return kept
    return {**kept, "architectures": own[:1]}


# What the checkpoint says ---------------------------------------------------------------------------------------------


def _classes(options: Config) -> Sequence[str]:
    """Transformers' classes for the type of a checkpoint; none for a type of Lucid's own."""
    return CLASSES.get(options.model_type, ())


def _names(options: Config) -> list[str]:
    """The names in `architectures`."""
    names: list[str] = options.options.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise options.wrong("architectures", 'expected a list of names, such as ["BertModel"]')
    return [_FORMER.get(name, name) for name in names]


def _no_foreign_code(options: Config) -> None:
    """Refuse a checkpoint whose class is not one of transformers, because its results are unknown.

    Without leave to run a checkpoint's code, transformers loads its own class of the type, whatever that code computes.
    """
    known, kind = _classes(options), options.model_type
    if not known:
        return
    for name in _names(options):
        if name not in known:
            raise ConfigError(
                f"{options.where}: architectures has {show(name)}, which transformers {TRANSFORMERS} does not have for "
                f"model_type {kind}, so it may compute something else. {_way_round(options)}"
            )
    code = options.options.get("auto_map")
    if code is not None and not isinstance(code, dict):
        raise options.wrong("auto_map", "expected an object of names")
    for auto, place in (code or {}).items():
        name = str(place).rpartition(".")[2]
        if auto.startswith("AutoModel") and not (type_of(kind).published_code and name in known):
            raise ConfigError(
                f"{options.where}: auto_map has {show(auto)}: {show(place)}, code of the checkpoint's own, which is "
                f"never run here and may compute something else than transformers' {kind}. {_way_round(options)}"
            )


def _way_round(options: Config) -> str:
    return (
        "If one of transformers' classes computes the same, name it, as load(..., architecture=NAME) or "
        f"lucid export --architecture NAME: {', '.join(_read_here(options))}"
    )


def _read_here(options: Config) -> list[str]:
    """The classes of transformers that have a task here."""
    return [name for name in _classes(options) if _task_of(name, options) is not None]


def _only_task(options: Config) -> str:
    """The task that `architectures` name; without any, that of the model itself."""
    family = family_of(options.model_type)
    names = list(dict.fromkeys(_names(options)))
    if not names:
        return family.task
    by_class = {name: _task_of(name, options) for name in names}
    if len(set(by_class.values())) > 1:
        raise _none(options, f"architectures are {', '.join(map(show, names))}, expected one")
    name, task = names[0], by_class[names[0]]
    if task is None:
        raise _none(options, f"architectures has {show(name)}, which is not supported; {by_torch()}")
    if not holds(class_of(family.tasks[task]), options):
        raise _none(options, f"architectures has {show(name)}, but there are no weights for task {show(task)}")
    return task


def _task_of(name: str, options: Config) -> str | None:
    """The task of a class of transformers; None for one that is not read here."""
    ending, family = _ENDING.search(name), family_of(options.model_type)
    own = [task for task, place in family.tasks.items() if place.endswith(f":{name}")]  # of a model from outside
    if own or ending is None:
        return own[0] if own else None
    if ending[0].startswith("Model"):
        if f"{name.removesuffix('Model')}EncoderModel" in _classes(options):  # whose states feature-extraction gives
            return None
        if family.task in _WRITING:  # the model itself has a head, which these lack
            return "feature-extraction" if "feature-extraction" in family.tasks else None
        return family.task
    return next((task for task in _TASKS.get(ending[0], ()) if task in family.tasks), None)


# What its weights hold ------------------------------------------------------------------------------------------------


def holds(reader: Reader, options: Config) -> bool:
    """Whether the checkpoint has the weights of a class, and does not name another class."""
    keys = _keys_of(reader, options)
    if keys is None:
        return False
    tasks = family_of(options.model_type).tasks
    for name in _names(options):
        task = _task_of(name, options)
        if task is None and keys and not name.endswith("ForPreTraining"):  # what has several heads
            return False
        other = None if task is None else class_of(tasks[task])
        if other is not None and not issubclass(reader, other) and keys & (_keys_of(other, options) or set()):
            return False
    return True


def _keys_of(reader: Reader, options: Config) -> set[str] | None:
    """The checkpoint's keys by which a class recognizes its head; None if one is missing."""
    known, keys = reader.checkpoint, set[str]()
    names = {key: known.renamed(key) for key in options.weights} if known.head_keys else {}
    for pattern in known.head_keys:
        matched = {key for key, name in names.items() if re.search(pattern, name)}
        if not matched:
            return None
        keys |= matched
    return keys


def _none(options: Config, problem: str, similar: str = "") -> ConfigError:
    """An error that lists the tasks for which the checkpoint loads, and ends with the names that a typo may mean."""
    readers = {task: class_of(place) for task, place in family_of(options.model_type).tasks.items()}
    readers = {task: reader for task, reader in readers.items() if task not in MODULE_TASKS}
    loads = [task for task, reader in readers.items() if holds(reader, options) and reader.fits(options)]
    remedy = f"give a task that it has: {', '.join(loads)}" if loads else "its weights fit no supported task"
    return ConfigError(f"{options.where}: {problem}; {remedy}{similar}")
