"""One run of the benchmarks: its limits, and how a piece of work becomes a line of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.cores import Cores
from benchmarks.graphs import Array
from benchmarks.harness import FULL, Effort, Quartiles, Work, compare
from benchmarks.results import Cell, Goal, Line

LUCID = "Lucid"


@dataclass(frozen=True)
class Bench:
    """How long to measure, with how many threads, whether to measure only the main sizes, which rows of a section whose
    rows take long; none: all of them; and the cores that measure.
    """

    effort: Effort = FULL
    threads: int = 2
    quick: bool = False
    rows: tuple[str, ...] = ()
    cores: Cores = field(default_factory=Cores)

    def line(
        self,
        section: str,
        work: str,
        base: str,
        ways: Mapping[str, Work],
        *,
        goal: float | None = None,
        goal_of: str = LUCID,
        operations: float = 0.0,
        expected: Array | None = None,
    ) -> Line:
        """Time several implementations of a task, one of them the base; `expected`: the first head's exact result."""

        def ready() -> None:
            if self.threads > 1 and not self.cores.wait_until_near(self.effort.patience):
                print(f"{section}, {work}: measured while the cores share no cache")

        others = {name: run for name, run in ways.items() if name != base}
        seconds, timings = compare(ways[base], others, self.effort, ready)
        errors = {name: None if expected is None else error(run(), expected) for name, run in ways.items()}
        cells = {base: Cell(_scaled(seconds), None, errors[base])}
        for name, timing in timings.items():
            cells[name] = Cell(_scaled(timing.seconds), timing.ratio, errors[name])
        return Line(section, work, "ms", cells, base, None if goal is None else Goal(goal_of, goal), operations)


def error(result: object, expected: Array) -> float:
    """The largest difference between a result's first head and the exact one."""
    got = np.asarray(result)[:, :1]
    return float(np.abs(got - expected).max())


def _scaled(seconds: Quartiles) -> Quartiles:
    return Quartiles(seconds.low * 1e3, seconds.median * 1e3, seconds.high * 1e3)
