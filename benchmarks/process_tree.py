"""The processor time and memory of a command with all processes that it starts, as /proc tells (Linux)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_EVERY = 0.1  # seconds between two looks; what a process does after the last one is not seen
_TICK = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Usage:
    """What a command took.

    Args:
        wall: seconds.
        processor: seconds, of all processes.
        memory: the largest sum of their proportional set sizes, in bytes.
        processes: the most at a time.
        output: what it printed.
    """

    wall: float
    processor: float
    memory: int
    processes: int
    output: str


def measure(command: Sequence[object]) -> Usage:
    """Run a command and watch it and its descendants.

    Raises:
        subprocess.CalledProcessError: if it fails.
    """
    start, ticks, memory, most, looks = time.monotonic(), dict[int, int](), 0, 0, 0
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as process:
        family = {process.pid}
        while process.poll() is None:
            running = _descendants(family)
            ticks.update({pid: time_of for pid in running if (time_of := _ticks(pid)) is not None})
            most, looks = max(most, len(running)), looks + 1
            if looks < 5 or looks % 5 == 0:  # reading this takes longer; a short command has few looks
                memory = max(memory, sum(map(_proportional, running)))
            time.sleep(_EVERY)
        assert process.stdout is not None
        output = process.stdout.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(map(str, command)))
    return Usage(time.monotonic() - start, sum(ticks.values()) / _TICK, memory, most, output)


def _descendants(family: set[int]) -> list[int]:
    """Processes that are there of a family, to which those are added that it has started."""
    parents: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))) is not None:
            parents[int(entry.name)] = int(fields[1])
    while children := {pid for pid, parent in parents.items() if parent in family and pid not in family}:
        family |= children  # orphans stay in it
    return [pid for pid in parents if pid in family]


def _fields(pid: int) -> list[str] | None:
    """What follows the name in /proc/PID/stat: state, parent, ...; None if the process has ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _ticks(pid: int) -> int | None:
    fields = _fields(pid)
    return None if fields is None else int(fields[11]) + int(fields[12])


def _proportional(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
