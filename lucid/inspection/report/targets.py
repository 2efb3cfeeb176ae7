"""A model exported for several targets: the errors, time and memory of each file, and the cost of its modules."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array
from lucid.core.process.threads import blas_threads_for
from lucid.core.targets.runtimes import RUNTIMES
from lucid.core.words.progress import phase
from lucid.export import Explanation, ExportError
from lucid.export.explain import inside, title
from lucid.export.exporter import lower
from lucid.export.options import ExportOptions
from lucid.files.npz import write_npz
from lucid.inspection.inspect import inspect_model
from lucid.inspection.measure import module_times
from lucid.inspection.tree import ModuleCost
from lucid.testing import compare_file
from lucid.testing.runs import rounded_values
from lucid.tracing.parts import TracedPart

_TIMEOUT = 600  # seconds for one target, besides the runs that are measured


def compare_targets(
    graph: Graph, arrays: Sequence[Array], targets: Sequence[str], seconds: float
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Export for each target, and run each file in a separate process, so that its memory can be measured.

    Returns:
        The targets in the page's format; and the cost by module in the first file that runs, if there is one.
    """
    rows: list[dict[str, Any]] = []
    cost: dict[str, Any] | None = None
    if not targets:
        return rows, cost
    with TemporaryDirectory() as scratch:
        data = Path(scratch) / "inputs.npz"
        with data.open("wb") as archive:
            write_npz(archive, {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)})
        with blas_threads_for(sum(array.size for array in arrays)):
            expected = graph.run(arrays)
        case = _Case(graph, arrays, expected, data, seconds)
        for target in targets:
            with phase(f"measuring target {target}"):
                entry, measured_cost = case.measured(target, Path(scratch) / f"{target}.onnx", with_cost=cost is None)
                rows.append(entry)
                cost = cost or measured_cost
    return rows, cost


@dataclass(frozen=True)
class _Case:
    """The inputs and results that all targets are measured and compared with."""

    graph: Graph
    arrays: Sequence[Array]
    expected: Sequence[Array]
    data: Path
    seconds: float

    def measured(self, target: str, path: Path, *, with_cost: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """One target, and the cost of its modules if it is asked for and the file runs; its files are removed again."""
        about = {"target": target, "about": RUNTIMES[target].about}
        try:
            lowered = lower(TracedPart(self.graph), ExportOptions(target))
            model = lowered.write(path, "auto")
        except ExportError as error:
            return {**about, "problem": str(error)}, None
        files = [entry for entry in path.parent.iterdir() if entry.name.startswith(path.name)]
        entry = {
            **about,
            "opset": model.opset_import[0].version,
            "nodes": len(model.graph.node),
            "bytes": sum(file.stat().st_size for file in files),
            "forms": forms_data(lowered.explain()),
            "problem": "",
        }
        provider = RUNTIMES[target].provider
        entry |= _measure(path, self.data, provider, self.seconds, nodes=with_cost)
        times = entry.pop("nodes_seconds", None)
        cost = None
        if not entry["problem"]:
            entry |= self._parity(path, provider)
            if times is not None:
                cost = {"target": target, **cost_data(path, self.graph.sizes_in(self.arrays), times)}
        for file in files:
            file.unlink()
        return entry, cost

    def _parity(self, path: Path, provider: str) -> dict[str, Any]:
        """The largest difference from NumPy, the largest number of the outputs, and whether the difference is allowed.

        The last is None for a model whose products round their inputs to 8 bits: only `assert_parity` can tell.
        """
        compared = compare_file(self.graph, self.arrays, path, provider, self.expected)
        agrees = None if rounded_values(self.graph) else all(c.passed for c in compared)
        largest = [float(np.abs(each.astype(np.float64)).max(initial=0.0)) for each in self.expected]
        return {"max_abs": _worst([c.max_abs for c in compared]), "of": _worst(largest), "agrees": agrees}


def _worst(numbers: Sequence[float]) -> float | None:
    """The largest, or None if one is not finite."""
    return max(numbers) if np.isfinite(numbers).all() else None


def _measure(path: Path, data: Path, provider: str, seconds: float, *, nodes: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "lucid.inspection.measure", str(path), str(data), provider, str(seconds)]
    limit = seconds + _TIMEOUT
    try:
        done = subprocess.run([*command, *["nodes"] * nodes], capture_output=True, encoding="utf-8", timeout=limit)
    except subprocess.TimeoutExpired:
        return {"problem": f"its runs took more than {limit:g} seconds, and were ended"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"problem": lines[-1] if lines else f"ended with {done.returncode}"}
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def forms_data(taken: Explanation) -> list[dict[str, Any]]:
    """The form taken for each attention node, the reasons against the others, and their measured times."""
    return [
        {
            "node": title(d),
            "form": d.taken,
            "nodes": d.nodes,
            "note": "; ".join([d.note] * bool(d.note) + [f"inside: {line.strip()}" for line in inside(d)]),
            "refused": [list(pair) for pair in d.refused],
        }
        for d in taken.attention
    ]


def cost_data(path: Path, sizes: Mapping[str, int], times: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The cost of each module of a file, parents first; with the seconds of its nodes, if they were measured."""
    inspection = inspect_model(path, sizes)
    seconds, merged = module_times(path, times) if times is not None else ({}, 0.0)
    return {
        "sizes": dict(inspection.sizes),
        "modules": list(_rows(inspection.modules, (), seconds)),
        "timed": times is not None,
        "merged": merged,
        "parameters": inspection.parameters,
        "bytes": sum(count for _, count in inspection.files),
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
