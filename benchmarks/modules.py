"""nn.MultiHeadAttention as a whole, and attention on NumPy."""

from __future__ import annotations

import numpy as np

import lucid
from benchmarks import peers
from benchmarks.attention import HEADS, TORCH, WIDTH, operations
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import NODE, Array, exact, node, runner, unit_normal
from benchmarks.harness import Work
from benchmarks.results import Line
from lucid import nn, ops

SIZES = [  # N, L, width, heads, causal, goal
    (16, 10, 512, 8, False, 0.88),
    (1, 512, 768, 12, False, 0.9),
    (8, 128, 768, 12, False, 1.0),
    (1, 512, 768, 12, True, 0.9),
    (1, 2048, 768, 12, True, 0.95),
]
EAGER = [
    (1, 12, 128, True),
    (4, 12, 128, False),
    (1, 12, 512, True),
    (1, 12, 512, False),
    (1, 12, 2048, True),
    (1, 12, 2048, False),
]
MILLION = 1_000_000


def multi_head(bench: Bench) -> list[Line]:
    """Self-attention with its projections."""
    lines = []
    for batch, length, width, heads, is_causal, goal in SIZES[:4] if bench.quick else SIZES:
        lucid.manual_seed(0)
        module = nn.MultiHeadAttention(width, heads).eval()
        (x,) = unit_normal((batch, length, width))
        ways: dict[str, Work] = {}
        for name, target in ((LUCID, "cpu"), ("Lucid, any", "any")):
            model = lucid.export.to_onnx(module, x.shape, kwargs={"is_causal": is_causal}, target=target)
            ways[name] = runner(model, (x,), bench.threads)
        ways["Lucid eager"] = _eager_module(module, x, is_causal)
        base = "Lucid, any"
        if peers.torch is not None:
            state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
            theirs = peers.torch.SelfAttention(width, heads, is_causal, state)
            base, ways[TORCH] = TORCH, peers.torch.call(theirs, x)
            for opset in (23,) if bench.quick else (18, 23):
                model = peers.torch.export(theirs, (x,), opset)
                ways[f"torch export {opset}"] = runner(model, (x,), bench.threads)
        flops = 8.0 * batch * length * width * width + operations(batch, length, is_causal, heads, width // heads)
        work = f"{batch, length, width, heads}{' causal' if is_causal else ''}"
        lines.append(bench.line("mha", work, base, ways, goal=goal, operations=flops))
    return lines


def eager(bench: Bench) -> list[Line]:
    """Attention on NumPy arrays, without onnxruntime."""
    lines = []
    for batch, heads, length, is_causal in EAGER[:4] if bench.quick else EAGER:
        shape = (batch, heads, length, WIDTH)
        q, k, v = arrays = unit_normal(shape, shape, shape, seed=length)
        tensors = [lucid.Tensor.from_array(array) for array in arrays]
        ways: dict[str, Work] = {
            LUCID: _eager(tensors, is_causal),
            "plain NumPy": lambda q=q, k=k, v=v, is_causal=is_causal: plain(q, k, v, is_causal),  # type: ignore[misc]
        }
        base = NODE
        if peers.torch is not None:
            base, ways[TORCH] = TORCH, peers.torch.attention(*arrays, is_causal=is_causal)
        else:
            ways[NODE] = runner(node(*arrays, is_causal=is_causal), arrays, bench.threads)
        scores = batch * heads * length * length
        work = f"{shape}{', causal' if is_causal else ''}, {scores / MILLION:.1f}e6 scores"
        expected = exact(q, k, v, np.tri(length, dtype=bool) if is_causal else None)
        goal, flops = 1.4 if scores > MILLION else 1.6, operations(batch, length, is_causal, HEADS)
        lines.append(bench.line("eager", work, base, ways, goal=goal, operations=flops, expected=expected))
    return lines


def plain(q: Array, k: Array, v: Array, is_causal: bool) -> Array:
    """Attention in a few lines of NumPy: all scores at once."""
    scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
    if is_causal:
        scores = np.where(np.tri(q.shape[2], dtype=bool), scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = weights / weights.sum(-1, keepdims=True) @ v
    return result


def _eager(tensors: list[lucid.Tensor], is_causal: bool) -> Work:
    return lambda: ops.attention(*tensors, is_causal=is_causal).numpy()


def _eager_module(module: nn.MultiHeadAttention, x: Array, is_causal: bool) -> Work:
    tensor = lucid.Tensor.from_array(x)
    return lambda: module(tensor, is_causal=is_causal)
