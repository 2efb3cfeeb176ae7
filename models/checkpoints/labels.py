"""Heads with labels, whose number is read from the shape of their last weight."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from lucid.models.checkpoints.pretrained import Checkpoint, Config, ConfigError

C = TypeVar("C")


def reading_labels(read: Callable[[Config], C], key: str, expected: int | None = None) -> Callable[[Config], C]:
    """A reader of configs that adds the number of labels, which the head's last weight tells.

    Args:
        read: the reader without labels.
        key: a regular expression for the whole key of that weight, in which only optional parts are special.
        expected: how many labels there must be, if that is known.
    """

    def reading(options: Config) -> C:
        found = next((name for name in options.weights if re.fullmatch(key, name)), None)
        if found is None:
            name = re.sub(r"\(\?:.*?\)\?|\\", "", key)
            raise KeyError(
                f"{options.where}: the checkpoint has no {name}; load it for another task, without this head"
            )
        shape = options.weights[found].shape
        if len(shape) < 2 or any(size != 1 for size in shape[2:]):  # of a convolution of single places
            raise KeyError(f"{options.where}: {found} has shape {list(shape)}, expected [labels, width]")
        if expected is not None and shape[0] != expected:
            raise ConfigError(f"{options.where}: {found} has {shape[0]} labels, expected {expected}")
        return replace(read(options), num_labels=shape[0])  # type: ignore[type-var]  # the config is a dataclass

    return reading


def with_labels(base: Checkpoint[C], task: str, key: str, expected: int | None = None) -> Checkpoint[C]:
    """The checkpoint of a head whose last weight has a row for each label.

    `key` is a regular expression for the whole key of that weight; `expected`, if given, how many labels there must be.
    """
    return replace(
        base,
        read=reading_labels(base.read, key, expected),
        # How sentence-transformers makes scores of the logits of a cross-encoder.
        ignored_options=[*base.ignored_options, "sentence_transformers|sbert_ce_.*"],
        head=task,
        head_keys=[f"^{key}"],
    )
