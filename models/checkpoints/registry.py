"""Which model reads a type of checkpoints: one of Lucid's, one that `register` added, or one of another distribution.

::

    [project.entry-points."lucid.models"]        # in the pyproject.toml of a distribution
    megatron-bert = "megatron_bert:FAMILY"       # a model_type of config.json, and the Family that reads it

An entry point is imported when a checkpoint of its type is read, so one that fails stops no other type. It never
replaces a type of Lucid's: what is installed does not change what `bert` computes, and `lucid doctor` says so.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from lucid.models.checkpoints.config_file import ConfigError
from lucid.models.checkpoints.declarations import GGUF, Family, ModelType
from lucid.models.checkpoints.families import FAMILIES, OTHER_FAMILIES

GROUP = "lucid.models"
"""The group of entry points."""

_PLACE = re.compile(r"[\w.]+:\w+")


def _by_type(family: Family) -> dict[str, Family]:
    """The family by its types, with the tasks of each."""
    return {
        name: family if kind.only is None else dataclasses.replace(family, tasks={kind.only: family.tasks[kind.only]})
        for name, kind in family.types.items()
    }


_OWN = {name: one for family in (FAMILIES | OTHER_FAMILIES).values() for name, one in _by_type(family).items()}
_KNOWN = dict(_OWN)


def register(family: Family, *, replace: bool = False) -> None:
    """Let `lucid.models.load`, and what else reads checkpoints, read those of a type with a model of one's own.

    This holds for this process; commands find a type by an entry point of the group `lucid.models`, which
    the page "Model types" shows.

    Args:
        family: its types by the model_type of config.json, and its classes by task, each as ``"module:Class"``.
        replace: whether a type that has a model already gets this one.

    Raises:
        TypeError: for another value than a `Family` with classes and types of that form.
        ValueError: for a type that has a model already; the message names its class.
    """
    if not isinstance(family, Family):
        raise TypeError(f"register: got a {type(family).__name__}, expected a lucid.models.checkpoints.Family")
    places = {task: place for task, place in family.tasks.items() if not _PLACE.fullmatch(str(place))}
    if places or not family.tasks or not family.types:
        raise TypeError(
            f'register: tasks {dict(family.tasks)!r}, expected classes by task, as {{"fill-mask": "module:Class"}}, '
            "and at least one type"
        )
    for kind, own in _by_type(family).items():
        earlier = _KNOWN.get(kind)
        if earlier not in (None, own) and not replace:
            raise ValueError(
                f"register: checkpoints of model_type {kind!r} are read by {earlier.model} already; "
                "give replace=True to read them by this model in its place"
            )
    _KNOWN.update(_by_type(family))


def find_family(kind: str) -> Family | None:
    """The model that reads checkpoints of a type; None if there is none.

    Raises:
        ConfigError: for an entry point that names no `Family`, cannot be imported, or is one of several; the message
            names the distribution.
    """
    return _KNOWN.get(kind) or _installed(kind)


def family_of(kind: str) -> Family:
    """The model that reads checkpoints of a known type."""
    family = find_family(kind)
    if family is None:
        raise KeyError(kind)
    return family


def type_of(kind: str) -> ModelType:
    """What is known of the checkpoints of a known type."""
    return family_of(kind).types[kind]


def known_types() -> list[str]:
    """All types that are read; nothing is imported for it."""
    return [*_KNOWN, *sorted({point.name for point in _entry_points()} - _KNOWN.keys())]


def gguf_types(architecture: str) -> list[tuple[str, GGUF]]:
    """The types of GGUF files of a general.architecture, and how each is stored; types of distributions come last."""
    stored = ((name, type_of(name).gguf) for name in known_types())
    return [
        (name, each)
        for name, gguf in stored
        if gguf is not None and gguf.architecture == architecture
        for each in (gguf, *gguf.variants)
    ]


def installed_types() -> Iterator[tuple[str, str, str]]:
    """The types of distributions, each with the class that reads it and its distribution, and what is wrong with it.

    Every entry point is imported for it.

    Raises:
        Exception: what an import raises that is no error of importing; a note names the distribution.
    """
    for point in sorted(_entry_points(), key=lambda point: str(point.name)):
        where = f"{point.value} of {_distribution(point)}"
        if point.name in _OWN:
            yield point.name, where, f"is ignored, as Lucid reads {point.name} itself; give it another name"
            continue
        try:
            family = family_of(point.name)
        except ConfigError as error:
            yield point.name, where, str(error)
        else:
            yield point.name, f"{family.model}, {where}", ""


def _installed(kind: str) -> Family | None:
    """The family of an entry point, which is known from then on."""
    points = _entry_points(name=kind)
    if not points:
        return None
    if len(points) > 1:
        names = " and ".join(sorted(map(_distribution, points)))
        raise ConfigError(f"model_type {kind}: the distributions {names} both read it; uninstall one of them")
    (point,) = points
    where = f"the entry point {point.value!r} of the distribution {_distribution(point)} for model_type {kind}"
    try:
        family = point.load()
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigError(f"{where} does not import: {error}; mend the distribution or uninstall it") from error
    except Exception as error:
        error.add_note(f"in {where}")
        raise
    if not isinstance(family, Family) or kind not in family.types:
        raise ConfigError(
            f"{where} is a {type(family).__name__}, expected a lucid.models.checkpoints.Family with this type"
        )
    _KNOWN[kind] = _by_type(family)[kind]
    return _KNOWN[kind]


def _entry_points(**which: str) -> tuple[Any, ...]:
    """The entry points of the group; Lucid's own types need not wait for the library that finds them."""
    return tuple(import_module("importlib.metadata").entry_points(group=GROUP, **which))


def _distribution(point: Any) -> str:
    return str(point.dist.name) if point.dist else "?"
