"""Records of measurements that take hours: by row, each with its date and the releases of libraries it was made with.

A run of some rows renews these; the other rows stay. Pages are made from the records alone, on any machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


class Records:
    """The records of a JSON file: rows by name, each with one or several measurements by theirs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, dict[str, Any]]] = {}
        if path.exists():
            self.rows = json.loads(path.read_text(encoding="utf-8"))

    def renew(self, row: str, measurement: str, figures: Mapping[str, Any], packages: Sequence[str]) -> None:
        """Replace a row's record of a measurement, in the file as it is now: two runs may share it."""
        self.rows = Records(self.path).rows
        releases = {package: version(package).partition("+")[0] for package in packages}
        new = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "releases": releases, **_rounded(figures)}
        self.rows[row] = {**self.rows.get(row, {}), measurement: new}
        self.save()

    def save(self) -> None:
        """Write the file, one row a line, so that a renewed row is a changed line."""
        lines = [f"{json.dumps(name)}: {json.dumps(self.rows[name])}" for name in sorted(self.rows)]
        self.path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def of(self, measurement: str) -> dict[str, dict[str, Any]]:
        """The records of a measurement, by row."""
        return {name: row[measurement] for name, row in self.rows.items() if measurement in row}

    def chosen(self, measurement: str, every: Collection[str], names: Sequence[str], oldest: int) -> list[str]:
        """The rows with these names, or those whose record of a measurement is oldest; rows without one come first.

        Raises:
            ValueError: for a name that is not one of all rows.
        """
        if unknown := [name for name in names if name not in every]:
            raise ValueError(f"no rows {', '.join(unknown)}; expected some of {', '.join(sorted(every))}")
        kept = self.of(measurement)
        return list(names) or sorted(every, key=lambda name: (kept.get(name, {"date": ""})["date"], name))[:oldest]

    def days(self, measurement: str) -> str:
        """The first and the last day of a measurement's records, in words."""
        days = sorted({record["date"] for record in self.of(measurement).values()})
        return " to ".join(dict.fromkeys((days[0], days[-1])))

    def releases(self, measurement: str, package: str) -> str:
        """The releases of a package that records of a measurement were made with, in words."""
        return " and ".join(sorted({record["releases"][package] for record in self.of(measurement).values()}))


def described(error: BaseException) -> str:
    """An error's class and the first line of its message, without the folders of this machine."""
    line = (str(error).strip().splitlines() or [""])[0]
    return re.sub(r"/\S*/", "", f"{type(error).__name__}: {line}")[:300]


def _rounded(value: Any) -> Any:
    """Round numbers to three digits: more are noise."""
    if isinstance(value, float):
        return float(f"{value:.3g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return value
