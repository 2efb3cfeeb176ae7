"""Each option of attention beside torch, which has a kernel for some and takes plain products for the others."""

from __future__ import annotations

from typing import Any

import numpy as np

import lucid
from benchmarks import peers
from benchmarks.attention import HEADS, TORCH, WIDTH
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array, runner, unit_normal
from benchmarks.harness import Work
from benchmarks.results import Line
from lucid import ops

CASES: dict[str, dict[str, Any]] = {  # options of `ops.attention`, the number of key heads, and masks to make
    "softcap": {"softcap": 50.0},
    "softcap, causal": {"softcap": 50.0, "is_causal": True},
    "weights returned": {"need_weights": True},
    "boolean mask": {"mask": "bool"},
    "floating mask": {"mask": "float"},
    "floating mask for each head": {"mask": "heads"},
    "12 heads read 4, causal": {"kv_heads": 4, "is_causal": True},
}
LENGTHS = (128, 512, 2048)
GOALS = {"softcap": 0.5, "softcap, causal": 0.5}


def options(bench: Bench) -> list[Line]:
    """By option and length, a graph for each."""
    return [
        _line(bench, name, length, dict(case))
        for name, case in CASES.items()
        for length in ((512,) if bench.quick else LENGTHS)
    ]


def _line(bench: Bench, name: str, length: int, case: dict[str, Any]) -> Line:
    kv_heads, kind = case.pop("kv_heads", HEADS), case.pop("mask", "")
    shapes = [(1, heads, length, WIDTH) for heads in (HEADS, kv_heads, kv_heads)]
    arrays = (*unit_normal(*shapes, seed=length), *_masks(kind, length))

    def attend(*given: lucid.Tensor) -> Any:
        return ops.attention(*given, **case)

    specs = [lucid.types.TensorType(lucid.types.as_dtype(x.dtype), x.shape) for x in arrays]
    ways: dict[str, Work] = {
        way: runner(lucid.export.to_onnx(attend, *specs, target=target), arrays, bench.threads)
        for way, target in ((LUCID, "cpu"), ("Lucid, any", "any"))
    }
    tensors = [lucid.Tensor(x) for x in arrays]
    ways["Lucid eager"] = lambda: attend(*tensors)
    base = "Lucid, any"
    if peers.torch is not None:
        base, ways[TORCH] = TORCH, peers.torch.attention_with(*arrays, **case)
    return bench.line("options", f"{name}, L = {length}", base, ways, goal=GOALS.get(name) if length == 512 else None)


def _masks(kind: str, length: int) -> list[Array]:
    if kind == "":
        return []
    rng = np.random.default_rng(length)
    if kind == "bool":
        return [rng.random((1, 1, length, length)) < 0.7]
    return [rng.standard_normal((1, HEADS if kind == "heads" else 1, length, length)).astype(np.float32)]
