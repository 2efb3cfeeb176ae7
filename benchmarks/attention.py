"""Scaled dot-product attention, (N, H, L, d) in float32: exported graphs, and torch's own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

import lucid
from benchmarks import peers
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import NODE, Array, exact, node, runner, unit_normal
from benchmarks.harness import Work
from benchmarks.results import Line
from lucid import ops

TORCH = "torch eager"
CAUSAL = {128: 0.8, 512: 0.75, 1024: 0.9, 2048: 1.0, 4096: 1.1}
UNMASKED = {128: 0.7, 512: 0.8, 1024: 0.95, 2048: 1.0, 4096: 1.0}
DYNAMIC = (10, 32, 64, 128, 200, 512, 1024, 2048, 4096)
PADDED = {(4, 12, 512, 64): 0.9, (2, 12, 1024, 64): 0.8}
HEADS, WIDTH = 12, 64


def causal(bench: Bench) -> list[Line]:
    """Causal, one graph for each length."""
    return [_fixed(bench, "causal", length, True, goal) for length, goal in _sizes(bench, CAUSAL).items()]


def unmasked(bench: Bench) -> list[Line]:
    """Without a mask, one graph for each length."""
    return [_fixed(bench, "unmasked", length, False, goal) for length, goal in _sizes(bench, UNMASKED).items()]


def dynamic(bench: Bench) -> list[Line]:
    """Causal, one model for all lengths."""
    shape = (1, HEADS, "L", WIDTH)
    models = {LUCID: export(shape, True, "cpu"), "Lucid, portable": export(shape, True, "portable")}
    if peers.torch is not None:
        example = unit_normal(*[(1, HEADS, 32, WIDTH)] * 3)
        models["torch export"] = peers.torch.export(peers.torch.Attention(True), example, 23, [{2: "L"}] * 3)
    lines = []
    for length in (32, 512, 2048) if bench.quick else DYNAMIC:
        q, k, v = arrays = unit_normal(*[(1, HEADS, length, WIDTH)] * 3, seed=length)
        ways, base = base_of(arrays, True)
        ways |= {name: runner(model, arrays, bench.threads) for name, model in models.items()}
        work, expected = f"L = {length}", exact(q, k, v, np.tri(length, dtype=bool))
        flops = operations(1, length, True)
        lines.append(bench.line("dynamic", work, base, ways, goal=1.1, operations=flops, expected=expected))
    return lines


def padding(bench: Bench) -> list[Line]:
    """Key padding, with causality and without: rows of a batch have between half the length and all of it."""
    lines = [_padded(bench, shape, True, goal) for shape, goal in PADDED.items()]
    return lines if bench.quick else [*lines, _padded(bench, (4, 12, 512, 64), False, None)]


def scaled(bench: Bench) -> list[Line]:
    """Causal, L = 512, with inputs larger than unit normal: scores spread more, and hiding keys costs more."""
    lines = []
    for factor in (1, 3) if bench.quick else (1, 3, 10):
        q, k, v = unit_normal(*[(1, HEADS, 512, WIDTH)] * 3)
        arrays = (factor * q, factor * k, v)
        ways, base = base_of(arrays, True)
        ways[LUCID] = runner(export((1, HEADS, 512, WIDTH), True, "cpu"), arrays, bench.threads)
        ways[NODE] = runner(node(*arrays, is_causal=True), arrays, bench.threads)
        expected = exact(*arrays, np.tri(512, dtype=bool))
        lines.append(bench.line("scaled", f"q and k x {factor}", base, ways, expected=expected))
    return lines


def export(shape: tuple[Any, ...], is_causal: bool, target: str) -> onnx.ModelProto:
    """Lucid's graph of plain attention."""
    specs = [lucid.spec(*shape)] * 3
    return lucid.export.to_onnx(ops.attention, *specs, kwargs={"is_causal": is_causal}, target=target)


def operations(batch: int, length: int, is_causal: bool, heads: int = HEADS, width: int = WIDTH) -> float:
    """Floating-point operations of both products; causal ones need half."""
    return 4.0 * batch * heads * length * length * width / (2 if is_causal else 1)


def _sizes(bench: Bench, table: dict[int, float]) -> dict[int, float]:
    return {length: goal for length, goal in table.items() if length in (128, 512, 2048) or not bench.quick}


def base_of(arrays: tuple[Array, ...], is_causal: bool, visible: Array | None = None) -> tuple[dict[str, Work], str]:
    """The base of all ratios: torch, or one Attention node if torch is not installed."""
    if peers.torch is not None:
        return {TORCH: peers.torch.attention(*arrays, is_causal=is_causal, visible=visible)}, TORCH
    feeds = arrays if visible is None else (*arrays, visible)
    return {NODE: runner(node(*arrays, is_causal=is_causal, visible=visible), feeds, 2)}, NODE


def _fixed(bench: Bench, section: str, length: int, is_causal: bool, goal: float) -> Line:
    shape = (1, HEADS, length, WIDTH)
    q, k, v = arrays = unit_normal(shape, shape, shape, seed=length)
    ways, base = base_of(arrays, is_causal)
    models = {LUCID: export(shape, is_causal, "cpu")}
    if not bench.quick:
        models |= {
            "Lucid, any": export(shape, is_causal, "any"),
            "Lucid, portable": export(shape, is_causal, "portable"),
        }
    if peers.torch is not None:
        for opset in (23,) if bench.quick else (18, 23):
            models[f"torch export {opset}"] = peers.torch.export(peers.torch.Attention(is_causal), arrays, opset)
    ways |= {name: runner(model, arrays, bench.threads) for name, model in models.items()}
    expected = exact(q, k, v, np.tri(length, dtype=bool) if is_causal else None)
    flops = operations(1, length, is_causal)
    return bench.line(section, f"L = {length}", base, ways, goal=goal, operations=flops, expected=expected)


def _padded(bench: Bench, shape: tuple[int, int, int, int], is_causal: bool, goal: float | None) -> Line:
    batch, _, length, _ = shape
    q, k, v = arrays = unit_normal(shape, shape, shape, seed=length)
    keep = np.arange(length) < np.linspace(length // 2, length, batch)[:, None]
    visible = np.ascontiguousarray(np.broadcast_to(keep[:, None, None], (batch, 1, length, length)))
    if is_causal:
        visible = visible & np.tri(length, dtype=bool)
    ways, base = base_of(arrays, False, visible)

    def attend(query: lucid.Tensor, key: lucid.Tensor, value: lucid.Tensor, key_mask: lucid.Tensor) -> Any:
        return ops.attention(query, key, value, None, key_mask, is_causal=is_causal)

    specs = [*[lucid.spec(*shape)] * 3, lucid.spec(batch, length, dtype=lucid.bool_)]
    for name, target in ((LUCID, "cpu"), ("Lucid, any", "any")):
        model = lucid.export.to_onnx(attend, *specs, target=target)
        feeds = {"query": q, "key": k, "value": v, "key_mask": keep}
        ways[name] = runner(model, feeds, bench.threads)
    if peers.torch is not None:
        model = peers.torch.export(peers.torch.Attention(False), (*arrays, visible), 23)
        ways["torch export 23"] = runner(model, (*arrays, visible), bench.threads)
    work = f"{shape}, {'causal + padding' if is_causal else 'padding'}"
    expected, flops = exact(q, k, v, visible), operations(batch, length, is_causal)
    return bench.line("padding", work, base, ways, goal=goal, operations=flops, expected=expected)
