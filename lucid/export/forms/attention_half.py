"""Attention in half precision on a CPU: in float32 between casts, whatever form serves there.

onnxruntime's CPU kernel for float16 rounds the raw products of queries and keys to float16, before they are scaled:
beyond 65504 they are infinite and the output NaN, and below, inputs 20 times unit normal are off by 0.4. It is no
faster, either. For bfloat16 there is no kernel at all.
"""

from __future__ import annotations

from lucid.export.builder import Builder
from lucid.export.form import Taken, form, refuse
from lucid.graph import Node
from lucid.known_runtimes import ATTENTION_OF_HALVES
from lucid.ops import attention
from lucid.ops.op import Op
from lucid.ops.tensor import Tensor
from lucid.types import float32


@form(attention, takes="*", name="float32 between casts", mends=ATTENTION_OF_HALVES)
def in_float32(build: Builder, node: Node) -> Taken:
    dtype = node.types[0].dtype
    if dtype.itemsize != 2:
        refuse(f"it serves half precision, not {dtype}")
    query, key, value, mask, key_mask, past_key, past_value = (
        None if given is None else Tensor.from_value(given) for given in node.inputs
    )
    assert query is not None and key is not None and value is not None
    assert isinstance(node.op, Op)
    results = node.op(
        query.astype(float32),
        key.astype(float32),
        value.astype(float32),
        mask,
        key_mask,
        None if past_key is None else past_key.astype(float32),
        None if past_value is None else past_value.astype(float32),
        **node.attributes,
    )
    narrow = [x.astype(dtype) for x in (results if isinstance(results, tuple) else (results,))]
    return Taken(narrow, build.target.wrong(ATTENTION_OF_HALVES), attention)
