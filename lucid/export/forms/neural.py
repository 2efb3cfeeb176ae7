"""Native forms of composites that ONNX has an op for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from lucid.core.graph.types import DType, float64
from lucid.core.graph.values import Node, Result
from lucid.export.builder import Builder, Operand
from lucid.export.form import form, refuse
from lucid.ops import elementwise, neural


@form(neural.dropout, takes="p")
def dropout(build: Builder, node: Node) -> NoReturn:
    refuse("dropout is for training: export in evaluation mode, or with dropout_p=0")


@form(neural.relu, kernel="Relu")
def relu(build: Builder, node: Node) -> str:
    return build.op("Relu", *node.inputs)


@form(neural.softplus, kernel="Softplus")
def softplus(build: Builder, node: Node) -> str:
    return build.op("Softplus", *node.inputs)


@form(neural.log_softmax, takes="axis", kernel="LogSoftmax")
def log_softmax(build: Builder, node: Node) -> str:
    return build.op("LogSoftmax", *node.inputs, axis=node.attributes["axis"])


@form(neural.gelu, takes="approximate", name="ai.onnx Gelu", opset=20, kernel="Gelu")
def gelu(build: Builder, node: Node) -> str:
    return build.op("Gelu", *node.inputs, approximate=node.attributes["approximate"])


@form(
    neural.layer_norm,
    takes="weight bias axes eps",
    name="ai.onnx LayerNormalization, apart from a sum",
    strategy="reshapes",
)
def layer_normalization_of_a_sum(build: Builder, node: Node) -> str:
    """onnxruntime (1.28 to 1.31 at least) fuses this with a sum of three axes that nothing else reads, into a kernel
    that takes four times as long as both. A reshape to the same shape in between prevents that and moves no data.
    """
    total = node.inputs[0]
    is_sum = isinstance(total, Result) and total.node.op is elementwise.add
    if total is None or not is_sum or total.type.rank != 3 or build.uses(total) > 1:
        refuse("its input is not a sum that onnxruntime would fuse it with")
    return _layer_normalization(build, node, lambda: build.op("Reshape", total, np.zeros(3, np.int64)))


@form(neural.layer_norm, takes="weight bias axes eps", name="ai.onnx LayerNormalization", kernel="LayerNormalization")
def layer_normalization(build: Builder, node: Node) -> str:
    return _layer_normalization(build, node, lambda: node.inputs[0])


def _layer_normalization(build: Builder, node: Node, source: Callable[[], Operand]) -> str:
    """The node. `source` emits its input, after the last check that may refuse."""
    x, weight, bias = node.inputs
    assert x is not None
    axes = node.attributes["axes"]
    refuse_float64(node)
    if any(v is not None and v.type.dtype != x.type.dtype for v in (weight, bias)):
        refuse("weight or bias has another element type than the input")
    scale = weight if weight is not None else _ones(x.type.shape[-axes:], x.type.dtype)
    return build.op("LayerNormalization", source(), scale, bias, axis=-axes, epsilon=float(node.attributes["eps"]))


@form(neural.rms_norm, takes="weight eps offset", name="ai.onnx RMSNormalization", opset=23, kernel="RMSNormalization")
def rms_normalization(build: Builder, node: Node) -> str:
    x, weight = node.inputs
    assert x is not None
    refuse_float64(node)
    if weight is not None and weight.type.dtype != x.type.dtype:
        refuse("the weight has another element type than the input")
    offset = node.attributes["offset"]
    if offset and x.type.dtype.itemsize == 2:
        refuse("half precision would round the sum of weight and offset")
    scale: Operand = weight if weight is not None else _ones(x.type.shape[-1:], x.type.dtype)
    if weight is not None and offset:  # onnxruntime adds them when it loads the model
        scale = build.op("Add", weight, np.asarray(offset, x.type.dtype.numpy))
    return build.op("RMSNormalization", x, scale, axis=-1, epsilon=float(node.attributes["eps"]))


def refuse_float64(node: Node) -> None:
    """Leave float64 to the body."""
    if node.types[0].dtype == float64:
        refuse("its epsilon is a float32 number, which is not exact enough for float64")


def _ones(shape: object, dtype: DType) -> np.ndarray:
    if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
        refuse("the normalised axes have symbolic sizes and there is no weight")
    return np.ones(shape, dtype.numpy)
