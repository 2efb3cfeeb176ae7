"""One model for all lengths: its nodes and loading time beside target "any", its speed beside a model of one length."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime

import lucid
from benchmarks.attention import HEADS, WIDTH, export
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import runner, unit_normal
from benchmarks.harness import Quartiles, Work
from benchmarks.results import Cell, Goal, Line
from lucid import nn
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
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)


def lengths(bench: Bench) -> list[Line]:
    """Whole models by nodes and loading time, attention by length."""
    lines: list[Line] = []
    for name, make in list(MODELS.items())[:: 2 if bench.quick else 1]:
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
        loading = {way: _load(path, bench.threads) for way, path in paths.items()}
        return [count, bench.line("lengths", f"{name}: loading", ANY, loading, goal=1.5)]


def nodes(graph: onnx.GraphProto) -> int:
    """The nodes of a graph and of the graphs within."""
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return len(graph.node) + sum(map(nodes, inner))


def _load(path: Path, threads: int) -> Work:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return lambda: onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
