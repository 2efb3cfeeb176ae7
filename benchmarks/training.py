"""A training step of a whole model in onnxruntime and in torch: loss, gradients and AdamW, from the same weights."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from benchmarks import peers
from benchmarks.attention import TORCH
from benchmarks.bench import LUCID, Bench
from benchmarks.results import Line
from lucid.nn import functional as F
from lucid.runtime import Training

RATE = 5e-5


def steps(bench: Bench) -> list[Line]:
    """MiniLM, all weights, on sentences of one length."""
    if peers.transformers is None:
        return []
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        theirs = peers.transformers.encoder("MiniLM", Path(scratch))
        model: Any = lucid.models.load(scratch, "feature-extraction")

        def loss(input_ids: Any, labels: Any) -> Any:
            return F.cross_entropy(model(input_ids)[:, 0], labels)

        ids, labels = lucid.spec("N", "L", dtype=lucid.int64), lucid.spec("N", dtype=lucid.int64)
        file = Path(scratch) / "step.onnx"
        lucid.export.training_step(model, loss, lucid.optim.AdamW(RATE), ids, labels, path=file, target="cpu")
        for shape in ((8, 32),) if bench.quick else ((8, 32), (32, 64)):
            random = np.random.default_rng(0)
            batch = {"input_ids": random.integers(1000, 30000, shape), "labels": random.integers(0, 384, shape[0])}
            training = Training(file, model.state_dict(), threads=bench.threads)
            run, own = peers.transformers.training(theirs, batch, RATE), partial(training.step, **batch)
            ours, wanted = own(), run()
            assert abs(ours - wanted) < 1e-3 * wanted, f"the losses of Lucid and torch are {ours} and {wanted}"
            lines.append(bench.line("training", f"MiniLM, {shape}", TORCH, {TORCH: run, LUCID: own}, goal=1.1))
    return lines
