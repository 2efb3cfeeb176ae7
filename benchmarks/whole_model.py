"""``python -m benchmarks.whole_model NAME FOLDER THREADS``: a model of the zoo, exported and timed in every way.

Files and inputs stay in the folder. A process of its own for each model gives its memory back, and the thread pools of
its runtimes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import lucid
from benchmarks import peers
from benchmarks.attention import TORCH
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array, runner
from benchmarks.harness import Effort, Work
from benchmarks.zoo import ZOO, Entry
from lucid.export import to_onnx
from lucid.files.npz import write_npz
from lucid.models import load
from lucid.models.checkpoints.pretrained import Pretrained

TORCH_EXPORT, OPENVINO, EAGER = "torch export", "OpenVINO, portable", "Lucid eager"
TARGETS = {LUCID: "cpu", "Lucid, any": "any", "Lucid, portable": "portable"}
OPSET = 23  # of torch's exports: the fewest nodes
EFFORT = Effort(rounds=5, least=3, limit=1.0, seconds=0.03, pause=0.02, warm_up=0.01)
FAR = 1e-4  # two computations in float32 differ by less, relative to the largest number


def measure(entry: Entry, folder: Path, bench: Bench) -> dict[str, Any]:
    """Times as a line, and by way: files, seconds of exports, nodes, and why an export failed."""
    assert peers.torch is not None and peers.transformers is not None
    twin = peers.transformers.random_model(entry.kind, entry.twin, entry.options)
    twin.save_pretrained(folder)
    model = load(folder)
    specs = model.input_specs()
    inputs = tuple(entry.inputs()[name] for name in specs)
    with (folder / "inputs.npz").open("wb") as stored:
        write_npz(stored, dict(zip(specs, inputs, strict=True)))
    files: dict[str, Path] = {}
    seconds: dict[str, float] = {}
    for way, target in TARGETS.items():
        files[way], start = folder / f"{target}.onnx", time.perf_counter()
        to_onnx(model, target=target, path=files[way])
        seconds[way] = time.perf_counter() - start
    theirs = peers.transformers.Outputs(twin, list(specs), model.output_names or ("logits",))
    fails: dict[str, str] = {}
    start = time.perf_counter()
    try:
        _torch_export(theirs, entry, model, folder / "torch.onnx")
    except peers.torch.ExportError as error:
        fails[TORCH_EXPORT] = _cause(error)
    else:
        files[TORCH_EXPORT], seconds[TORCH_EXPORT] = folder / "torch.onnx", time.perf_counter() - start
    ways: dict[str, Work] = {way: runner(file, inputs, bench.threads) for way, file in files.items()}
    if peers.openvino is not None:
        ways[OPENVINO] = peers.openvino.runner(files["Lucid, portable"], inputs, bench.threads)
    ways[EAGER] = _eager(model, list(specs), inputs)
    ways[TORCH] = peers.torch.call(theirs, *inputs)
    _check(entry, np.asarray(ways[LUCID]()), np.asarray(ways[TORCH]()[0]))  # type: ignore[index]
    return {
        "line": asdict(bench.line("models", entry.name, TORCH, ways)),
        "files": {way: str(file) for way, file in files.items()},
        "seconds": seconds,
        "nodes": {way: len(onnx.load(file).graph.node) for way, file in files.items()},
        "fails": fails,
    }


def _torch_export(theirs: Any, entry: Entry, model: Pretrained[Any], file: Path) -> None:
    """With the same axes of any size as Lucid's."""
    assert peers.torch is not None
    specs = model.input_specs()
    axes = [
        {axis: str(size) for axis, size in enumerate(spec.shape) if not isinstance(size, int)}
        for spec in specs.values()
    ]
    example = entry.inputs(batch=2)
    peers.torch.export(theirs, tuple(example[name] for name in specs), OPSET, axes, file)


def _cause(error: BaseException) -> str:
    """The first line of what an error came from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).splitlines()[0]


def _eager(model: Pretrained[Any], names: Sequence[str], inputs: Sequence[Array]) -> Work:
    tensors = {name: lucid.Tensor(array) for name, array in zip(names, inputs, strict=True)}
    return lambda: model(**tensors)


def _check(entry: Entry, outputs: Array, expected: Array) -> None:
    apart = np.abs(outputs - expected).max(-1) / np.abs(expected).max()
    # A mixture of experts may choose others where two are as good; then single tokens differ.
    assert np.median(apart) < FAR, f"{entry.name}: Lucid and torch differ by {np.median(apart):.0e}"


if __name__ == "__main__":
    assert peers.torch is not None
    name, where, count = sys.argv[1:]
    peers.torch.set_threads(int(count))
    chosen = next(entry for entry in ZOO if entry.name == name)
    print(json.dumps(measure(chosen, Path(where), Bench(EFFORT, int(count)))))
