"""Training in onnxruntime and in torch, from the same weights: steps of whole models and adapters, and a head."""

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
from lucid import nn
from lucid.nn import functional as F
from lucid.runtime import Training

RATE = 5e-5


def steps(bench: Bench) -> list[Line]:
    """Steps of a whole encoder, of adapters of a decoder, and of a head on an encoder that stays as it is."""
    if peers.transformers is None:
        return []
    return [*_whole(bench), *_adapters(bench), *_head(bench)]


def _whole(bench: Bench) -> list[Line]:
    """MiniLM, all weights, on sentences of one length."""
    assert peers.transformers is not None
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
            ours, expected = own(), run()
            assert abs(ours - expected) < 1e-3 * expected, f"the losses of Lucid and torch are {ours} and {expected}"
            lines.append(bench.line("training", f"MiniLM, {shape}", TORCH, {TORCH: run, LUCID: own}, goal=1.1))
    return lines


def _adapters(bench: Bench) -> list[Line]:
    """LoRA of rank 8 on the queries and values of a decoder in the sizes of SmolLM2-135M, on texts of one length."""
    if peers.peft is None or peers.transformers is None:
        return []
    shape, layers = ((1, 32), 2) if bench.quick else ((4, 256), 30)
    with tempfile.TemporaryDirectory() as scratch:
        theirs = peers.transformers.small_decoder(Path(scratch), layers)
        lucid.manual_seed(0)
        model: Any = nn.LoRA.add(lucid.models.load(scratch), 8, ("*.q_proj", "*.v_proj"), alpha=16)

        def loss(input_ids: Any) -> Any:
            logits = model(input_ids)[:, :-1]
            return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), input_ids[:, 1:].reshape(-1))

        ids, file = lucid.spec("N", "L", dtype=lucid.int64), Path(scratch) / "step.onnx"
        options: dict[str, Any] = {"wrt": "*.lora_*", "path": file, "target": "cpu"}
        lucid.export.training_step(model, loss, lucid.optim.AdamW(RATE), ids, **options)
        batch = {"input_ids": np.random.default_rng(0).integers(1000, 30000, shape)}
        training = Training(file, model.state_dict(), threads=bench.threads)
        run = peers.peft.adapter_training(theirs, batch["input_ids"], 8, RATE)
        own = partial(training.step, **batch)
        ours, expected = own(), run()
        assert abs(ours - expected) < 1e-3 * expected, f"the losses of Lucid and torch are {ours} and {expected}"
        name = f"SmolLM2-135M, {layers} layers, LoRA 8, {shape}"
        return [bench.line("training", name, TORCH, {TORCH: run, LUCID: own}, goal=1.1)]


def _head(bench: Bench) -> list[Line]:
    """Ten epochs of a head on 5,000 embeddings; torch trains one of its own on the same numbers."""
    assert peers.transformers is not None
    random = np.random.default_rng(0)
    count, width, classes, batch = (500 if bench.quick else 5000), 384, 20, 32
    x, labels = random.standard_normal((count, width), np.float32), random.integers(0, classes, count)
    lucid.manual_seed(0)
    head: Any = nn.Linear(width, classes)

    def loss(x: Any, labels: Any) -> Any:
        return F.cross_entropy(head(x), labels)

    with tempfile.TemporaryDirectory() as scratch:
        file, specs = Path(scratch) / "head.onnx", (("N", width), lucid.spec("N", dtype=lucid.int64))
        lucid.export.training_step(head, loss, lucid.optim.AdamW(1e-3), *specs, path=file, target="cpu")
        training = Training(file, head.state_dict(), threads=bench.threads)
        step = peers.transformers.head_training(width, classes, 1e-3)

        def epochs(one: Any) -> None:
            for _ in range(10):
                for at in range(0, count, batch):
                    one(x=x[at : at + batch], labels=labels[at : at + batch])

        ways = {TORCH: partial(epochs, step), LUCID: partial(epochs, training.step)}
        return [bench.line("training", f"head of MiniLM, {count} sentences, 10 epochs", TORCH, ways)]
