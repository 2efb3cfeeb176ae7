"""Measures the time and memory of a session. Also a program, so that the memory is that of one model alone."""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.words.progress import phase
from lucid.inspection.module_times import node_times
from lucid.runtime.session import Session

_WARM_UP, _MIN_RUNS = 3, 10
_STATUS = Path("/proc/self/status")


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
    before = peak_memory()
    session = make()
    arrays = inputs(session)
    times = repeat(lambda: session.run(arrays), seconds)
    after = peak_memory()
    return Measurement(times, after, after - before)


def peak_memory() -> int:
    """The peak memory of this process, in bytes."""
    if _STATUS.exists():  # Linux; getrusage would also count the parent's memory at the time of fork
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text(encoding="ascii"))
        if found:
            return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _typed(session: Session, arrays: Sequence[Array]) -> dict[str, Array]:
    """Arrays by input, in its element type: an .npz file cannot hold bfloat16 (lucid.files.npz)."""
    kinds = [(name, dtype) for name, (dtype, _) in session.inputs.items()]
    pairs = zip(kinds, arrays, strict=True)
    return {name: array if dtype is None else array.astype(dtype.numpy) for (name, dtype), array in pairs}


def main(arguments: Sequence[str]) -> None:
    """MODEL INPUTS.NPZ PROVIDER SECONDS [nodes]: print a measurement as JSON; with `nodes` also the seconds of each."""
    model, data, provider, seconds, *more = arguments
    with np.load(data, allow_pickle=False) as archive:
        arrays = list(archive.values())
    found = measure(
        lambda: Session(Path(model), provider),
        lambda session: _typed(session, arrays),
        float(seconds),
    )
    shown = asdict(found) | {f"p{percent}": found.percentile(percent) for percent in (50, 90, 99)}
    del shown["times"]
    if more:
        shown["nodes_seconds"] = node_times(Path(model), lambda session: _typed(session, arrays), provider)
    print(json.dumps(shown))


if __name__ == "__main__":
    main(sys.argv[1:])
