"""Timing that is disturbed as little as possible by a shared machine and by other thread pools.

Two thread pools that take turns call by call slow each other down: the threads of one still busy-wait when the other
starts. So each function runs in *blocks* of calls, with a pause and a few unmeasured calls before each. Blocks of the
function alternate with blocks of the base, and each such pair gives one ratio: anything that slows the machine for
longer than a block affects both. The median and the quartiles of these ratios are reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True)
class Effort:
    """How long to measure: the pairs of blocks, the minimum number of them if they exceed a limit in seconds; and for
    each block its seconds, the pause before it, and the seconds of unmeasured calls. Before the first, the seconds in
    which to wait until two cores are near each other (`benchmarks.cores`)."""

    rounds: int = 15
    least: int = 7
    limit: float = 6.0
    seconds: float = 0.06
    pause: float = 0.04
    warm_up: float = 0.02
    patience: float = 60.0


QUICK = Effort(rounds=5, least=3, limit=2.0, seconds=0.03, patience=4.0)
FULL = Effort()


@dataclass(frozen=True)
class Quartiles:
    """The quartiles and the median of some numbers."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, numbers: list[float]) -> Quartiles:
        if len(numbers) == 1:
            return cls(numbers[0], numbers[0], numbers[0])
        return cls(*statistics.quantiles(numbers, n=4, method="inclusive"))


@dataclass(frozen=True)
class Timing:
    """The seconds per call of one function, and its ratios to the base, block by block."""

    seconds: Quartiles
    ratio: Quartiles


def compare(
    base: Work, others: Mapping[str, Work], effort: Effort, ready: Work = lambda: None
) -> tuple[Quartiles, dict[str, Timing]]:
    """Time functions against a base: the seconds of the base, and the timing of each of the others.

    `ready` is called before each function is timed, which takes some seconds.
    """
    for work in (base, *others.values()):
        work()
    of_base: list[float] = []
    timings: dict[str, Timing] = {}
    for name, work in others.items():
        ready()
        pairs = _pairs(base, work, effort)
        of_base += [its_base for _, its_base in pairs]
        timings[name] = Timing(
            Quartiles.of([own for own, _ in pairs]), Quartiles.of([own / its_base for own, its_base in pairs])
        )
    return Quartiles.of(of_base or [block(base, effort) for _ in range(effort.rounds)]), timings


def _pairs(base: Work, work: Work, effort: Effort) -> list[tuple[float, float]]:
    """Blocks of a function, each paired with a block of its base."""
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + effort.limit
    while len(pairs) < effort.rounds and (len(pairs) < effort.least or time.perf_counter() < end):
        # The order alternates, so that neither always finds the caches as the other left them.
        if len(pairs) % 2:
            own, its_base = block(work, effort), block(base, effort)
        else:
            its_base, own = block(base, effort), block(work, effort)
        pairs.append((own, its_base))
    return pairs


def block(work: Work, effort: Effort) -> float:
    """The median time of a call in a block, in seconds."""
    time.sleep(effort.pause)
    warm = time.perf_counter() + effort.warm_up
    for _ in range(3):
        work()
        if time.perf_counter() > warm:
            break
    times: list[float] = []
    end = time.perf_counter() + effort.seconds
    while len(times) < 2 or (time.perf_counter() < end and len(times) < 500):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def repeat(work: Work, times: int) -> Quartiles:
    """Seconds of single calls, after one that is not measured."""
    work()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return Quartiles.of(seconds)
