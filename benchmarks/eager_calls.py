"""What a call costs eagerly, beside the same work in NumPy: on arrays so small that computing takes next to no time."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

import lucid
from benchmarks import peers
from benchmarks.attention import TORCH
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array, unit_normal
from benchmarks.harness import Quartiles, Work
from benchmarks.results import Cell, Goal, Line
from lucid import ops

NUMPY, ABOVE = "NumPy", "above NumPy"
CALLS, BLOCKS = 200, 25


def calls(bench: Bench) -> list[Line]:
    """Small calls, in microseconds: Lucid's time less NumPy's is what Lucid adds."""
    return [_line(work, ways, bench.quick) for work, ways in _works().items()]


def _works() -> dict[str, Mapping[str, Work]]:
    x, y, weight, bias = unit_normal((1, 64), (1, 64), (64, 64), (64,))
    heads, angles = unit_normal((1, 1, 16, 64), (16, 32))
    by_call: dict[str, dict[str, Work]] = {
        "x + y": {NUMPY: lambda: x + y},
        "linear": {NUMPY: lambda: x @ weight.T + bias},
        "rms_norm": {NUMPY: lambda: _rms_norm(x, bias)},
        "rotary_embedding": {NUMPY: lambda: _rotary(heads, angles, angles)},
        "attention": {NUMPY: lambda: _attention(heads)},
    }
    a, b, w, c, h, angle = map(lucid.Tensor.from_array, (x, y, weight, bias, heads, angles))
    ours: dict[str, Work] = {
        "x + y": lambda: a + b,
        "linear": lambda: ops.linear(a, w, c),
        "rms_norm": lambda: ops.rms_norm(a, c),
        "rotary_embedding": lambda: ops.rotary_embedding(h, angle, angle),
        "attention": lambda: ops.attention(h, h, h),
    }
    theirs = {} if peers.torch is None else peers.torch.small_calls(x, y, weight, bias, heads)
    for name, ways in by_call.items():
        ways[LUCID] = ours[name]
        if name in theirs:
            ways[TORCH] = theirs[name]
    shapes = {"rotary_embedding": heads.shape, "attention": heads.shape}
    return {f"{name}, {shapes.get(name, x.shape)}": ways for name, ways in by_call.items()}


def _rms_norm(x: Array, weight: Array) -> Array:
    result: Array = x * (1 / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(1e-6))) * weight
    return result


def _rotary(x: Array, cos: Array, sin: Array) -> Array:
    a, b = x[..., :32], x[..., 32:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def _attention(x: Array) -> Array:
    scores = x @ x.swapaxes(-1, -2) * np.float32(0.125)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = weights / weights.sum(-1, keepdims=True) @ x
    return result


def _line(work: str, ways: Mapping[str, Work], quick: bool) -> Line:
    """The least of many blocks of each: what disturbs a call of microseconds only ever adds to it."""
    least = dict.fromkeys(ways, np.inf)
    for _ in range(5 if quick else BLOCKS):
        for name, run in ways.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                run()
            least[name] = min(least[name], (time.perf_counter() - start) / CALLS * 1e6)
    least[ABOVE] = least[LUCID] - least[NUMPY]
    cells = {name: Cell(Quartiles(us, us, us)) for name, us in least.items()}
    return Line("eager_calls", work, "us", cells, goal=Goal(ABOVE, 4.0))
