"""Attention for runtimes other than onnxruntime: the body, but for two places where OpenVINO would compute it wrongly.

It fuses MatMul, Softmax, MatMul on a CPU. Where the number of keys is open and the first call after loading brings a
single key, the fused kernel is wrong for every later call with 16 keys or more: measured with 2025.0, 2025.4, 2026.0,
2026.3 and 2026.4, in float32 and bfloat16. Masks stand between the two products and keep them apart; without any, an
axis of size 1 around the softmax does. It moves no data.

And its product of no keys with no values is whatever the memory held. Where there may be queries without keys, the
output is zero by a Where. docs/portable.md has the measurements.
"""

from __future__ import annotations

import numpy as np

from lucid.dims import same
from lucid.export.attention_node import Call
from lucid.export.builder import Builder
from lucid.export.form import Taken, form, refuse
from lucid.known_runtimes import FUSED_SOFTMAX, PRODUCT_OF_NOTHING
from lucid.ops import attention, matmul, softmax, where
from lucid.ops.creation import size_op
from lucid.ops.op import Op
from lucid.ops.tensor import Tensor
from lucid.types import float64
from lucid.values import Node, Result


@form(softmax, takes="axis", name="apart from the products", mends=FUSED_SOFTMAX)
def softmax_apart(build: Builder, node: Node) -> str:
    (scores,) = node.inputs
    if not (isinstance(scores, Result) and scores.node.op is matmul):
        refuse("it is not of a product, so nothing is fused")
    rank = scores.type.rank
    over_keys = rank >= 2 and node.attributes["axis"] % rank == rank - 1
    if not over_keys or isinstance(scores.type.shape[-1], int) or scores.type.dtype == float64:
        refuse("OpenVINO fuses nothing here, or rightly")
    around = np.array([rank - 2])
    weights = build.op("Softmax", build.op("Unsqueeze", scores, around), axis=-1)
    return build.op("Squeeze", weights, around)


@form(attention, takes="*", name="expanded, zeros without keys", kind="expanded", mends=PRODUCT_OF_NOTHING)
def zeros_without_keys(build: Builder, node: Node) -> Taken:
    call = Call.of(node)
    if same(call.queries, call.keys) or (isinstance(call.keys, int) and call.keys > 0):
        refuse("where there are queries there are keys")
    given = [None if value is None else Tensor.from_value(value) for value in node.inputs]
    assert isinstance(node.op, Op)
    results = node.op.expand(given, node.attributes)
    # The zero has an axis: OpenVINO does not compile where it is one constant with the scalar zero of hidden weights.
    output = where(size_op(size=call.keys) > 0, results[0], np.zeros(1, call.dtype.numpy))
    return Taken([output, *results[1:]], "OpenVINO gives no zeros where there are no keys")
