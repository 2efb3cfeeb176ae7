"""Attention for runtimes other than onnxruntime: the body, except for two faults of OpenVINO.

It fuses MatMul, Softmax, MatMul on a CPU. If the number of keys is symbolic and the first call after loading has a
single key, the fused kernel is wrong in every later call with 16 keys or more: measured with 2025.0, 2025.4, 2026.0,
2026.3 and 2026.4, in float32 and bfloat16. A mask between the two products prevents the fusion; without a mask, an axis
of size 1 added around the softmax does. It moves no data.

And its product of zero keys with zero values is uninitialised memory. If there may be queries without keys, a Where
makes the output zero. docs/portable.md has the measurements.
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
        refuse("its input is not a product, so nothing is fused")
    rank = scores.type.rank
    over_keys = rank >= 2 and node.attributes["axis"] % rank == rank - 1
    if not over_keys or isinstance(scores.type.shape[-1], int) or scores.type.dtype == float64:
        refuse("OpenVINO does not fuse this, or does so correctly")
    around = np.array([rank - 2])
    weights = build.op("Softmax", build.op("Unsqueeze", scores, around), axis=-1)
    return build.op("Squeeze", weights, around)


@form(attention, takes="*", name="expanded, zeros without keys", kind="expanded", mends=PRODUCT_OF_NOTHING)
def zeros_without_keys(build: Builder, node: Node) -> Taken:
    call = Call.of(node)
    if same(call.queries, call.keys) or (isinstance(call.keys, int) and call.keys > 0):
        refuse("every call with queries has keys")
    given = [None if value is None else Tensor.from_value(value) for value in node.inputs]
    assert isinstance(node.op, Op)
    results = node.op.expand(given, node.attributes)
    # The zero has an axis because OpenVINO does not compile a model in which it is the same constant as that of the
    # hidden weights, a scalar.
    output = where(size_op(size=call.keys) > 0, results[0], np.zeros(1, call.dtype.numpy))
    return Taken([output, *results[1:]], "OpenVINO gives no zeros where there are no keys")
