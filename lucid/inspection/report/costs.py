"""What each module of a file costs: its nodes, weights and work, and its time where it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lucid.inspection.inspect import inspect_model
from lucid.inspection.module_times import module_times
from lucid.inspection.tree import ModuleCost


def cost_data(path: Path, sizes: Mapping[str, int], times: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The cost of each module of a file, parents first; with the seconds of its nodes, if they were measured."""
    found = inspect_model(path, sizes)
    seconds, merged = module_times(path, times) if times is not None else ({}, 0.0)
    return {
        "sizes": dict(found.sizes),
        "modules": list(_rows(found.modules, (), seconds)),
        "timed": times is not None,
        "merged": merged,
        "parameters": found.parameters,
        "bytes": sum(count for _, count in found.files),
    }


def _rows(module: ModuleCost, path: tuple[str, ...], seconds: Mapping[tuple[str, ...], float]) -> Iterator[Any]:
    yield {
        "module": ".".join(path),
        "nodes": module.nodes,
        "parameters": module.parameters,
        "bytes": module.weight_bytes,
        "flops": module.cost.flops,
        "uncounted": module.cost.unknown,
        "seconds": seconds.get(path, 0.0),
    }
    for name, child in module.children.items():
        yield from _rows(child, (*path, name), seconds)
