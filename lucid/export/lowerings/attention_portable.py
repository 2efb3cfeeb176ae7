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

from lucid._tensor import Tensor
from lucid.dims import product, same
from lucid.export.attention_call import Call
from lucid.export.builder import Builder
from lucid.export.rows import Because, Lowering, lowers, refuse
from lucid.graph import Node
from lucid.ops import attention, concat, matmul, permute, reshape, softmax, squeeze, take, unsqueeze, where
from lucid.ops.attention import default_scale
from lucid.ops.creation import size_value
from lucid.types import float32, float64


@lowers(attention, name="expanded for any runtime", form="expanded", targets=("portable",))
def portable(build: Builder, node: Node) -> Because:
    call = Call.of(node)
    keys = call.past + call.new_keys
    fusible = not (call.masked or call.is_causal or call.softcap) and not isinstance(keys, int)
    may_lack_keys = not same(call.queries, keys) and not (isinstance(keys, int) and keys > 0)
    if call.dropout_p or not (fusible or may_lack_keys):
        refuse("the plain form is right in every runtime")
    if fusible and call.dtype != float64:
        results = _apart(call)
    else:
        given = [None if value is None else Tensor.from_value(value) for value in node.inputs]
        results = list(attention.expand(given, node.attributes))
    if may_lack_keys:
        # The zero has an axis: OpenVINO does not compile where it is one constant with the scalar zero of hidden
        # weights.
        results[0] = where(size_value(size=keys) > 0, results[0], np.zeros(1, call.dtype.numpy))
    values = [tensor.to_value() for tensor in results]
    Lowering(build).lower(values)
    notes = [_FUSED] * fusible + [_NO_KEYS] * may_lack_keys
    return Because([build.name_of(value) for value in values], "; ".join(notes))


_FUSED = "OpenVINO fuses the plain form, wrongly once its first call had a single key"
_NO_KEYS = "OpenVINO gives no zeros where there are no keys"


def _apart(call: Call) -> list[Tensor]:
    """The results of the node: output, present keys and values, weights."""
    query = _heads(Tensor.from_value(call.query), call.heads)
    key = _heads(Tensor.from_value(call.key), call.kv_heads)
    value = _heads(Tensor.from_value(call.value), call.kv_heads)
    results: list[Tensor] = []
    if call.past_key is not None and call.past_value is not None:
        key = concat([Tensor.from_value(call.past_key), key], 2)
        value = concat([Tensor.from_value(call.past_value), value], 2)
        results = [key, value]
    if call.dtype.itemsize == 2:
        query, key, value = (x.astype(float32) for x in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    if not same(groups, 1):
        reads = np.repeat(np.arange(int(key.shape[1])), int(groups))
        key, value = take(key, reads, 1), take(value, reads, 1)
    scores = matmul(query * default_scale(query, call.scale), key.mT)
    weights = squeeze(softmax(unsqueeze(scores, 2)), 2)
    output = matmul(weights, value).astype(call.dtype)
    if call.heads is not None:
        output = permute(output, (0, 2, 1, 3))
        output = reshape(output, (*output.shape[:2], product(output.shape[2:])))
    return [output, *results, *([weights.astype(call.dtype)] if call.need_weights else [])]


def _heads(x: Tensor, heads: int | None) -> Tensor:
    """(N, L, H*d) to (N, H, L, d); what has four axes stays."""
    if heads is None:
        return x
    n, length, width = x.shape
    return permute(reshape(x, (n, length, heads, width // heads)), (0, 2, 1, 3))
