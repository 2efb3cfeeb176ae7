"""The time that each of several calls takes, measured in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

Measure: TypeAlias = Callable[[Mapping[str, Callable[[], object]], float], Mapping[str, float]]
"""From calls by name and the seconds to spend on them all to the seconds that each takes."""

_WARM_UP, _FEWEST = 2, 5  # runs that do not count, and the fewest that do
_SLOW = 2.0  # times the fastest: what is as slow as this is not run again when the time is over


def in_turns(
    calls: Mapping[str, Callable[[], object]], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The seconds of the fastest run of each call. They take turns, so that what else the machine does meets all alike.

    The fastest run tells most: whatever disturbs a run makes it longer.

    Args:
        calls: the calls by name.
        seconds: how long to measure them all. Each is run at least five times, unless one run shows that it takes twice
            as long as another and the time is over.
        clock: the time in seconds.
    """
    for call in calls.values():
        for _ in range(_WARM_UP):
            call()
    found = dict.fromkeys(calls, float("inf"))
    end, rounds = clock() + seconds, 0
    while rounds < _FEWEST or clock() < end:
        if rounds and clock() >= end:
            limit = _SLOW * min(found.values())
            calls = {name: call for name, call in calls.items() if found[name] <= limit}
        for name, call in calls.items():
            start = clock()
            call()
            found[name] = min(found[name], clock() - start)
        rounds += 1
    return found
