"""Attention for runtimes other than onnxruntime: the body, except for two faults of OpenVINO.

It fuses MatMul, Softmax, MatMul on a CPU. If the number of keys is symbolic and the first call after loading has a
single key, the fused kernel is wrong in every later call with 16 keys or more: measured with 2025.0, 2025.4, 2026.0,
2026.3 and 2026.4, in float32 and bfloat16. A mask between the two products prevents the fusion; without a mask, an axis
of size 1 added around the softmax does. It moves no data.

And its product of zero keys with zero values is uninitialised memory. If there may be queries without keys, a Where
makes the output zero. The page "Other runtimes" has the measurements.
"""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import float64
from lucid.core.graph.values import Node, Result
from lucid.core.sizes.dims import same
from lucid.core.targets.runtimes import FUSED_SOFTMAX, HEADS_LIKE_POSITIONS, PRODUCT_OF_NOTHING
from lucid.export.builder import Builder
from lucid.export.form import Taken, form, refuse
from lucid.export.forms.attention.call import Call
from lucid.ops import attention, matmul, softmax, where
from lucid.ops.creation import full_op, size_op


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


@form(softmax, takes="axis", name="between transposes", mends=HEADS_LIKE_POSITIONS)
def softmax_between_transposes(build: Builder, node: Node) -> str:
    (scores,) = node.inputs
    assert scores is not None
    shape, rank = scores.type.shape, scores.type.rank
    fused = scores.type.dtype == float64 and rank > 2 and all(isinstance(size, int) for size in shape[-3:])
    if not fused or node.attributes["axis"] % rank != rank - 1 or shape[-3] != shape[-2]:
        refuse("OpenVINO does not fuse this, or does so correctly")
    around = [*range(rank - 2), rank - 1, rank - 2]
    weights = build.op("Softmax", build.op("Transpose", scores, perm=around), axis=rank - 2)
    return build.op("Transpose", weights, perm=around)


@form(attention, takes="*", name="expanded, zeros without keys", kind="expanded", mends=PRODUCT_OF_NOTHING)
def zeros_without_keys(build: Builder, node: Node) -> Taken:
    call = Call.of(node)
    if same(call.queries, call.keys) or (isinstance(call.keys, int) and call.keys > 0):
        refuse("every call with queries has keys")
    results = call.by_body()
    # An axis is added around the choice because OpenVINO fuses it with masked attention otherwise, of which it computes
    # nothing where there are no keys. The zero has an axis because OpenVINO does not compile a model in which it is the
    # same constant as that of the hidden weights, a scalar.
    if isinstance(call.keys, int):
        output = full_op(shape=results[0].shape, value=0, dtype=call.dtype)
        return Taken([output, *results[1:]], "there are no keys")
    zero = np.zeros(1, call.dtype.numpy)
    output = where(size_op(size=call.keys) > 0, results[0].unsqueeze(0), zero).squeeze(0)
    return Taken([output, *results[1:]], "OpenVINO gives no zeros where there are no keys")
