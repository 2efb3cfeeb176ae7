"""OpenVINO on the processor. Imported only if it is installed."""

from __future__ import annotations

from pathlib import Path

import openvino

from benchmarks.graphs import Array
from benchmarks.harness import Work


def runner(file: Path, inputs: tuple[Array, ...], threads: int) -> Work:
    """A call of a compiled model in float32."""
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(file, "CPU", options).create_infer_request()
    by_number = dict(enumerate(inputs))
    return lambda: request.infer(by_number, share_inputs=True)
