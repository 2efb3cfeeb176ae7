"""Heads with labels, whose number is read from the shape of their last weight; and new heads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import lucid
from lucid import nn
from lucid.core.words.safe_text import listed
from lucid.files.hub import local_checkpoint
from lucid.models.checkpoints.config import QUANTIZATION, Array, Config, ConfigError, write_json
from lucid.models.checkpoints.families import HEADS
from lucid.models.checkpoints.load_into import building
from lucid.models.checkpoints.options_read import CLASSES
from lucid.models.checkpoints.pretrained import Checkpoint, Pretrained, read_options
from lucid.models.checkpoints.quantized_weights import as_array
from lucid.models.checkpoints.registry import family_of
from lucid.models.checkpoints.sentence_files import read_modules
from lucid.models.checkpoints.tasks import Reader, class_of, holds

C = TypeVar("C")


def reading_labels(read: Callable[[Config], C], key: str, expected: int | None = None) -> Callable[[Config], C]:
    """A reader of configs that adds the number of labels, which the head's last weight tells.

    Args:
        read: the reader without labels.
        key: a regular expression for the whole key of that weight, in which only optional parts are special.
        expected: how many labels there must be, if that is known.
    """

    def reading(options: Config) -> C:
        name_of_weight = next((name for name in options.weights if re.fullmatch(key, name)), None)
        if name_of_weight is None:
            name = re.sub(r"\(\?:.*?\)\?|\\", "", key)
            raise KeyError(
                f"{options.where}: the checkpoint has no {name}; load it for another task, without this head"
            )
        shape = options.weights[name_of_weight].shape
        if len(shape) < 2 or any(size != 1 for size in shape[2:]):  # of a convolution of single places
            raise KeyError(f"{options.where}: {name_of_weight} has shape {list(shape)}, expected [labels, width]")
        if expected is not None and shape[0] != expected:
            raise ConfigError(f"{options.where}: {name_of_weight} has {shape[0]} labels, expected {expected}")
        return replace(read(options), num_labels=shape[0])  # type: ignore[type-var]  # the config is a dataclass

    return reading


def with_labels(base: Checkpoint[C], task: str, key: str, expected: int | None = None) -> Checkpoint[C]:
    """The checkpoint of a head whose last weight has a row for each label.

    `key` is a regular expression for the whole key of that weight; `expected`, if given, how many labels there must be.
    """
    return replace(
        base,
        read=reading_labels(base.read, key, expected),
        read_unlabelled=base.read,
        # How sentence-transformers makes scores of the logits of a cross-encoder.
        ignored_options=[*base.ignored_options, "sentence_transformers|sbert_ce_.*"],
        head=task,
        head_keys=[f"^{key}"],
    )


# New heads -----------------------------------------------------------------------------------------------------------

TASK = "text-classification"
_BASES = ("text2text-generation", "feature-extraction")
"""The tasks without this head: the first that a family has is that of the whole model."""
_OF_OTHERS = ("auto_map", "num_labels", "problem_type", QUANTIZATION)  # options of code, of a head before, of weights


def has_labels(source: str | os.PathLike[str]) -> bool:
    """Whether a checkpoint has a head for classes of texts.

    Raises:
        ConfigError: for a model that has no such class; also as `lucid.models.load`.
        OSError: if a file is missing.
    """
    options, reader = _opened(source)
    return holds(reader, options)


def head_names(model: Pretrained[Any]) -> set[str]:
    """The names of the parameters that belong to the head alone."""
    base = _base(model.checkpoint.family.tasks)
    own = model.state_dict().keys()
    with nn.init.skip(at_most=len(own) + 1000):
        return {*own} - base(model.config).state_dict().keys()


def write_with_labels(
    source: str | os.PathLike[str], labels: Sequence[str], folder: str | os.PathLike[str], seed: int = 0
) -> None:
    """Write config.json and model.safetensors with a new head for classes of texts, which transformers reads as well.

    Layers that transformers' class shares with the checkpoint, such as BERT's pooler, are kept; if it has this head,
    all but the layer with a row for each label. Others get numbers as they do there: normal ones
    (`Pretrained.new_deviation`), zeros for biases, ones for norms.

    Args:
        source: a checkpoint of a text encoder or a decoder.
        labels: their names.
        folder: one that exists.
        seed: of the new numbers.

    Raises:
        ConfigError: for a model that has no such class, or whose head has unknown names; also as `lucid.models.load`.
        KeyError: for weights that the checkpoint lacks.
        OSError: if a file is missing or cannot be written.
    """
    options, reader = _opened(source)
    known = reader.checkpoint.head_names
    prefix, names = known.get(options.model_type, ("", {}))  # checkpoints of decoders have the names already
    with building(options.where, options.weights):
        config = (reader.checkpoint.read_unlabelled or reader.checkpoint.read)(options.again())
        model, wider = (reader(replace(config, num_labels=count)) for count in (len(labels), len(labels) + 1))
    own, stored, loaded = model.state_dict(), dict[str, Array](), set[str]()
    by_label = {name for name, weight in wider.state_dict().items() if weight.shape != own[name].shape}
    before = "" if holds(reader, options) else prefix  # with this head, the names are those of transformers' class
    for key, weight in options.weights.items():
        kept = key if key.startswith(prefix) else before + key
        name = reader.checkpoint.renamed(kept)
        if name in own and name not in by_label and own[name].shape == weight.shape:
            stored[kept] = as_array(weight)
            loaded.add(name)
    new = [name for name in own if name not in loaded]
    if absent := sorted({*new} - head_names(model)):
        raise KeyError(f"{options.where}: the checkpoint has no {listed(absent, 3)}, expected all of a model")
    if options.model_type not in known and not all(name.startswith("score.") for name in new):
        raise ConfigError(f"{options.where}: how a new head of model_type {options.model_type} is stored is not known")
    random, deviation = np.random.default_rng(seed), reader.new_deviation(options)
    for name in new:
        layer, _, part = name.rpartition(".")
        stored[f"{names.get(layer, layer)}.{part}"] = _new(name, own[name].numpy().shape, random, deviation)
    written = {name: value for name, value in options.options.items() if name not in _OF_OTHERS}
    classes = [name for name in CLASSES.get(options.model_type, ()) if name.endswith(HEADS[TASK])]
    written["architectures"] = classes[:1] or [reader.__name__]  # the second of a model from outside
    written["id2label"] = {str(number): label for number, label in enumerate(labels)}
    written["label2id"] = {label: number for number, label in enumerate(labels)}
    end = written.get("eos_token_id")
    if end is not None and (options.is_null("pad_token_id") or not options.is_known("pad_token_id")):
        # A decoder reads the state of the last token before it.
        written["pad_token_id"] = end[0] if isinstance(end, list) else end
    write_json(Path(folder) / "config.json", written)
    lucid.save(Path(folder) / "model.safetensors", stored, {"format": "pt"})


def _opened(source: str | os.PathLike[str]) -> tuple[Config, Reader]:
    """The options of a checkpoint, and its class with this head."""
    path = local_checkpoint(source)
    modules = read_modules(path)
    options = read_options(path if modules is None else modules.encoder)
    tasks = family_of(options.model_type).tasks
    if TASK not in tasks or not any(task in tasks for task in _BASES):
        raise ConfigError(
            f"{options.where}: model_type {options.model_type} has no head for {TASK}; it has {', '.join(tasks)}"
        )
    return options, class_of(tasks[TASK])


def _base(tasks: Mapping[str, str]) -> Reader:
    """The class without a head, of the classes of a family by task."""
    return class_of(next(tasks[task] for task in _BASES if task in tasks))


def _new(name: str, shape: Sequence[int], random: np.random.Generator, deviation: float) -> Array:
    if len(shape) > 1:
        return (random.standard_normal(shape) * deviation).astype(np.float32)
    return (np.zeros if name.endswith("bias") else np.ones)(shape, np.float32)
