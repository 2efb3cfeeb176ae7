"""Exported graphs as functions to time, and the plain Attention node, the base of ratios if torch is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from benchmarks.harness import Work

Array = np.ndarray[Any, Any]
NODE = "one Attention node"


def runner(model: onnx.ModelProto | Path, inputs: Mapping[str, Array] | tuple[Array, ...], threads: int) -> Work:
    """A call of onnxruntime, without a wrapper."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feeds = (
        dict(zip(names, inputs, strict=True)) if isinstance(inputs, tuple) else {name: inputs[name] for name in names}
    )
    return lambda: session.run(None, feeds)[0]


def node(*arrays: Array, is_causal: bool = False, visible: Array | None = None) -> onnx.ModelProto:
    """Attention as one node of opset 23 with dynamic lengths, as other exporters write it."""
    types = [*[TensorProto.FLOAT] * 3, *([] if visible is None else [TensorProto.BOOL])]
    values = [*arrays, *([] if visible is None else [visible])]
    inputs = [
        helper.make_tensor_value_info(name, kind, [f"{name}{axis}" for axis in range(array.ndim)])
        for name, kind, array in zip("qkvm", types, values, strict=False)
    ]
    node = helper.make_node("Attention", [value.name for value in inputs], ["y"], is_causal=int(is_causal))
    graph = helper.make_graph(
        [node], "node", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def unit_normal(*shapes: tuple[int, ...], seed: int = 0) -> tuple[Array, ...]:
    """Inputs."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape, np.float32) for shape in shapes)


def exact(q: Array, k: Array, v: Array, visible: Array | None) -> Array:
    """Attention of the first head in float64, the reference for errors."""
    q, k, v = (x[:, :1].astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(-1, keepdims=True)
    result: Array = np.where(total > 0, weights / np.where(total > 0, total, 1), 0) @ v
    return result
