"""Attention as its products, for onnxruntime's CPU provider: what one `Attention` node hides, as ops of their own.

`FusedMatMul` transposes keys and scales as it reads; `Softmax` and `MatMul` follow. That saves the node's copies where
heads are already split and nothing is masked, and weights can be returned as they are. The `Tanh` of a softcap computes
eight numbers or more at a time, the node one. All threads share a product, while the node computes a head on one of
them. The query heads that read one key head are rows of one product there, so keys are not repeated.
The page "Benchmarks" has the measurements.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lucid.core.graph.types import float32
from lucid.core.sizes.dims import sym_min
from lucid.core.targets.runtimes import OWN
from lucid.export.builder import Builder, Operand, Operands, computed
from lucid.export.forms.attention.call import Call
from lucid.export.forms.attention.nodes import emit_node
from lucid.export.forms.attention.plan import CAPPED, NODE, THREE_PRODUCTS, Plan
from lucid.ops import concat, expand, reshape, squeeze, tanh, unsqueeze
from lucid.ops.attention.masks import SeenKeys, softmax_with
from lucid.ops.attention.op import joined_heads, sinks_of, split_heads
from lucid.ops.tensor.tensor import Tensor


def three_products(build: Builder, call: Call) -> Operands:
    """FusedMatMul, Softmax, MatMul: the output and, where they are asked for, the weights of attention without masks,
    of as many heads of keys as of queries."""
    scale = call.options.scale_of(call.width)
    scores = build.op("FusedMatMul", call.query, call.key, domain=OWN, alpha=scale, transB=1)
    weights = build.op("Softmax", scores, axis=-1)
    output = build.op("MatMul", weights, call.value)
    if not call.options.need_weights:
        return output
    if call.options.heads is not None:  # weights have an axis of heads in every layout
        weights = build.op("Unsqueeze", weights, np.array([1]))
    return output, weights


def capped(build: Builder, call: Call, rows: tuple[int, ...] = ()) -> tuple[Tensor, ...]:
    """The results of a call with a softcap and all its masks: as products, of so many queries at a time if nothing is
    masked, or by the body."""
    if not call.fits_products or call.options.holds_weights:
        return call.by_body()
    if rows:
        queries = call.query.split(rows, -2)
        return (concat([in_products(build, replace(call, query=query), None) for query in queries], -2),)
    return (in_products(build, call, *hidden_of(call)),)


def at_once(build: Builder, call: Call, form: str) -> Operand:
    """All scores at once, as a plan's `short` says."""
    if form == CAPPED:
        return build.name_of(capped(build, call)[0])
    if form == THREE_PRODUCTS:
        return build.names_of(three_products(build, call))[0]
    assert form == NODE, form
    return emit_node(build, call)[0]


def short_call(build: Builder, call: Call, plan: Plan) -> Call:
    """The call of the plain node in the branch for short texts, with a mask of keys for as many queries as the node
    computes at most.

    So all layers share it, and for long texts it is small.
    """
    if call.key_mask is None or call.mask is not None or plan.short != NODE:
        return call
    assert plan.limit is not None
    shape = (call.batch, 1, sym_min(call.queries, plan.limit), call.keys)
    rows = build.name_of(expand(unsqueeze(call.key_mask, (1, 2)), shape))
    # The node runs only where these are all queries.
    mask = computed(build, rows, call.key_mask.spec.with_shape((call.batch, 1, call.queries, call.keys)))
    return replace(call, mask=mask, key_mask=None)


def biased(build: Builder, call: Call, bias: Tensor) -> Tensor:
    """Attention by its best form, with `bias` added to the scores in the place of the call's mask."""
    if call.options.softcap and call.fits_products:
        return in_products(build, call, bias)
    return replace(call, mask=bias).by_best_form()


def with_sinks(build: Builder, call: Call) -> tuple[Tensor, ...]:
    """The results of a call with sinks: as products, over the cache and the new keys if there is one."""
    hidden = hidden_of(call)
    if call.past_key is None or call.past_value is None:
        return (in_products(build, call, *hidden),)
    whole = split(call)
    present = concat([call.past_key, whole.key], 2), concat([call.past_value, whole.value], 2)
    whole = replace(whole, key=present[0], value=present[1], past_key=None, past_value=None)
    return as_given(call, in_products(build, whole, *hidden)), *present


def in_products(build: Builder, call: Call, bias: Tensor | None, seeing: Tensor | None = None) -> Tensor:
    """The output of attention, in the call's layout.

    `bias` is what all masks add to the scores, `seeing` 0 for queries that see no key and 1 for others; both broadcast
    to (N, H, L, S).
    """
    whole = split(call)
    query, key, value, options = whole.query, whole.key, whole.value, whole.options
    n, heads, length, width = query.shape
    kv_heads, keys = key.shape[1:3]
    rows = (n, kv_heads, heads // kv_heads * length)  # the queries of a group are rows of one product
    product = build.op("FusedMatMul", reshape(query, (*rows, width)), key, domain=OWN, alpha=call.factor, transB=1)
    scores = computed(build, product, query.spec.with_shape((*rows, keys)))
    if options.softcap:
        scores = tanh(scores) * options.softcap
    sinks = sinks_of(call, heads)
    if bias is not None or sinks is not None:
        scores = reshape(scores, (n, heads, length, keys))
    if bias is not None:
        scores = scores + bias
    weights = softmax_with(sinks, scores)
    output = reshape(reshape(weights, (*rows, keys)) @ value, (n, heads, length, value.shape[3]))
    return as_given(call, output if seeing is None else output * seeing)


def split(call: Call) -> Call:
    """A call with an axis of heads, (N, H, L, d)."""
    arrays, counts = (call.query, call.key, call.value), call.options.head_counts
    if counts is None:
        return call
    if counts == (1, 1, 1):
        # `split_heads` permutes one head as well: OpenVINO fails where several query heads read one that is unsqueezed.
        query, key, value = (unsqueeze(x, 1) for x in arrays)
    else:
        query, key, value = map(split_heads, ("query", "key", "value"), arrays, counts)
    options = replace(call.options, heads=None, kv_heads=None)
    return replace(call, query=query, key=key, value=value, options=options)


def as_given(call: Call, output: Tensor) -> Tensor:
    """The output of `split(call)` in the layout of the call."""
    if call.options.heads is None:
        return output
    return squeeze(output, 1) if call.options.heads == 1 else joined_heads(output)


def hidden_of(call: Call) -> tuple[Tensor | None, Tensor | None]:
    """The sum of all masks of a call, and which queries see a key, for `in_products`."""
    seen = SeenKeys.of(call)
    return None if seen.joint is None else seen.bias(float32), seen.queries()
