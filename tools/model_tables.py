"""The table of docs/coverage.md of models: a row for each architecture and task."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import onnx

from lucid import nn
from lucid.export import to_onnx
from lucid.models.checkpoints.families import FAMILIES, OTHER_FAMILIES
from lucid.models.checkpoints.sentence_files import SENTENCES
from lucid.models.checkpoints.tasks import class_of
from lucid.models.parts.sentences import PooledEncoder
from tests.models.zoo import OTHERS, ZOO, Entry

Group = tuple[str, str, list[Entry]]


def groups() -> list[Group]:
    """Architecture, task, and the entries of the zoo, of which the first of each class is measured."""
    tasks = _tasks()
    by_task: dict[tuple[str, str], list[Entry]] = {}
    for entry in (*ZOO, *OTHERS):
        task = SENTENCES if issubclass(_class(entry), PooledEncoder) else tasks[entry.read]
        by_task.setdefault((entry.name.split(":")[0], task), []).append(entry)
    return [(architecture, task, entries) for (architecture, task), entries in by_task.items()]


def measured(entries: list[Entry]) -> list[Entry]:
    """Those of a group whose errors the page has: the first of each class."""
    return list({entry.read: entry for entry in reversed(entries)}.values())


def _tasks() -> dict[Callable[..., Any], str]:
    """The task of each class, by the table that `lucid.models.load` reads."""
    names: dict[Callable[..., Any], str] = {}
    for family in (FAMILIES | OTHER_FAMILIES).values():
        for task, place in family.tasks.items():
            names.setdefault(class_of(place), task)
    return names


def _class(entry: Entry) -> type[nn.Module]:
    assert isinstance(entry.read, type)
    return entry.read


_LAYER = re.compile(r"((?:.*?[./])?(?:layers?|blocks?|h|stages)[./])(\d+)(?:[./](?:blocks|layers)[./](\d+))?[./]")


def nodes_a_layer(model: onnx.ModelProto) -> str:
    """The nodes of the second layer of each list of layers, because what layers share is computed in the first.

    If there is one layer, those of that one; of stages of layers those of a layer of the first stage.
    """
    counts: dict[str, Counter[int]] = {}
    for node in model.graph.node:
        match = _LAYER.match(node.name)
        if match is not None and (match[2] == "0" if match[3] else not match[1].endswith("stages.")):
            counts.setdefault(match[1], Counter())[int(match[3] or match[2])] += 1
    return ", ".join(str(count[1] or count[0]) for count in counts.values())


def export_time(model: nn.Module) -> str:
    """To a model in memory, the fastest of five."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        to_onnx(model)
        times.append(time.perf_counter() - start)
    return f"{1e3 * min(times):.0f} ms"


def kept_times(page: str) -> Iterator[tuple[str, str]]:
    """The times of a page by the first cell of their row."""
    for line in page.splitlines():
        match = re.match(r"\| ([^|]+) \|.* (\d+ ms) \|$", line)
        if match is not None:
            yield match[1], match[2]
