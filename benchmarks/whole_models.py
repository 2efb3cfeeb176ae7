"""Every family of models: time, and what its export costs, beside torch, its exporter and OpenVINO."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import peers, processes
from benchmarks.bench import LUCID, Bench
from benchmarks.harness import Quartiles
from benchmarks.results import Cell, Line
from benchmarks.zoo import ZOO, Entry

TORCH_EXPORT, OPENVINO = "torch export", "OpenVINO, portable"


def models(bench: Bench) -> list[Line]:
    """All models, or those that are asked for; none where only the main sizes are measured, as each takes a minute."""
    if bench.quick or peers.torch is None or peers.transformers is None:
        return []
    return [line for entry in ZOO if not bench.rows or entry.name in bench.rows for line in model(entry, bench)]


def model(entry: Entry, bench: Bench) -> list[Line]:
    """A line of each of the three tables."""
    with tempfile.TemporaryDirectory() as folder:
        results = processes.run("benchmarks.whole_model", entry.name, folder, bench.threads)
        return lines(entry, results, _loads(results["files"], Path(folder) / "inputs.npz", bench.threads))


def _loads(files: Mapping[str, str], inputs: Path, threads: int) -> dict[str, dict[str, float]]:
    """Seconds and bytes, by way."""
    loads = {
        way: processes.run("benchmarks.loading", "onnxruntime", file, inputs, threads) for way, file in files.items()
    }
    if peers.openvino is not None:
        portable = files["Lucid, portable"]
        loads[OPENVINO] = processes.run("benchmarks.loading", "openvino", portable, inputs, threads)
    return loads


def lines(entry: Entry, found: Mapping[str, Any], loads: Mapping[str, Mapping[str, float]]) -> list[Line]:
    """What the processes measured of a model, as lines."""
    fails, files = found["fails"], found["files"]
    both = [way for way in (LUCID, TORCH_EXPORT) if way in files]
    exports = {
        **{f"{way}: s": found["seconds"][way] for way in both},
        **{f"{way}: MB": Path(files[way]).stat().st_size / 1e6 for way in both},
        **{f"{way}: nodes": found["nodes"][way] for way in files},
    }
    costs = {
        **{f"{way}: ms": 1e3 * load["seconds"] for way, load in loads.items()},
        **{f"{way}: MB": load["bytes"] / 1e6 for way, load in loads.items()},
    }
    return [
        replace(Line.from_json(found["line"]), fails=fails),
        Line("model_exports", entry.name, "", _cells(exports)),
        Line("model_loads", entry.name, "", _cells(costs)),
    ]


def _cells(numbers: Mapping[str, float]) -> dict[str, Cell]:
    return {name: Cell(Quartiles(x, x, x)) for name, x in numbers.items()}
