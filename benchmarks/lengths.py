"""One model for all lengths: its nodes and loading time beside target "any", its speed beside a model of one length."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx

import lucid
from benchmarks import processes
from benchmarks.attention import HEADS, WIDTH, export
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array, runner, unit_normal
from benchmarks.harness import Quartiles
from benchmarks.results import Cell, Goal, Line
from lucid import nn
from lucid.files.npz import write_npz
from lucid.models.gpt2 import GPT2, GPT2Config
from lucid.models.llama import Llama, LlamaConfig

ANY, FIXED = "Lucid, any", "Lucid, one length"


def llama(layers: int) -> nn.Module:
    """Narrow, so that loading is reading and optimising its nodes and not copying its weights."""
    return Llama(LlamaConfig(1000, 256, 512, num_heads=4, num_kv_heads=2, head_dim=64, windows=(None,) * layers))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "Llama of 8 layers": lambda: llama(8),
    "Llama of 32 layers": lambda: llama(32),
    "GPT-2 small": lambda: GPT2(GPT2Config()),
}
ROUNDS = 11  # of loading
MODEL_LENGTHS = (64, 256, 1024)
_SHORT = 8  # the length where a model runs once
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)


def lengths(bench: Bench) -> list[Line]:
    """Whole models by nodes and loading time, attention by length."""
    lines: list[Line] = []
    for name, make in list(MODELS.items())[: 1 if bench.quick else None]:
        lines += _model(bench, name, make())
    shape = (1, HEADS, "L", WIDTH)
    of_any = export(shape, True, "cpu")
    for length in (512,) if bench.quick else LENGTHS:
        arrays = unit_normal(*[(1, HEADS, length, WIDTH)] * 3, seed=length)
        ways = {
            FIXED: runner(export((1, HEADS, length, WIDTH), True, "cpu"), arrays, bench.threads),
            LUCID: runner(of_any, arrays, bench.threads),
        }
        lines.append(bench.line("lengths", f"attention, L = {length}", FIXED, ways))
    return lines


def _model(bench: Bench, name: str, model: nn.Module) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        paths = {way: Path(folder) / f"{target}.onnx" for way, target in ((ANY, "any"), (LUCID, "cpu"))}
        counts = {}
        for way, path in paths.items():
            exported = lucid.export.to_onnx(model, path=path, target=path.stem, external_data=True)
            counts[way] = Quartiles.of([nodes(exported.graph)])
        ratio = Quartiles.of([counts[LUCID].median / counts[ANY].median])
        cells = {ANY: Cell(counts[ANY]), LUCID: Cell(counts[LUCID], ratio)}
        count = Line("lengths", f"{name}: nodes", "nodes", cells, ANY, Goal(LUCID, 2))
        inputs = Path(folder) / "inputs.npz"
        with inputs.open("wb") as file:
            write_npz(file, {value.name: _ones(value, _SHORT) for value in exported.graph.input})
        lines = [count, _loading(f"{name}: loading", paths, inputs, bench)]
        for length in MODEL_LENGTHS[: 1 if bench.quick else None]:
            arrays = {value.name: _ones(value, length) for value in exported.graph.input}
            specs = {key: lucid.spec(*array.shape, dtype=array.dtype.name) for key, array in arrays.items()}
            fixed = Path(folder) / "fixed.onnx"
            lucid.export.to_onnx(model, kwargs=specs, path=fixed, target="cpu", external_data=True)
            files = {FIXED: fixed, ANY: paths[ANY], LUCID: paths[LUCID]}
            ways = {way: runner(file, tuple(arrays.values()), bench.threads) for way, file in files.items()}
            lines.append(bench.line("lengths", f"{name}, L = {length}", FIXED, ways, goal=1.05))
        return lines


def nodes(graph: onnx.GraphProto) -> int:
    """The nodes of a graph and of the graphs within."""
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return len(graph.node) + sum(map(nodes, inner))


def _ones(value: onnx.ValueInfoProto, length: int) -> Array:
    """An input of one text of a length."""
    kind = value.type.tensor_type
    sizes = [size.dim_value or (1 if size.dim_param == "N" else length) for size in kind.shape.dim]
    return np.ones(sizes, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))


def _loading(work: str, paths: Mapping[str, Path], inputs: Path, bench: Bench) -> Line:
    """The milliseconds to load each file, in turns, each time in a process of its own: so it is that a model is loaded.

    In one process that loads them again and again, memory that was given back is taken anew.
    """
    seconds: dict[str, list[float]] = {way: [] for way in paths}
    for _ in range(2 if bench.quick else ROUNDS):
        for way, path in paths.items():
            load = processes.run("benchmarks.loading", "onnxruntime", path, inputs, bench.threads)
            seconds[way].append(1e3 * load["seconds"])
    ratio = Quartiles.of([ours / base for ours, base in zip(seconds[LUCID], seconds[ANY], strict=True)])
    cells = {ANY: Cell(Quartiles.of(seconds[ANY])), LUCID: Cell(Quartiles.of(seconds[LUCID]), ratio)}
    return Line("lengths", work, "ms", cells, ANY, Goal(LUCID, 1.5))
