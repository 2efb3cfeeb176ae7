"""Numbers that JSON lacks, as texts: "NaN", "Infinity" and "-Infinity", which `float()` reads."""

from __future__ import annotations

from typing import Any

ABSENT = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}


def strict(data: Any) -> Any:
    """Plain data with these texts in place of the numbers."""
    if isinstance(data, dict):
        return {key: strict(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [strict(value) for value in data]
    if isinstance(data, float) and not abs(data) < float("inf"):
        return "NaN" if data != data else "Infinity" if data > 0 else "-Infinity"
    return data
