"""The measurements: rows of numbers by section, kept in a JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.harness import Quartiles


@dataclass(frozen=True)
class Cell:
    """One implementation of a piece of work: its cost in the line's unit and, if there is a base, the ratio to that."""

    value: Quartiles
    ratio: Quartiles | None = None
    error: float | None = None  # the largest difference from the result in float64


@dataclass(frozen=True)
class Goal:
    """The goal of one implementation: at most this ratio, or this value if the line has no base."""

    way: str
    limit: float


@dataclass(frozen=True)
class Line:
    """A piece of work and its implementations."""

    section: str
    work: str
    unit: str
    cells: dict[str, Cell]
    base: str | None = None
    goal: Goal | None = None
    operations: float = 0.0  # floating-point operations of the work, if their rate is shown
    fails: dict[str, str] = field(default_factory=dict)  # why an implementation has no cell

    @property
    def reached(self) -> float | None:
        """The result of the implementation that has the goal."""
        if self.goal is None or self.goal.way not in self.cells:
            return None
        cell = self.cells[self.goal.way]
        return (cell.value if cell.ratio is None else cell.ratio).median

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        cells = {
            way: Cell(
                Quartiles(**cell["value"]),
                None if cell["ratio"] is None else Quartiles(**cell["ratio"]),
                cell["error"],
            )
            for way, cell in data["cells"].items()
        }
        goal = None if data["goal"] is None else Goal(**data["goal"])
        return cls(**{**data, "cells": cells, "goal": goal})


@dataclass
class Results:
    """All lines, and the machine that they were measured on."""

    machine: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def replace(self, section: str, lines: list[Line]) -> None:
        """Replace a section's lines."""
        self.lines = [line for line in self.lines if line.section != section] + lines

    def renew(self, section: str, lines: list[Line]) -> None:
        """Replace those of a section's lines that were measured again, where they are; others stay."""
        new = {line.work: line for line in lines}
        kept = [new.pop(line.work, line) for line in self.of(section)]
        self.replace(section, kept + list(new.values()))

    def of(self, section: str) -> list[Line]:
        """A section's lines."""
        return [line for line in self.lines if line.section == section]

    def save(self, path: Path) -> None:
        """Write the file, indented so that it can be read."""
        data = {"machine": self.machine, "lines": [asdict(line) for line in self.lines]}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_rounded(data), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file; without a file the results are empty."""
        if not path.exists():
            return cls()
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(data["machine"], [Line.from_json(line) for line in data["lines"]])


def _rounded(data: Any) -> Any:
    """Round numbers to four digits: more are noise."""
    if isinstance(data, float):
        return float(f"{data:.4g}")
    if isinstance(data, dict):
        return {key: _rounded(value) for key, value in data.items()}
    return [_rounded(value) for value in data] if isinstance(data, list) else data
