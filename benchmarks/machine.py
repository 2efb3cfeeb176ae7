"""The machine: its processor and versions, and the speed of its matrix products."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from benchmarks.graphs import runner
from lucid import ops

LIBRARIES = (
    "numpy",
    "onnx",
    "onnxruntime",
    "torch",
    "onnxscript",
    "jax2onnx",
    "transformers",
    "onnxruntime-genai",
    "llama-cpp-python",
    "openvino",
)


def describe(threads: int, before: dict[str, Any]) -> dict[str, Any]:
    """Processor, threads, versions, and the fastest float32 matrix product in GFLOP/s.

    `before`: an earlier result; a shared machine reaches its best only now and then.
    """
    versions = dict(before.get("versions", {}))
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    name, peak = _processor(), sgemm_peak(threads)
    if (before.get("processor"), before.get("threads")) == (name, threads):
        peak = max(peak, before["sgemm_gflops"])
    return {
        "processor": name,
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "threads": threads,
        "versions": versions,
        "sgemm_gflops": peak,
        "dates": before.get("dates", {}),
    }


def slug() -> str:
    """The processor as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", _processor().lower()).strip("-")


def processor() -> str:
    """The processor, as the system calls it, with the numbers that tell apart generations of one name on x86."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.exists() else ""
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: *(.*)$", text, re.MULTILINE))
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    return f"{fields['model name'].strip()} (family {fields.get('cpu family')}, model {fields.get('model')})"


def sgemm_peak(threads: int, seconds: float = 0.7) -> float:
    """The best of many square products in onnxruntime: an upper bound for the rate of a graph."""
    best = 0.0
    for n in (1024, 2048):
        array = np.ones((n, n), np.float32)
        product = runner(lucid.export.to_onnx(ops.matmul, *[lucid.spec(n, n)] * 2), (array, array), threads)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            product()
            best = max(best, 2 * n**3 / (time.perf_counter() - start) / 1e9)
    return best


def _processor() -> str:
    return f"{processor()}, {os.cpu_count()} cores"
