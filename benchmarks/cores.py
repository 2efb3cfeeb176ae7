"""How far two cores are from each other, and waiting until they are near.

The system under a virtual machine moves its cores. On one with several shared caches, two cores lie for seconds or
minutes on parts that share none, and what one wrote takes several times as long to reach the other. Small graphs on two
threads then run as slowly as on one, for as long as that lasts: it says nothing about the graph.

``python -m benchmarks.cores`` prints the nanoseconds that a byte takes to another core and back, in Python.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable

from benchmarks import processes
from lucid.core.process.threads import usable_cores

FAR = 2.0  # times the shortest way seen on the machine
_MARKS, _TURNS = (1, 2) * 1000, 5  # each byte differs from the one before it
_PAUSE = 2.0  # seconds


class Cores:
    """The cores of this machine.

    Args:
        nearest: the shortest way seen earlier, in nanoseconds; None if it was not measured.
        measured: measures the way.
    """

    def __init__(self, nearest: float | None = None, measured: Callable[[], float] | None = None) -> None:
        self.nearest = nearest
        self._measured = measured or (lambda: float(processes.run("benchmarks.cores")))

    def wait_until_near(self, patience: float) -> bool:
        """Whether they are near, at the latest after so many seconds; with no patience they are not asked."""
        end = time.monotonic() + patience
        while patience:
            way = self._measured()
            self.nearest = min(way, self.nearest or way)
            if way <= FAR * self.nearest:
                break
            if time.monotonic() > end:
                return False
            time.sleep(min(_PAUSE, patience / 10))
        return True


def round_trip() -> float:
    """Nanoseconds from one process to another and back: the least of some turns, as other work makes them longer.

    0 where there is no other core, or no way to begin a process there.
    """
    if usable_cores() < 2 or not hasattr(os, "fork"):
        return 0.0
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        there, back = 0, mmap.PAGESIZE // 2
        child = os.fork()
        if not child:
            for mark in _MARKS * _TURNS:
                while memory[there] != mark:
                    pass
                memory[back] = mark
            os._exit(0)
        turns = []
        for _ in range(_TURNS):
            start = time.perf_counter()
            for mark in _MARKS:
                memory[there] = mark
                while memory[back] != mark:
                    pass
            turns.append((time.perf_counter() - start) / len(_MARKS))
        os.waitpid(child, 0)
    return min(turns) * 1e9


if __name__ == "__main__":
    print(round_trip())
