"""Each option of attention beside torch, which has a kernel for some and takes plain products for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import lucid
from benchmarks import peers
from benchmarks.attention import HEADS, TORCH, WIDTH
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array, runner, unit_normal
from benchmarks.harness import Effort, Work
from benchmarks.results import Line
from lucid import ops

CASES: dict[str, dict[str, Any]] = {  # options of `ops.attention`, the number of key heads, and masks to make
    "softcap": {"softcap": 50.0},
    "softcap, causal": {"softcap": 50.0, "is_causal": True},
    "softcap, causal, 12 heads read 4": {"softcap": 50.0, "is_causal": True, "kv_heads": 4},
    "weights returned": {"need_weights": True},
    "boolean mask": {"mask": "bool"},
    "floating mask": {"mask": "float"},
    "floating mask for each head": {"mask": "heads"},
    "12 heads read 4": {"kv_heads": 4},
    "12 heads read 4, causal": {"kv_heads": 4, "is_causal": True},
}
LENGTHS = (128, 512)
GOALS = {("softcap", 512): 0.5, ("softcap, causal", 512): 0.5}
CACHES = [(12, 12, 64), (12, 4, 64), (32, 8, 128)]  # heads of queries and of keys, width
STEPS = [(1, 511), (8, 511), (1, 1023)]  # new positions, those in the cache
LEAN = Effort(rounds=9, least=5, limit=2.0, seconds=0.04)  # there are many rows


def options(bench: Bench) -> list[Line]:
    """By option and length, a graph for each."""
    works = [(name, length) for name in CASES for length in LENGTHS]
    if bench.quick:
        works = list(GOALS)
    return [_line(_lean(bench), name, length, dict(CASES[name])) for name, length in works]


def growing(bench: Bench) -> list[Line]:
    """New positions over a cache of earlier ones, causal; the results hold the new cache."""
    steps = [(heads, step) for heads in CACHES for step in STEPS]
    return [_step(_lean(bench), *heads, *step) for heads, step in (steps[:1] if bench.quick else steps)]


def _lean(bench: Bench) -> Bench:
    return bench if bench.quick else replace(bench, effort=LEAN)


def _line(bench: Bench, name: str, length: int, case: dict[str, Any]) -> Line:
    kv_heads, kind = case.pop("kv_heads", HEADS), case.pop("mask", "")
    shapes = [(1, heads, length, WIDTH) for heads in (HEADS, kv_heads, kv_heads)]
    arrays = (*unit_normal(*shapes, seed=length), *_masks(kind, length))

    def attend(*given: lucid.Tensor) -> Any:
        return ops.attention(*given, **case)

    ways = _ways(bench, attend, arrays)
    base = "Lucid, any"
    if peers.torch is not None:
        base, ways[TORCH] = TORCH, peers.torch.attention_with(*arrays, **case)
    return bench.line("options", f"{name}, L = {length}", base, ways, goal=GOALS.get((name, length)))


def _step(bench: Bench, heads: int, kv_heads: int, width: int, new: int, past: int) -> Line:
    shapes = [(1, heads, new, width), *[(1, kv_heads, new, width)] * 2, *[(1, kv_heads, past, width)] * 2]
    arrays = unit_normal(*shapes, seed=past)

    def attend(query: Any, key: Any, value: Any, *cache: Any) -> Any:
        return ops.attention(query, key, value, None, None, *cache, is_causal=True)

    ways = _ways(bench, attend, arrays)
    base = "Lucid, any"
    if peers.torch is not None:
        base, ways[TORCH] = TORCH, peers.torch.growing_cache(*arrays)
    return bench.line("growing", f"{heads}/{kv_heads}x{width}, {new} new over {past}", base, ways)


def _ways(bench: Bench, attend: Any, arrays: tuple[Array, ...]) -> dict[str, Work]:
    """Graphs of these sizes for two targets, and eager."""
    specs = [lucid.spec(*x.shape, dtype=x.dtype.name) for x in arrays]
    ways: dict[str, Work] = {
        way: runner(lucid.export.to_onnx(attend, *specs, target=target), arrays, bench.threads)
        for way, target in ((LUCID, "cpu"), ("Lucid, any", "any"))
    }
    tensors = [lucid.Tensor(x) for x in arrays]
    ways["Lucid eager"] = lambda: attend(*tensors)
    return ways


def _masks(kind: str, length: int) -> list[Array]:
    if kind == "":
        return []
    rng = np.random.default_rng(length)
    if kind == "bool":
        return [rng.random((1, 1, length, length)) < 0.7]
    return [rng.standard_normal((1, HEADS if kind == "heads" else 1, length, length)).astype(np.float32)]
