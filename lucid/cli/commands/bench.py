"""`lucid bench`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lucid.cli import terminal
from lucid.cli.commands.inspect import inspected
from lucid.cli.errors import OK, usage
from lucid.cli.model_inputs import check_known, model_files
from lucid.cli.model_inputs import sizes as read_sizes
from lucid.cli.options.commands import Bench
from lucid.core.graph.types import Array, int64, spec
from lucid.core.process.memory import peak_memory, restart_peak
from lucid.core.words.progress import phase
from lucid.export.exporter import to_onnx
from lucid.generation import Generator
from lucid.generation.models import CACHE, CROSS_CACHE
from lucid.inspection.measure import measure, repeat
from lucid.inspection.read import read
from lucid.inspection.shapes import real_inputs, size_of
from lucid.ops.linalg import matmul
from lucid.runtime import Session
from lucid.runtime.providers import full_name
from lucid.testing.random_inputs import random_array

_PERCENTILES = (50, 90, 99)
_PEAK_SIZE = 1024
_PEAK_SECONDS = 0.5
_PROMPT, _NEW, _FEWEST = 64, 32, 3  # tokens of a prompt, new ones, and runs of a decoder


def run(options: Bench) -> int:
    """Measure the file, or each file of a folder, and show the figures; returns the exit code."""
    files = model_files(options.model)
    measured = []
    for file in files:
        one = replace(options, model=file)
        with phase("reading the file"):
            names = [value.name for value in real_inputs(read(file).model.graph)]
        steps = any(map(CACHE.fullmatch, names)) and not any(map(CROSS_CACHE.fullmatch, names))
        measured.append(_decoding(one) if steps else _runs(one))
        if not options.json:
            _print(measured[-1], str(file) if options.model.is_dir() else "")
    if options.json:
        terminal.print_json(
            {"folder": str(options.model), "files": measured} if options.model.is_dir() else measured[0]
        )
    return OK


def _decoding(options: Bench) -> dict[str, Any]:
    """Figures of a decoder with a cache: the time to the first token, tokens per second after it, and memory."""
    sizes, before = read_sizes(options.sizes), restart_peak()
    session = Session(options.model, options.providers or None, threads=options.threads)
    length = session.inputs["input_ids"][1][1]
    check_known(sizes, {str(length)})
    prompt = random_array(int64, (1, sizes.get(str(length), _PROMPT)))
    generator, starts, speeds = Generator(session), list[float](), list[float]()
    end = time.perf_counter() + options.seconds
    with phase("measuring"):
        generator.generate(prompt, max_new_tokens=2)  # does not count
        while time.perf_counter() < end or len(starts) < _FEWEST:
            begun, times = time.perf_counter(), list[float]()
            generator.generate(prompt, max_new_tokens=_NEW, on_token=lambda *_: times.append(time.perf_counter()))  # noqa: B023
            starts.append(times[0] - begun)
            speeds.append((len(times) - 1) / (times[-1] - times[0]))
    after = peak_memory()
    return {
        "file": str(options.model),
        "providers": list(session.providers),
        "threads": options.threads or os.cpu_count(),
        "prompt_tokens": prompt.shape[1],
        "new_tokens": _NEW,
        "runs": len(starts),
        "seconds_to_first_token": float(np.median(starts)),
        "tokens_per_second": float(np.median(speeds)),
        "peak_memory_bytes": after,
        "model_memory_bytes": after - before,
    }


def _runs(options: Bench) -> dict[str, Any]:
    """Figures of other models: the time of runs, and the share of the machine that they use."""
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
    return data


def _random_inputs(session: Session, sizes: Mapping[str, int]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name, (dtype, shape) in session.inputs.items():
        if dtype is None:
            raise usage(
                f"input {name}: takes texts or other values without numbers, and bench draws numbers alone; measure "
                "the file that is exported without --with-tokenizer, or run this one on your inputs (lucid run)"
            )
        known = [
            size if isinstance(size, int) else size_of(size or f"{name}.{axis}", sizes)
            for axis, size in enumerate(shape)
        ]
        if None in known:
            raise usage(f"input {name}: size {shape[known.index(None)]} is not known; give it with --size")
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


def _print(data: dict[str, Any], file: str) -> None:
    out = terminal.console()
    if file:
        out.line(file)
    for name, text in _of_decoding(data) if "new_tokens" in data else _of_runs(data):
        out.line(f"{name:<13}{text}")


def _of_decoding(data: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("where", f"{', '.join(data['providers'])}, {data['threads']} threads"),
        ("texts", f"{data['prompt_tokens']} tokens and {data['new_tokens']} new ones ({data['runs']} runs)"),
        ("first token", f"{1e3 * data['seconds_to_first_token']:.1f} ms"),
        ("then", f"{data['tokens_per_second']:.1f} tokens/s"),
        ("peak memory", _memory(data)),
    ]


def _memory(data: dict[str, Any]) -> str:
    return f"{terminal.size(data['peak_memory_bytes'])}, {terminal.size(data['model_memory_bytes'])} for the model"


def _of_runs(data: dict[str, Any]) -> list[tuple[str, str]]:
    latency, sizes = data["latency_ms"], ", ".join(f"{name}={value}" for name, value in data["sizes"].items())
    rows = [
        ("where", f"{', '.join(data['providers'])}, {data['threads']} threads"),
        ("sizes", sizes or "fixed"),
        ("latency", "   ".join(f"{name} {value:.3f} ms" for name, value in latency.items())),
        ("throughput", f"{data['runs_per_second']:.1f} runs/s ({data['runs']} runs)"),
        ("peak memory", _memory(data)),
        ("arithmetic", f"{terminal.amount(data['flops'])}FLOP, {data['gflops_per_second']:.1f} GFLOP/s"),
    ]
    if "share_of_peak" in data:
        best = data["matmul_peak_gflops_per_second"]
        text = f"{100 * data['share_of_peak']:.0f} % of {best:.0f} GFLOP/s (matrix product)"
        rows.append(("of the peak", text))
        if data["share_of_peak"] > 1:
            reasons = "the model computes in fewer bits, or the machine did other work while the peak was measured"
            rows.append(("note", f"above 100 %: {reasons}"))
    if data["uncounted_nodes"]:
        rows.append(("note", f"nodes without a known shape, not counted: {data['uncounted_nodes']}"))
    return rows
