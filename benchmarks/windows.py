"""Attention within a window: one model for all lengths, beside torch with the window as a mask, which is all it has."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import lucid
from benchmarks.attention import HEADS, WIDTH, base_of
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import exact, runner, unit_normal
from benchmarks.results import Line
from lucid import ops
from lucid.ops.attention.masks import causal_mask

WINDOWS: dict[str, dict[str, Any]] = {
    "128 before": {"window": 128, "is_causal": True},
    "64 on each side": {"window": 65, "window_after": 64},
    "1024 before": {"window": 1024, "is_causal": True},
}
LENGTHS = (128, 512, 1024, 2048, 4096)
GOALS = {("128 before", 2048): 0.3, ("64 on each side", 2048): 0.3}


def windows(bench: Bench) -> list[Line]:
    """By window and length; the goals are for 2048 positions."""
    shape = (1, HEADS, "L", WIDTH)
    lines = []
    for name, options in WINDOWS.items():

        def attend(query: lucid.Tensor, key: lucid.Tensor, value: lucid.Tensor, options: Any = options) -> lucid.Tensor:
            output: lucid.Tensor = ops.attention(query, key, value, **options)
            return output

        models = {
            way: lucid.export.to_onnx(attend, *[lucid.spec(*shape)] * 3, target=target)
            for way, target in ((LUCID, "cpu"), ("Lucid, any", "any"))
        }
        for length in (512, 2048) if bench.quick else LENGTHS:
            q, k, v = arrays = unit_normal(*[(1, HEADS, length, WIDTH)] * 3, seed=length)
            ahead = options.get("window_after", 0)
            visible = causal_mask(length, length, ahead=ahead, window=options["window"]).numpy()
            ways, base = base_of(arrays, False, np.ascontiguousarray(visible[None, None]))
            ways |= {way: runner(model, arrays, bench.threads) for way, model in models.items()}
            tensors = [lucid.Tensor(x) for x in arrays]
            ways["Lucid eager"] = partial(attend, *tensors)
            expected = exact(q, k, v, visible) if length <= 2048 else None
            flops = 4.0 * HEADS * WIDTH * float(visible.sum())
            work = f"{name}, L = {length}"
            goal = GOALS.get((name, length))
            lines.append(bench.line("windows", work, base, ways, goal=goal, operations=flops, expected=expected))
    return lines
