"""Attention in half precision on a CPU: computed in float32 between casts, by any form for float32.

onnxruntime's CPU kernel for float16 rounds the raw products of queries and keys to float16, before they are scaled:
beyond 65504 they are infinite and the output NaN, and below, inputs 20 times unit normal are off by 0.4. Nor is it
faster. For bfloat16 there is no kernel at all.
"""

from __future__ import annotations

from lucid.core.graph.types import float32
from lucid.core.graph.values import Node
from lucid.core.targets.runtimes import ATTENTION_OF_HALVES
from lucid.export.builder import Builder
from lucid.export.form import Taken, form
from lucid.ops import attention
from lucid.ops.op import Op
from lucid.ops.tensor.tensor import Tensor

WIDENED = ("query", "key", "value", "past_key", "past_value")  # not masks: what they exclude depends on their type


@form(attention, takes="*", name="float32 between casts", mends=ATTENTION_OF_HALVES, dtypes=("float16", "bfloat16"))
def in_float32(build: Builder, node: Node) -> Taken:
    dtype = node.types[0].dtype
    assert isinstance(node.op, Op)
    given = [None if value is None else Tensor.from_value(value) for value in node.inputs]
    wide = [
        x.astype(float32) if x is not None and name in WIDENED else x
        for name, x in zip(node.op.arguments, given, strict=True)
    ]
    results = node.op(*wide, **node.attributes)
    narrow = [x.astype(dtype) for x in (results if isinstance(results, tuple) else (results,))]
    return Taken(narrow, build.target.wrong(ATTENTION_OF_HALVES), attention)
