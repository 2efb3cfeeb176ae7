"""``python -m benchmarks.loading RUNTIME FILE INPUTS THREADS``: seconds to load a model, and the memory that it takes.

Memory is the peak of this process while it loads the model and runs it once, in bytes over what it held before.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import graphs
from benchmarks.memory import Peak


def load(runtime: str, file: str, inputs: str, threads: str) -> dict[str, float]:
    """Seconds and bytes."""
    if runtime == "openvino":
        from benchmarks.openvino_peer import runner  # noqa: PLC0415  # takes memory that onnxruntime does not need
    else:
        runner = graphs.runner
    arrays = tuple(np.load(inputs).values())
    with Peak() as peak:
        start = time.perf_counter()
        call = runner(Path(file), arrays, int(threads))
        seconds = time.perf_counter() - start
        call()
    return {"seconds": seconds, "bytes": peak.bytes}


if __name__ == "__main__":
    print(json.dumps(load(*sys.argv[1:])))
