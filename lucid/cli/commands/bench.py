"""`lucid bench`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from lucid.cli import terminal
from lucid.cli.commands.inspect import inspected
from lucid.cli.errors import OK, CommandError
from lucid.cli.options.commands import Bench
from lucid.core.graph.types import Array, spec
from lucid.core.words.progress import phase
from lucid.export.exporter import to_onnx
from lucid.inspection.measure import measure, repeat
from lucid.inspection.shapes import size_of
from lucid.ops.linalg import matmul
from lucid.runtime import Session
from lucid.runtime.providers import full_name
from lucid.testing.random_inputs import random_array

_PERCENTILES = (50, 90, 99)
_PEAK_SIZE = 1024
_PEAK_SECONDS = 0.5


def run(options: Bench) -> int:
    """Measure and show; returns the exit code."""
    inspection = inspected(options)
    measured = measure(
        lambda: Session(options.model, options.providers or None, threads=options.threads),
        lambda session: _random_inputs(session, inspection.sizes),
        options.seconds,
    )
    active = tuple(map(full_name, options.providers or ["cpu"]))
    data: dict[str, Any] = {
        "file": str(options.model),
        "providers": list(active),
        "threads": options.threads or os.cpu_count(),
        "sizes": dict(inspection.sizes),
        "runs": len(measured.times),
        "latency_ms": {f"p{p}": measured.percentile(p) * 1e3 for p in _PERCENTILES}
        | {"min": min(measured.times) * 1e3},
        "runs_per_second": len(measured.times) / sum(measured.times),
        "peak_memory_bytes": measured.peak_memory,
        "model_memory_bytes": measured.model_memory,
        "flops": inspection.flops,
        "gflops_per_second": inspection.flops / measured.percentile(50) / 1e9,
        "uncounted_nodes": inspection.modules.cost.unknown,
    }
    if options.peak:
        best = _matmul_peak(active, options.threads)
        data["matmul_peak_gflops_per_second"] = best / 1e9
        data["share_of_peak"] = data["gflops_per_second"] * 1e9 / best
    if options.json:
        terminal.print_json(data)
    else:
        _print(data)
    return OK


def _random_inputs(session: Session, sizes: Mapping[str, int]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name, (dtype, shape) in session.inputs.items():
        if dtype is None:
            raise CommandError(f"input {name}: Lucid has no random numbers for its element type")
        known = [
            size if isinstance(size, int) else size_of(size or f"{name}.{axis}", sizes)
            for axis, size in enumerate(shape)
        ]
        if None in known:
            raise CommandError(f"input {name}: size {shape[known.index(None)]} is not known; give it with --size")
        arrays[name] = random_array(dtype, tuple(int(size) for size in known if size is not None))
    return arrays


@phase("measuring a matrix product")
def _matmul_peak(providers: tuple[str, ...], threads: int | None) -> float:
    """Operations per second of the same runtime in a square float32 product: an upper limit for models."""
    n = _PEAK_SIZE
    right = np.ones((n, n), np.float32)
    session = Session(to_onnx(lambda x: matmul(x, right), spec(n, n)), providers, threads=threads)
    left = {name: np.ones((n, n), np.float32) for name in session.inputs}
    return 2 * n**3 / min(repeat(lambda: session.run(left), _PEAK_SECONDS))


def _print(data: dict[str, Any]) -> None:
    latency, sizes = data["latency_ms"], ", ".join(f"{name}={value}" for name, value in data["sizes"].items())
    rows = [
        ("where", f"{', '.join(data['providers'])}, {data['threads']} threads"),
        ("sizes", sizes or "fixed"),
        ("latency", "   ".join(f"{name} {value:.3f} ms" for name, value in latency.items())),
        ("throughput", f"{data['runs_per_second']:.1f} runs/s ({data['runs']} runs)"),
        (
            "peak memory",
            f"{terminal.size(data['peak_memory_bytes'])}, {terminal.size(data['model_memory_bytes'])} for the model",
        ),
        ("arithmetic", f"{terminal.amount(data['flops'])}FLOP, {data['gflops_per_second']:.1f} GFLOP/s"),
    ]
    if "share_of_peak" in data:
        best = data["matmul_peak_gflops_per_second"]
        text = f"{100 * data['share_of_peak']:.0f} % of {best:.0f} GFLOP/s (matrix product)"
        rows.append(("of the peak", text))
    if data["uncounted_nodes"]:
        rows.append(("note", f"{data['uncounted_nodes']} nodes are not counted: their shapes are not known"))
    out = terminal.console()
    for name, text in rows:
        out.line(f"{name:<13}{text}")
