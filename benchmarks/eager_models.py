"""Whole models, eagerly, beside transformers in torch: usual widths, a few layers, the same random weights in both."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from benchmarks import peers
from benchmarks.attention import TORCH
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array
from benchmarks.results import Line
from lucid.models.whisper import Whisper

INPUTS = {  # the shape of the input of each model that `transformers_peer.encoder` makes
    "MiniLM": ((1, 16), (8, 64)),
    "ViT-B": ((1, 3, 224, 224),),
    "Whisper tiny, encoder": ((1, 80, 3000),),
    "Swin-T": ((1, 3, 224, 224),),
    "ConvNeXt-T": ((1, 3, 224, 224),),
    "wav2vec2 base": ((1, 16000),),
}


def models(bench: Bench) -> list[Line]:
    """One call of each, on NumPy and compiled."""
    if peers.transformers is None:
        return []
    lines = []
    for name, shapes in INPUTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            theirs = peers.transformers.encoder(name, Path(scratch))
            read = lucid.models.load(scratch)
        ours: Callable[[lucid.Tensor], Any] = read.encode if isinstance(read, Whisper) else read
        for shape in shapes[:1] if bench.quick else shapes:
            x = _given(shape)
            tensor = lucid.Tensor(x)
            first = ours(tensor)
            output = (first[0] if isinstance(first, tuple) else first).numpy()
            run = peers.transformers.call(theirs, x)
            expected = run().numpy()
            agreement = np.abs(output.reshape(-1) - expected.reshape(-1)).max()
            assert agreement < 1e-3 * np.abs(expected).max(), f"{name}: Lucid and torch differ by {agreement}"
            work = f"{name}, {shape}"
            calls = {"eager_models": partial(ours, tensor), "compiled": partial(lucid.compile(ours), tensor)}
            for section, own in calls.items():
                lines.append(bench.line(section, work, TORCH, {TORCH: run, LUCID: own}, goal=1.1))
    return lines


def _given(shape: tuple[int, ...]) -> Array:
    """Tokens for two axes that are short, else a sound, features or an image."""
    random = np.random.default_rng(0)
    if len(shape) == 2 and shape[1] < 1000:
        return random.integers(1000, 30000, shape)
    return random.standard_normal(shape).astype(np.float32)
