"""Files of rows, as jobs and trainings read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
