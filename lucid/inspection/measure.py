"""The time and memory of a session, and the time of each module. Also a program, which measures one model alone."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.process.memory import peak_memory, restart_peak
from lucid.core.words.progress import phase
from lucid.inspection.read import read
from lucid.inspection.tree import place_of
from lucid.runtime.session import Session
from lucid.runtime.subgraphs import nodes_inside

_WARM_UP, _MIN_RUNS = 3, 10


@dataclass(frozen=True)
class Measurement:
    """Seconds of single runs, and bytes of memory."""

    times: tuple[float, ...]
    peak_memory: int
    model_memory: int

    def percentile(self, percent: float) -> float:
        """The seconds that this percentage of the runs take at most."""
        return float(np.percentile(self.times, percent))


@phase("measuring")
def repeat(call: Callable[[], object], seconds: float) -> tuple[float, ...]:
    """Seconds of each call: as many calls as fit into `seconds`, at least ten, after three that do not count."""
    for _ in range(_WARM_UP):
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < _MIN_RUNS:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return tuple(times)


def measure(
    make: Callable[[], Session], inputs: Callable[[Session], Mapping[str, Array]], seconds: float
) -> Measurement:
    """Make a session and run it repeatedly; its memory is the growth of the process."""
    before = restart_peak()
    session = make()
    arrays = inputs(session)
    times = repeat(lambda: session.run(arrays), seconds)
    after = peak_memory()
    return Measurement(times, after, after - before)


def _typed(session: Session, arrays: Sequence[Array]) -> dict[str, Array]:
    """Arrays by input, in its element type: an .npz file cannot hold bfloat16 (lucid.files.npz)."""
    pairs = zip(session.inputs.items(), arrays, strict=True)
    return {name: array if dtype is None else array.astype(dtype.numpy) for (name, (dtype, _)), array in pairs}


def main(arguments: Sequence[str]) -> None:
    """MODEL INPUTS.NPZ PROVIDER SECONDS [nodes]: print a measurement as JSON; with `nodes` also the seconds of each."""
    model, data, provider, seconds, *more = arguments
    with np.load(data, allow_pickle=False) as archive:
        arrays = list(archive.values())
    inputs = partial(_typed, arrays=arrays)
    timing = measure(lambda: Session(Path(model), provider), inputs, float(seconds))
    shown = asdict(timing) | {f"p{percent}": timing.percentile(percent) for percent in (50, 90, 99)}
    del shown["times"]
    if more:
        shown["nodes_seconds"] = node_times(Path(model), inputs, provider)
    print(json.dumps(shown))


_PROFILE_WARM_UP, _RUNS = 2, 10
_MEASURED = "_kernel_time"  # ends the names of events that are a node's computation


def node_times(path: Path, inputs: Callable[[Session], Mapping[str, Array]], provider: str) -> dict[str, float]:
    """Seconds of each node that onnxruntime runs, by its name, in their order: the median of ten runs."""
    with TemporaryDirectory() as scratch:
        session = Session(path, provider, profile=Path(scratch) / "profile")
        arrays = inputs(session)
        for _ in range(_PROFILE_WARM_UP + _RUNS):
            session.run(arrays)
        events = json.loads(session.end_profile().read_bytes())
    measured: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_MEASURED):
            measured[event["name"].removesuffix(_MEASURED)].append(event["dur"] / 1e6)
    return {name: _of_one_run(durations) for name, durations in measured.items()}


def _of_one_run(durations: list[float]) -> float:
    """The median over the runs, without the first ones; a node in a loop may run any number of times in each."""
    runs = _PROFILE_WARM_UP + _RUNS
    if len(durations) % runs:
        return sum(durations) / runs
    return float(np.median(np.reshape(durations, (runs, -1)).sum(axis=1)[_PROFILE_WARM_UP:]))


def module_times(path: Path, times: Mapping[str, float]) -> tuple[dict[tuple[str, ...], float], float]:
    """Seconds of each module, those inside it included, by its path; and the seconds of all fused nodes.

    A node into which onnxruntime fuses several has a new name: it is counted for the module of the node that runs
    before it. A node inside a branch or loop is counted with the If, Loop or Scan.
    """
    model = read(path).model
    place = place_of(model, path)
    top = {node.name: node for node in model.graph.node}
    inner = {node.name for node in nodes_inside(model.graph.node)} - top.keys()
    by_module: dict[tuple[str, ...], float] = defaultdict(float)
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
            by_module[parts[:depth]] += seconds
    return dict(by_module), merged


if __name__ == "__main__":
    main(sys.argv[1:])
