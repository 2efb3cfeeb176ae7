"""``python -m benchmarks.loading RUNTIME FILE INPUTS THREADS``: seconds to load a model, and the memory that it takes.

Memory is the peak of this process while it loads the model and runs it once, in bytes over what it held before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import graphs
from benchmarks.harness import Work
from benchmarks.memory import Peak


def load(runtime: str, file: str, inputs: str, threads: str) -> dict[str, float]:
    """Seconds and bytes."""
    runner: Callable[[Path, tuple[graphs.Array, ...], int], Work] = graphs.runner
    if runtime == "openvino":
        from benchmarks import openvino_peer  # noqa: PLC0415  # takes memory that onnxruntime does not need

        runner = openvino_peer.runner
    arrays = tuple(np.load(inputs).values())
    with Peak() as peak:
        start = time.perf_counter()
        call = runner(Path(file), arrays, int(threads))
        seconds = time.perf_counter() - start
        call()
    return {"seconds": seconds, "bytes": peak.bytes}


if __name__ == "__main__":
    print(json.dumps(load(*sys.argv[1:])))
