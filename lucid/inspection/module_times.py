"""Time by module: what onnxruntime measures for each node, added up by the modules that the nodes belong to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lucid.core.graph.types import Array
from lucid.inspection.read import all_nodes, read
from lucid.inspection.tree import place_of
from lucid.runtime.session import Session

_WARM_UP, _RUNS = 2, 10
_MEASURED = "_kernel_time"  # ends the names of events that are a node's computation


def node_times(path: Path, inputs: Callable[[Session], Mapping[str, Array]], provider: str) -> dict[str, float]:
    """Seconds of each node that onnxruntime runs, by its name, in their order: the median of ten runs."""
    with TemporaryDirectory() as scratch:
        session = Session(path, provider, profile=Path(scratch) / "profile")
        arrays = inputs(session)
        for _ in range(_WARM_UP + _RUNS):
            session.run(arrays)
        events = json.loads(session.end_profile().read_bytes())
    measured: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_MEASURED):
            measured[event["name"].removesuffix(_MEASURED)].append(event["dur"] / 1e6)
    return {name: _of_one_run(durations) for name, durations in measured.items()}


def _of_one_run(durations: list[float]) -> float:
    """The median over the runs, without the first ones; a node in a loop may run any number of times in each."""
    runs = _WARM_UP + _RUNS
    if len(durations) % runs:
        return sum(durations) / runs
    return float(np.median(np.reshape(durations, (runs, -1)).sum(axis=1)[_WARM_UP:]))


def module_times(path: Path, times: Mapping[str, float]) -> tuple[dict[tuple[str, ...], float], float]:
    """Seconds of each module, by its path, with those inside it; and how many of all are of merged nodes.

    A node that onnxruntime makes of several has a name of its own: it is counted with the node that runs before it. One
    inside a branch or loop is counted with that.
    """
    model = read(path).model
    place = place_of(model, path)
    top = {node.name: node for node in model.graph.node}
    inner = {node.name for node in all_nodes(model.graph)} - top.keys()
    found: dict[tuple[str, ...], float] = defaultdict(float)
    merged = 0.0
    parts: tuple[str, ...] = ()
    for name, seconds in times.items():
        if name in inner:
            continue
        if name in top:
            parts = place(top[name])
        else:
            merged += seconds
        for depth in range(len(parts) + 1):
            found[parts[:depth]] += seconds
    return dict(found), merged
