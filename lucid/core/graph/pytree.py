"""Nested lists, tuples and dicts of values, as functions take and return them: taken apart and filled again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def _is_item(value: Any) -> bool:
    return value is not None and not isinstance(value, (list, tuple, dict))


def flatten_tree(value: Any, is_leaf: Callable[[Any], bool] = _is_item, path: str = "") -> tuple[Any, dict[str, Any]]:
    """The structure of `value` with each leaf replaced by its number, and the leaves by their paths, such as ``x.0``.

    Leaves are all but lists, tuples, dicts and None, unless `is_leaf` says otherwise; the rest stays in the structure.
    """
    leaves: dict[str, Any] = {}

    def walk(item: Any, path: str) -> Any:
        if is_leaf(item):
            leaves[path] = item
            return len(leaves) - 1
        if isinstance(item, (list, tuple)):
            names = getattr(item, "_fields", range(len(item)))
            return like(item, [walk(child, f"{path}.{name}") for name, child in zip(names, item, strict=True)])
        if isinstance(item, dict):
            return {key: walk(child, f"{path}.{key}") for key, child in item.items()}
        return item

    return walk(value, path), leaves
