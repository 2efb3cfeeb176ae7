"""Native forms of batch and group normalisation.

The order of the forms of group normalisation is measured: onnxruntime has no kernel for GroupNormalization on any
provider and inlines its definition, 29 nodes that took 1.6 to 4 times as long as Lucid's body and 2 to 9 times as long
as InstanceNormalization between two reshapes ((2, 64, 1000) to (2, 320, 64, 64), 32 groups, onnxruntime 1.31).
"""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import Array, float32
from lucid.core.graph.values import Node, Value, operand
from lucid.core.sizes.dims import Dim, product, same
from lucid.core.targets.runtimes import GROUP_NORMALIZATION
from lucid.export.builder import Builder
from lucid.export.form import form, refuse, refuse_wrong
from lucid.export.forms.neural import refuse_float64
from lucid.export.run_time_sizes import reshaped
from lucid.ops import batch_norm, group_norm
from lucid.ops.neural import per_channel
from lucid.ops.tensor.tensor import Tensor

_FEW = 8  # numbers of a group


@form(batch_norm, takes="weight bias eps", name="ai.onnx BatchNormalization", kernel="BatchNormalization")
def batch_normalization(build: Builder, node: Node) -> str:
    x, (mean, variance, weight, bias) = operand(node), node.inputs[1:]
    _refuse_types(node)
    scale = weight if weight is not None else _filled(x, 1)
    shift = bias if bias is not None else _filled(x, 0)
    return build.op("BatchNormalization", x, scale, shift, mean, variance, epsilon=float(node.attributes["eps"]))


@form(
    group_norm, takes="weight bias groups eps", name="ai.onnx GroupNormalization", opset=21, kernel="GroupNormalization"
)
def group_normalization(build: Builder, node: Node) -> str:
    x, (weight, bias) = operand(node), node.inputs[1:]
    refuse_wrong(build.target, GROUP_NORMALIZATION)
    _refuse_types(node)
    scale = weight if weight is not None else _filled(x, 1)
    shift = bias if bias is not None else _filled(x, 0)
    groups, eps = node.attributes["groups"], float(node.attributes["eps"])
    return build.op("GroupNormalization", x, scale, shift, num_groups=groups, epsilon=eps)


@form(group_norm, takes="weight bias groups eps", name="ai.onnx InstanceNormalization")
def instance_normalization(build: Builder, node: Node) -> str:
    """Each group is one channel. Weight and bias are applied after the node, unless a group is one channel anyway."""
    x, (weight, bias) = operand(node), node.inputs[1:]
    if x.type.dtype != float32:
        refuse(f"the body computes {x.type.dtype} more exactly than onnxruntime's kernel")
    groups, shape = node.attributes["groups"], x.type.shape
    if len(shape) == 2:
        refuse("a group may be a few numbers close to each other, for which onnxruntime's kernel loses digits")
    width = product(shape[1:]) // groups
    if isinstance(width, int) and width < _FEW:
        refuse("a group is a few numbers, which may be close to each other: onnxruntime's kernel loses digits then")
    one, zero = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    if same(shape[1], groups) and all(v is None or v.type.dtype == float32 for v in (weight, bias)):
        scale, shift = (one if weight is None else weight), (zero if bias is None else bias)
        return build.op("InstanceNormalization", x, scale, shift, epsilon=float(node.attributes["eps"]))
    # If the batch may be empty, Reshape cannot infer a -1 next to it: with an axis of 1 it copies all symbolic sizes.
    apart = isinstance(width, Dim) and (isinstance(shape[0], Dim) or sum(isinstance(n, Dim) for n in shape) > 1)
    whole = (shape[0], 1, *shape[1:]) if apart else shape
    inner = (shape[1] // groups, *shape[2:]) if apart else (width,)
    split = build.op("Unsqueeze", x, np.asarray([1])) if apart else x
    rows = reshaped(build, split, whole, (shape[0], groups, *inner))
    y = build.op("InstanceNormalization", rows, one, zero, epsilon=float(node.attributes["eps"]))
    y = reshaped(build, y, (shape[0], groups, *inner), whole)
    y = build.op("Squeeze", y, np.asarray([1])) if apart else y
    for op_type, vector in (("Mul", weight), ("Add", bias)):
        if vector is not None:
            y = build.op(op_type, y, per_channel(Tensor.from_value(vector), len(shape)))
    return y


def _refuse_types(node: Node) -> None:
    kinds = {value.type.dtype for value in node.inputs if value is not None}
    if len(kinds) > 1:
        refuse("a weight, bias or statistic has another element type than the input")
    refuse_float64(node)


def _filled(x: Value, number: int) -> Array:
    channels = x.type.shape[1]
    if not isinstance(channels, int):
        refuse("the number of channels is symbolic and there is no weight or bias")
    return np.full(channels, number, x.type.dtype.numpy)


# Best first, of each op.
FORMS = (batch_normalization, group_normalization, instance_normalization)
