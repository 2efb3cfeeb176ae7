"""A model exported for several targets, and the time and memory of each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lucid.export import Explanation, ExportError, Target
from lucid.export.explain import title
from lucid.export.exporter import lower
from lucid.graph import Graph
from lucid.known_runtimes import RUNTIMES
from lucid.npz import write_npz
from lucid.parts import TracedPart
from lucid.phases import phase
from lucid.types import Array

_TIMEOUT = 600  # seconds for one target


def compare_targets(
    graph: Graph, arrays: Sequence[Array], targets: Sequence[str], seconds: float
) -> list[dict[str, Any]]:
    """Export for each target, and run each file in a separate process, so that its memory can be measured."""
    found: list[dict[str, Any]] = []
    with TemporaryDirectory() as scratch:
        data = Path(scratch) / "inputs.npz"
        with data.open("wb") as archive:
            write_npz(archive, {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)})
        for target in targets:
            with phase(f"measuring target {target}"):
                found.append(_compared(graph, target, Path(scratch) / f"{target}.onnx", data, seconds))
    return found


def _compared(graph: Graph, target: str, path: Path, data: Path, seconds: float) -> dict[str, Any]:
    """One target; its files are removed again."""
    try:
        lowered = lower(TracedPart.whole(graph), Target.of(target, None, None))
        model = lowered.write(path, "auto")
    except ExportError as error:
        return {"target": target, "problem": str(error)}
    files = [entry for entry in path.parent.iterdir() if entry.name.startswith(path.name)]
    entry = {
        "target": target,
        "opset": model.opset_import[0].version,
        "nodes": len(model.graph.node),
        "bytes": sum(file.stat().st_size for file in files),
        "forms": forms_data(lowered.explain()),
        "problem": "",
    }
    measured = _measure(path, data, RUNTIMES[target].provider, seconds)
    for file in files:
        file.unlink()
    return {**entry, **measured}


def _measure(path: Path, data: Path, provider: str, seconds: float) -> Mapping[str, Any]:
    command = [sys.executable, "-m", "lucid.inspection.measure", str(path), str(data), provider, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"problem": lines[-1] if lines else f"ended with {done.returncode}"}
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def forms_data(taken: Explanation) -> list[dict[str, Any]]:
    """The form taken for each attention node, and why the others were refused."""
    return [
        {
            "node": title(d),
            "form": d.taken,
            "nodes": d.nodes,
            "note": d.note,
            "refused": [list(pair) for pair in d.refused],
        }
        for d in taken.attention
    ]
