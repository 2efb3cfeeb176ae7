"""Nested lists, tuples and dicts, as functions take and return them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def fill(structure: Any, values: Sequence[Any]) -> Any:
    """The structure with each number replaced by the value of that number."""
    if isinstance(structure, int):
        return values[structure]
    if isinstance(structure, (list, tuple)):
        return like(structure, [fill(item, values) for item in structure])
    if isinstance(structure, dict):
        return {key: fill(item, values) for key, item in structure.items()}
    return structure


def like(value: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    """A list, tuple or named tuple of the type of `value`, with other items."""
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
