"""Measurements that need a separate process: ``python -m benchmarks.probe NAME [ARGUMENT ...]`` prints one number.

Memory is the peak of the process during the work, minus what it held before, in bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from benchmarks import peers, processes
from benchmarks.attention import HEADS, WIDTH, export
from benchmarks.graphs import node, runner, unit_normal
from benchmarks.memory import Peak
from lucid import nn, ops
from lucid.generation import Generator
from lucid.models.gpt2 import GPT2
from lucid.models.llama import Llama, LlamaConfig
from lucid.runtime import Session

THREADS = 2


def run(name: str, *arguments: object) -> Any:
    """Run a probe in a new process."""
    return processes.run("benchmarks.probe", name, *arguments)


def attention(way: str, length: str) -> int:
    """Memory of causal attention, above its inputs."""
    shape = (1, HEADS, int(length), WIDTH)
    arrays = unit_normal(shape, shape, shape)
    if way == "torch":
        assert peers.torch is not None
        peers.torch.set_threads(THREADS)
        call = peers.torch.attention(*arrays, is_causal=True)
    elif way == "eager":
        tensors = [lucid.Tensor.from_array(array) for array in arrays]

        def call() -> object:
            return ops.attention(*tensors, is_causal=True)

    else:
        models = {
            "fixed": lambda: export(shape, True, "cpu"),
            "dynamic": lambda: export((1, HEADS, "L", WIDTH), True, "cpu"),
            "portable": lambda: export(shape, True, "portable"),
            "node": lambda: node(*arrays, is_causal=True),
        }
        call = runner(models[way](), arrays, THREADS)
    with Peak() as peak:
        call()
    return peak.bytes


def first_mha() -> float:
    """Seconds of the first export of a process, with onnx loaded and nothing cached."""
    module = nn.MultiHeadAttention(512, 8).eval()
    lucid.export.Target()
    start = time.perf_counter()
    lucid.export.to_onnx(module)
    return time.perf_counter() - start


def gpt2() -> dict[str, float]:
    """Export of GPT-2 small with random weights: seconds, bytes above the loaded model, bytes of the weights."""
    return _export(GPT2())


def llama(layers: str) -> dict[str, float]:
    """The same for a Llama in float16, with its weights in memory."""
    config = LlamaConfig(128256, 2048, 8192, 32, 8, 64, (None,) * int(layers), tied=True, dtype=lucid.float16)
    with nn.init.skip():
        model = Llama(config)
    for parameter in model.parameters():  # memory pages that were never written do not count
        nn.init.constant_(parameter, 0.01)
    return _export(model)


def _export(model: nn.Module) -> dict[str, float]:
    model.eval()
    weights = sum(parameter.numpy().nbytes for parameter in model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        lucid.export.to_onnx(nn.Linear(4, 4))  # loads onnx
        with Peak() as peak:
            start = time.perf_counter()
            lucid.export.to_onnx(model, path=Path(folder) / "model.onnx")
            seconds = time.perf_counter() - start
    return {"seconds": seconds, "bytes": peak.bytes, "weights": weights}


def generation(file: str, length: str, threads: str) -> dict[str, int]:
    """The memory in which a decoder's file has read a prompt and generated as many tokens, and that at the peak."""
    with Peak() as peak:
        session = Session(Path(file), threads=int(threads))
        Generator(session).generate(np.arange(int(length)), max_new_tokens=int(length))
    return {"memory": peak.at_the_end, "memory at the peak, while loading,": peak.bytes}


def imports(module: str) -> float:
    """Seconds to import a module, NumPy included."""
    code = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


PROBES: dict[str, Callable[..., object]] = {
    "attention": attention,
    "first_mha": first_mha,
    "generation": generation,
    "gpt2": gpt2,
    "llama": llama,
}

if __name__ == "__main__":
    np.random.default_rng(0)
    print(json.dumps(PROBES[sys.argv[1]](*sys.argv[2:])))
