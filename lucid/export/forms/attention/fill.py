"""The number that hides keys on onnxruntime's CPU provider: low enough to vanish, high enough for a fast exponential.

`Attention` hides keys with the lowest number, for which the exponential is slow: scores more than 87 below the largest
give denormal numbers or zeros, which take ten times as long as ordinary ones.
"""

from __future__ import annotations

import math

import numpy as np

from lucid.core.graph.types import TensorType, float32
from lucid.export.builder import Builder, computed
from lucid.export.forms.attention.call import Call
from lucid.ops import exp, logical_not, reshape, sqrt, unsqueeze, where
from lucid.ops.attention.masks import SeenKeys, queries_by_key_mask
from lucid.ops.tensor.tensor import Tensor

# The score of hidden keys is lowered by FILL, or by the lowest number, which is exact and slow. No score, capped or
# not, exceeds b = |q| |k| scale in size (Cauchy-Schwarz), so with FILL a hidden key weighs at most exp(2 b + FILL) of
# the largest visible one, and all of them together change a result by at most that times the sum of all |v|. FILL is
# used if this is below LEAK times the smallest of all rows' largest values: for values of similar size and heads 64
# wide, up to about b = 18.
FILL = -70.0
LEAK = 2.0**-26
LOST = 2.0**-50  # more than underflow can take from the norm of a row


def fill_value(build: Builder, call: Call) -> Tensor:
    """The number added to the scores of hidden keys, chosen by the bound on how much they change a result.

    If something overflows or a value is NaN, the comparison is false and the lowest number is used, which is exact.
    """
    query, key, value, options = call.query, call.key, call.value, call.options
    if options.head_counts is not None:
        query, key, value = (
            reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))
            for x, heads in zip((query, key, value), options.head_counts, strict=True)
        )
    query_norm, key_norm = _norm(build, query), _norm(build, key)
    if options.scale is not None:  # the default scale is below 1, so there an underflow does not matter
        query_norm, key_norm = query_norm + LOST, key_norm + LOST
    twice = min(max(2 * options.scale_of(call.width), float(np.finfo(np.float32).tiny)), float32.largest)
    # The reductions that are fastest on a CPU: the sum of all |v|, and each row's largest value (not its |v|).
    total, smallest = _reduced(build, value, "ReduceL1"), _reduced(build, value, "ReduceMax", "ReduceMin")
    leaked, allowed = exp(query_norm * key_norm * twice) * total, smallest * (LEAK * math.exp(-FILL))
    return where(leaked < allowed, FILL, float32.lowest)


def _norm(build: Builder, x: Tensor) -> Tensor:
    """The largest norm of the rows: by a sum of squares, because ReduceL2 takes twice the time of both ops."""
    squares = computed(build, build.op("Mul", x, x), x.spec)
    return sqrt(_reduced(build, squares, "ReduceSum", "ReduceMax"))


def _reduced(build: Builder, x: Tensor, *ops: str) -> Tensor:
    """A tensor reduced to one number, by one op, or by two if rows are reduced first. Nothing is copied."""
    name = build.name_of(x)
    for op in ops[:-1]:
        name = build.op(op, name, np.array([-1]), keepdims=0)
    return computed(build, build.op(ops[-1], name, keepdims=0), TensorType(float32, ()))


def filled_mask(visible: Tensor, fill: Tensor | float) -> Tensor:
    return logical_not(visible).astype(float32) * fill


def sees_a_key(build: Builder, call: Call) -> Tensor | None:
    """1 for queries that see a key and 0 for others, (N, 1, L or 1, 1); None if all do.

    It is multiplied with the output, so NaN and infinity stay.
    """
    if call.mask is None and call.key_mask is None:
        return None
    if call.mask is None:
        return queries_by_key_mask(call).astype(float32)
    seen = SeenKeys.of(call)
    joint = seen.joint
    if joint is None or seen.every:
        return None
    while joint.ndim < 4:
        joint = unsqueeze(joint, 0)
    if not all(isinstance(size, int) for size in joint.shape):  # onnxruntime's minimum of nothing keeps an axis of 0
        return joint.any(-1, keepdims=True).astype(float32)
    # A minimum of float32 takes a fifth of the time of `any`, and the numbers are there already.
    hidden = logical_not(joint).astype(float32)
    least = build.op("ReduceMin", hidden, np.array([-1]), keepdims=1)
    return 1 - computed(build, least, hidden.spec.with_shape((*hidden.shape[:-1], 1)))
