"""Costs other than run time: memory, exports, imports."""

from __future__ import annotations

import tempfile
from pathlib import Path

import lucid
from benchmarks import peers, probe
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import unit_normal
from benchmarks.harness import Quartiles, Work, repeat
from benchmarks.minilm import load, torch_encoder
from benchmarks.results import Cell, Goal, Line
from lucid import nn

MB = 1e6


def memory(bench: Bench) -> list[Line]:
    """Peak memory of causal attention above its inputs."""
    length = 1024 if bench.quick else 8192
    ways = {LUCID: "fixed", "Lucid, any length": "dynamic", "one Attention node": "node", "Lucid eager": "eager"}
    if not bench.quick:
        ways["Lucid, portable"] = "portable"
    if peers.torch is not None:
        ways["torch eager"] = "torch"
    memory = {
        way: Quartiles.of([probe.run("attention", name, length) / MB for _ in range(3)]) for way, name in ways.items()
    }
    cells = {way: Cell(value) for way, value in memory.items()}
    work, goals = f"L = {length}", (250, 60) if length == 8192 else (None, None)
    eager = {LUCID: cells.pop("Lucid eager")} | {way: cells[way] for way in ("torch eager",) if way in cells}
    graphs = Line("memory", f"{work}, graphs", "MB", cells, goal=_goal(goals[0]))
    return [graphs, Line("memory", f"{work}, eager", "MB", eager, goal=_goal(goals[1]))]


def _goal(value: float | None) -> Goal | None:
    return None if value is None else Goal(LUCID, value)


def exports(bench: Bench) -> list[Line]:
    """Time to export: one module, and a whole model to a file."""
    times = 5 if bench.quick else 20
    module = nn.MultiHeadAttention(512, 8).eval()
    encoder = load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        mha: dict[str, Work] = {
            LUCID: lambda: lucid.export.to_onnx(module),
            "Lucid, cpu": lambda: lucid.export.to_onnx(module, target="cpu"),
            "Lucid, to a file": lambda: lucid.export.to_onnx(module, path=path),
        }
        minilm: dict[str, Work] = {} if encoder is None else {LUCID: lambda: lucid.export.to_onnx(encoder, path=path)}
        slow_mha: dict[str, Work] = {}
        slow_minilm: dict[str, Work] = {}
        torch, jax = peers.torch, peers.jax
        if torch is not None:
            state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
            theirs, (x,) = torch.SelfAttention(512, 8, False, state), unit_normal((2, 10, 512))
            slow_mha["torch export"] = lambda: torch.export(theirs, (x,), 23, [{0: "N", 1: "L"}], path)
            if encoder is not None and not bench.quick:
                bert, example = torch_encoder(encoder)
                slow_minilm["torch export"] = lambda: torch.export(bert, example, 23, [{0: "N", 1: "L"}] * 2, path)
        if jax is not None:
            slow_mha["jax2onnx"] = lambda: jax.multi_head_attention(512, 8)
        lines = [_exports("MultiHeadAttention(512, 8)", mha, slow_mha, times, 5)]
        if encoder is not None:
            lines.append(_exports("MiniLM-L6 to a file", minilm, slow_minilm, times, 150))
    first = Quartiles.of([1e3 * probe.run("first_mha") for _ in range(3)])
    return [*lines, Line("exports", "MultiHeadAttention(512, 8), the first of a process", "ms", {LUCID: Cell(first)})]


def _exports(work: str, quick: dict[str, Work], slow: dict[str, Work], times: int, goal: float) -> Line:
    """Exporters that take seconds are measured three times."""
    seconds = {name: repeat(run, times) for name, run in quick.items()} | {
        name: repeat(run, 3) for name, run in slow.items()
    }
    cells = {name: Cell(Quartiles(1e3 * t.low, 1e3 * t.median, 1e3 * t.high)) for name, t in seconds.items()}
    return Line("exports", work, "ms", cells, goal=Goal(LUCID, goal))


def large(bench: Bench) -> list[Line]:
    """Export of large models to a file: time, and memory above the loaded model as a share of the weights."""
    if bench.quick:
        models = {"GPT-2 small, 0.5 GB float32": [probe.run("gpt2")]}
    else:
        models = {
            "GPT-2 small, 0.5 GB float32": [probe.run("gpt2") for _ in range(3)],
            "Llama of 1.2e9 weights, 2.5 GB float16": [probe.run("llama", 16)],
        }
    lines = []
    for name, runs in models.items():
        goals = (0.6, 0.15) if name.startswith("GPT") else (None, 0.15)
        seconds = Quartiles.of([one["seconds"] for one in runs])
        share = Quartiles.of([one["bytes"] / one["weights"] for one in runs])
        lines.append(Line("large", f"{name}: time", "s", {LUCID: Cell(seconds)}, goal=_goal(goals[0])))
        lines.append(Line("large", f"{name}: extra memory", "x weights", {LUCID: Cell(share)}, goal=Goal(LUCID, 0.15)))
    return lines


def install(bench: Bench) -> list[Line]:
    """Import time."""
    modules = ["lucid", "lucid.nn", "lucid.export", "lucid.runtime", *(["torch"] if peers.torch is not None else [])]
    runs = 3 if bench.quick else 7
    seconds = {name: Quartiles.of([1e3 * probe.imports(name) for _ in range(runs)]) for name in modules}
    return [Line("install", "import", "ms", {name: Cell(value) for name, value in seconds.items()})]
