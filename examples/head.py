"""A linear layer that gives MiniLM's vectors a label, and its training step as an ONNX file."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

import lucid
import lucid.nn.functional as F
from lucid import nn

WIDTH = 384
"""The numbers of a vector of MiniLM."""


def training_step(count: int) -> onnx.ModelProto:
    """One step of AdamW for `count` labels: float32 ``vectors`` (N, WIDTH) of length 1, and int64 ``labels`` (N,)."""
    head = nn.Linear(WIDTH, count)

    def loss(vectors: Any, labels: Any) -> Any:
        return F.cross_entropy(head(vectors), labels)

    inputs = ("N", WIDTH), lucid.spec("N", dtype=lucid.int64)
    return lucid.export.training_step(head, loss, lucid.optim.AdamW(0.05), *inputs, target="cpu")


def start(count: int) -> dict[str, np.ndarray[Any, Any]]:
    """The weights before the first step: zeros."""
    return {"weight": np.zeros((count, WIDTH), np.float32), "bias": np.zeros(count, np.float32)}
