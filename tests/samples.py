"""One line per op: example inputs as functions of symbolic sizes, and an independent NumPy reference in float64.

`test_ops.py` compares each op with its sample: kernel, type rule, body and every exported form. The references are
written from the definition of each op, with loops where these are clearest, and share no code with the kernels.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucid import ops
from lucid.core.graph import loop_bodies
from lucid.core.graph.types import (
    Array,
    DType,
    TensorType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)
from lucid.core.graph.values import Body
from lucid.core.sizes.dims import Dim, Shape, dim, evaluate
from lucid.ops import creation, elementwise, indexing, loops, reduction, scattering, shaping, sorting
from lucid.ops.indexing import Cut
from lucid.ops.op import Op
from lucid.tracing.trace import trace
from tests.op_references import (
    adaptive_average_pool,
    attention,
    average_pool,
    batch_norm,
    bits,
    buffered_attention,
    conv,
    conv_transpose,
    cut,
    erf,
    first_maximum,
    gated_experts,
    gelu,
    group_norm,
    grouped_mm,
    int8_embedding,
    int8_linear_dynamic,
    int8_linear_rows,
    int8_linear_static,
    layer_norm,
    max_pool,
    mixture_of_experts,
    quantized_embedding,
    quantized_linear,
    reduced,
    resized,
    rms_norm,
    rotary,
    scanned,
    scattered,
    sigmoid,
    softmax,
    split_at,
    take_along,
    to_type,
    top,
    unpacked,
    write_at,
)

FLOATS = (float32, float64, float16, bfloat16)
INTS = (int8, uint8, int32, int64)
SIGNED = (int8, int32, int64)
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, bool_)
BOOL = (bool_,)
N, L, S = dim("N"), dim("L"), dim("S")

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Argument:
    """An input: its shape, its element type (None: that of the run) and the way its values are drawn."""

    shape: Shape
    dtype: DType | None
    draw: Draw | None = None

    def type(self, dtype: DType) -> TensorType:
        return TensorType(self.dtype or dtype, self.shape)

    def array(self, dtype: DType, sizes: Mapping[str, int], generator: np.random.Generator) -> Array:
        kind, shape = self.dtype or dtype, tuple(evaluate(size, sizes) for size in self.shape)
        if self.draw is not None:
            return np.asarray(self.draw(generator, shape)).astype(kind.numpy)
        if kind.kind == "float":
            return generator.standard_normal(shape).astype(kind.numpy)
        low, high = {"bool": (0, 2), "uint8": (0, 6)}.get(kind.name, (-5, 6))
        return generator.integers(low, high, shape).astype(kind.numpy)


def x(*shape: Any) -> Argument:
    """Normal floats, small integers, or booleans: whatever the run's element type is."""
    return Argument(shape, None)


def positive(*shape: Any) -> Argument:
    return Argument(shape, None, lambda g, s: g.integers(1, 4, s) + g.integers(0, 4, s) / 4)


def whole(*shape: Any) -> Argument:
    """Never zero: a divisor."""
    return Argument(shape, None, lambda g, s: g.integers(1, 5, s) * g.choice([-1, 1], s))


def natural(*shape: Any) -> Argument:
    """1 to 4, also for unsigned types."""
    return Argument(shape, None, lambda g, s: g.integers(1, 5, s))


def halves(*shape: Any) -> Argument:
    """Multiples of one half, where rounding has ties."""
    return Argument(shape, None, lambda g, s: g.integers(-9, 10, s) / 2)


def with_nan(*shape: Any) -> Argument:
    return Argument(shape, None, lambda g, s: np.where(g.random(s) < 0.4, np.nan, g.standard_normal(s)))


def flag(*shape: Any) -> Argument:
    return Argument(shape, bool_)


def codes(*shape: Any) -> Argument:
    """Bytes that hold codes."""
    return Argument(shape, uint8, lambda g, s: g.integers(0, 256, s))


def fraction(*shape: Any) -> Argument:
    """Between -1 and 1."""
    return Argument(shape, None, lambda g, s: g.integers(-15, 16, s) / 16)


def large(*shape: Any) -> Argument:
    """Mostly beyond -3 to 3."""
    return Argument(shape, None, lambda g, s: 4 * g.standard_normal(s))


def small(*shape: Any) -> Argument:
    """Scales of codes: their products are about as large as other inputs."""
    return Argument(shape, None, lambda g, s: g.standard_normal(s) / 100)


def signed(*shape: Any) -> Argument:
    """Codes of weights in signed bytes."""
    return Argument(shape, int8, lambda g, s: g.integers(-127, 128, s))


def scale(*shape: Any) -> Argument:
    """Of codes up to 127; above 0."""
    return Argument(shape, None, lambda g, s: (0.5 + g.random(s)) / 64)


def index(limit: int, *shape: Any, dtype: DType = int64, low: int = 0) -> Argument:
    return Argument(shape, dtype, lambda g, s: g.integers(low, limit, s))


def distinct(limit: int, *shape: Any) -> Argument:
    """Indices that differ along the first axis."""
    return Argument(shape, int64, lambda g, s: np.argsort(g.random((limit, *s[1:])), axis=0)[: s[0]])


def mask_of(*shape: Any) -> Argument:
    """An additive mask: mostly 0, some numbers, some -inf."""
    return Argument(shape, None, lambda g, s: g.choice([0.0, 0.0, 0.5, -1.0, -np.inf], s))


def angle(function: Callable[[Array], Array], *shape: Any) -> Argument:
    return Argument(
        shape, None, lambda g, s: function(np.linspace(0, 3, max(1, math.prod(s)))[: math.prod(s)].reshape(s))
    )


@dataclass(frozen=True)
class Sample:
    """An op with inputs and attributes, and the result it should give.

    `carriers` are inputs that the op does not take; they only bring sizes into the graph.
    """

    op: Op[..., Any]
    inputs: tuple[Argument | None, ...]
    reference: Callable[..., Any]
    dtypes: tuple[DType, ...]
    attributes: Mapping[str, Any]
    label: str = ""
    carriers: tuple[Argument, ...] = ()
    exported: bool = True
    empty: bool = True
    sizes: tuple[Mapping[str, int], ...] = field(
        default=({"N": 2, "L": 3, "S": 4}, {"N": 1, "L": 1, "S": 1}, {"N": 3, "L": 4, "S": 2})
    )

    @property
    def name(self) -> str:
        return f"{self.op.name}{'-' if self.label else ''}{self.label}"


def sample(
    op: Op[..., Any],
    *inputs: Argument | None,
    ref: Callable[..., Any],
    dtypes: tuple[DType, ...] = FLOATS,
    label: str = "",
    carriers: tuple[Argument, ...] = (),
    exported: bool = True,
    empty: bool = True,
    **attributes: Any,
) -> Sample:
    return Sample(op, inputs, ref, dtypes, {**op.defaults, **attributes}, label, carriers, exported, empty)


def bound(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with numbers for its symbolic sizes."""
    if isinstance(value, (Dim, Body)):
        return loop_bodies.bound(value, sizes)
    if isinstance(value, Cut):
        return Cut(*(bound(item, sizes) for item in value))
    return tuple(bound(item, sizes) for item in value) if isinstance(value, tuple) else value


def body(step: Callable[..., Any], dtype: DType, *shapes: Shape) -> Body:
    """The body of a loop, traced on its own."""
    graph = trace(step, *(TensorType(dtype, shape) for shape in shapes))
    return Body(graph.inputs, graph.outputs)


# The samples ------------------------------------------------------------------------------------------------------

_B = (x(N, 4, L, 4), x(N, 2, L, 4), x(N, 2, L, 6), x(N, 2, L + S, 4), x(N, 2, L + S, 6), index(2, N))
_BP = (x(N, L, 16), x(N, L, 8), x(N, L, 12), x(N, 2, L + S, 4), x(N, 2, L + S, 6), index(2, N))
_A = (x(N, 4, L, 8), x(N, 4, S, 8), x(N, 4, S, 6))  # queries, keys, values of 4 heads
_SELF = (x(N, 4, L, 8), x(N, 4, L, 8), x(N, 4, L, 6))
_P = (x(N, L, 32), x(N, S, 16), x(N, S, 8))  # packed: 4 query heads of 8, 2 key heads of 8, 2 value heads of 4
_C = {"strides": (2, 1), "pads": (1, 0, 0, 1), "dilations": (1, 2), "group": 2}

SAMPLES: list[Sample] = [
    # Elementwise
    sample(ops.exp, x(N, L), ref=np.exp),
    sample(ops.log, positive(N, L), ref=np.log),
    sample(ops.log2, positive(N, L), ref=np.log2),
    sample(elementwise.log1p, positive(N, L), ref=np.log1p),
    sample(elementwise.expm1, x(N, L), ref=np.expm1),
    sample(ops.clip, x(N, L), x(L), x(N, 1), ref=lambda v, low, high: np.minimum(np.maximum(v, low), high)),
    sample(ops.clip, x(N, L), None, x(N, 1), ref=lambda v, low, high: np.minimum(v, high), label="only from above"),
    sample(ops.sqrt, positive(N, L), ref=np.sqrt),
    sample(ops.reciprocal, positive(N, L), ref=lambda v: 1 / v),
    sample(ops.sin, x(N, L), ref=np.sin),
    sample(ops.cos, x(N, L), ref=np.cos),
    sample(ops.tan, x(N, L), ref=np.tan),
    sample(ops.asin, fraction(N, L), ref=np.arcsin),
    sample(ops.acos, fraction(N, L), ref=np.arccos),
    sample(ops.atan, large(N, L), ref=np.arctan),
    sample(ops.atan2, x(N, L), x(L), ref=np.arctan2),
    sample(ops.hypot, x(N, L), x(L), ref=np.hypot),
    sample(ops.sinh, x(N, L), ref=np.sinh),
    sample(ops.cosh, x(N, L), ref=np.cosh),
    sample(ops.asinh, large(N, L), ref=np.arcsinh),
    sample(ops.acosh, positive(N, L), ref=np.arccosh),
    sample(ops.atanh, fraction(N, L), ref=np.arctanh),
    sample(ops.tanh, x(N, L), ref=np.tanh),
    sample(ops.erf, x(N, L), ref=erf),
    sample(ops.floor, x(N, L), ref=np.floor),
    sample(ops.ceil, x(N, L), ref=np.ceil),
    sample(ops.round, halves(N, L), ref=np.rint),
    sample(ops.neg, x(N, L), ref=lambda v: -v, dtypes=NUMBERS),
    sample(ops.abs, x(N, L), ref=np.abs, dtypes=NUMBERS),
    sample(ops.sign, x(N, L), ref=np.sign, dtypes=NUMBERS),
    sample(ops.isnan, with_nan(N, L), ref=lambda v: v != v),
    sample(ops.sigmoid, x(N, L), ref=sigmoid),
    sample(ops.logical_not, flag(N, L), ref=lambda v: ~v, dtypes=BOOL),
    sample(ops.add, x(N, 1, L), x(S, L), ref=lambda a, b: a + b, dtypes=NUMBERS),
    sample(ops.sub, x(N, 1, L), x(S, L), ref=lambda a, b: a - b, dtypes=NUMBERS),
    sample(ops.mul, x(N, 1, L), x(S, L), ref=lambda a, b: a * b, dtypes=NUMBERS),
    sample(ops.pow, natural(N, 1, L), natural(S, L), ref=lambda a, b: a**b, dtypes=NUMBERS),
    sample(ops.maximum, x(N, 1, L), x(S, L), ref=lambda a, b: np.where(a > b, a, b), dtypes=NUMBERS),
    sample(ops.minimum, x(N, 1, L), x(S, L), ref=lambda a, b: np.where(a < b, a, b), dtypes=NUMBERS),
    sample(ops.equal, x(N, 1, L), x(S, L), ref=lambda a, b: a == b, dtypes=ALL),
    sample(ops.not_equal, x(N, 1, L), x(S, L), ref=lambda a, b: a != b, dtypes=ALL),
    sample(elementwise.less, x(N, 1, L), x(S, L), ref=lambda a, b: a < b, dtypes=NUMBERS),
    sample(elementwise.less_equal, x(N, 1, L), x(S, L), ref=lambda a, b: a <= b, dtypes=NUMBERS),
    sample(elementwise.greater, x(N, 1, L), x(S, L), ref=lambda a, b: a > b, dtypes=NUMBERS),
    sample(elementwise.greater_equal, x(N, 1, L), x(S, L), ref=lambda a, b: a >= b, dtypes=NUMBERS),
    sample(ops.logical_and, x(N, 1, L), x(S, L), ref=lambda a, b: a & b, dtypes=BOOL),
    sample(ops.logical_or, x(N, 1, L), x(S, L), ref=lambda a, b: a | b, dtypes=BOOL),
    sample(elementwise.logical_xor, x(N, 1, L), x(S, L), ref=lambda a, b: a ^ b, dtypes=BOOL),
    sample(ops.bitwise_not, x(N, L), ref=lambda v: -v - 1, dtypes=SIGNED),
    sample(ops.bitwise_and, x(N, 1, L), x(S, L), ref=lambda a, b: bits(operator.and_, a, b), dtypes=INTS),
    sample(ops.bitwise_or, x(N, 1, L), x(S, L), ref=lambda a, b: bits(operator.or_, a, b), dtypes=INTS),
    sample(ops.bitwise_xor, x(N, 1, L), x(S, L), ref=lambda a, b: bits(operator.xor, a, b), dtypes=INTS),
    sample(elementwise.true_div, x(N, 1, L), whole(S, L), ref=lambda a, b: a / b),
    sample(elementwise.int_floor_div, x(N, 1, L), whole(S, L), ref=lambda a, b: a // b, dtypes=(int8, int32, int64)),
    sample(elementwise.int_floor_div, x(N, 1, L), natural(S, L), ref=lambda a, b: a // b, dtypes=INTS, label="natural"),
    sample(elementwise.int_mod, x(N, 1, L), whole(S, L), ref=lambda a, b: a % b, dtypes=(int8, int32, int64)),
    sample(elementwise.int_mod, x(N, 1, L), natural(S, L), ref=lambda a, b: a % b, dtypes=INTS, label="natural"),
    sample(elementwise.fmod, x(N, 1, L), whole(S, L), ref=np.vectorize(math.fmod, otypes=[float])),
    sample(elementwise.float_mod, x(N, 1, L), whole(S, L), ref=np.vectorize(lambda a, b: a % b, otypes=[float])),
    sample(elementwise.float_floor_div, x(N, 1, L), whole(S, L), ref=np.vectorize(lambda a, b: a // b, otypes=[float])),
    sample(elementwise.float_trunc_div, x(N, 1, L), whole(S, L), ref=lambda a, b: np.trunc(a / b)),
    sample(ops.where, flag(N, 1, 1), x(S, 1), x(L), ref=lambda c, a, b: c * a + (1 - c) * b, dtypes=NUMBERS),
    sample(ops.where, flag(N, 1, 1), x(S, 1), x(L), ref=lambda c, a, b: (c & a) | (~c & b), dtypes=BOOL, label="bool"),
    *[sample(elementwise.cast, x(N, L), ref=to_type, dtypes=ALL, label=t.name, dtype=t) for t in ALL if t is not uint8],
    sample(elementwise.cast, natural(N, L), ref=to_type, dtypes=NUMBERS, label="uint8", dtype=uint8),
    sample(ops.stop_gradient, x(N, L), ref=lambda v: v, dtypes=ALL),
    # Made of sizes
    sample(
        creation.full_op,
        carriers=(x(N, L),),
        ref=lambda **a: np.full(a["shape"], a["value"]),
        dtypes=(float32,),
        shape=(N, 2 * L, 3),
        value=1.5,
        dtype=float16,
    ),
    sample(
        creation.full_op,
        carriers=(x(N, L),),
        ref=lambda **a: np.full(a["shape"], a["value"]),
        dtypes=(float32,),
        label="bfloat16",
        shape=(N, L),
        value=0.5,
        dtype=bfloat16,
    ),
    sample(
        ops.arange_op,
        carriers=(x(N, L),),
        ref=lambda start, stop: np.array(range(start, stop), np.int64),
        dtypes=(int64,),
        start=2,
        stop=N + L + 2,
    ),
    sample(creation.size_op, carriers=(x(N, L),), ref=lambda size: np.array(size), dtypes=(int64,), size=N * L // 2),
    sample(
        ops.tril,
        x(N, L, S),
        ref=lambda v, diagonal: v * (np.arange(v.shape[2]) <= np.arange(v.shape[1])[:, None] + 1),
        dtypes=NUMBERS,
        diagonal=1,
    ),
    sample(
        ops.triu,
        x(N, L, S),
        ref=lambda v, diagonal: v * (np.arange(v.shape[2]) >= np.arange(v.shape[1])[:, None] - 1),
        dtypes=NUMBERS,
        diagonal=-1,
    ),
    # Shape
    sample(
        shaping.reshape_op,
        x(N, L, 6),
        ref=lambda v, shape: np.array(v.ravel()).reshape(shape),
        dtypes=ALL,
        shape=(N, 3, L, 2),
    ),
    sample(
        shaping.reshape_op,
        x(N, L, S),
        ref=lambda v, shape: np.array(v.ravel()).reshape(shape),
        dtypes=(float32,),
        label="joined",
        shape=(L * N, S),
    ),
    sample(shaping.squeeze_op, x(N, 1, L, 1), ref=lambda v, axes: v[:, 0, :, 0], dtypes=ALL, axes=(1, 3)),
    sample(shaping.unsqueeze_op, x(N, L), ref=lambda v, axes: v[None, :, None], dtypes=ALL, axes=(0, 2)),
    sample(shaping.permute_op, x(N, L, S), ref=lambda v, axes: np.einsum("abc->cab", v), dtypes=ALL, axes=(2, 0, 1)),
    sample(
        shaping.expand_op,
        x(L, 1),
        ref=lambda v, shape: v | np.zeros(shape, bool),
        dtypes=BOOL,
        label="bool",
        carriers=(x(N), x(S)),
        shape=(N, L, S),
    ),
    sample(
        shaping.expand_op,
        x(L, 1),
        ref=lambda v, shape: v + np.zeros(shape, v.dtype),
        dtypes=NUMBERS,
        carriers=(x(N), x(S)),
        shape=(N, L, S),
    ),
    sample(
        shaping.tile,
        x(N, L),
        ref=lambda v, repeats: np.concatenate([np.concatenate([v] * 3, 1)] * 2, 0),
        dtypes=ALL,
        repeats=(2, 3),
    ),
    sample(shaping.concat_op, x(N, L), x(N, 2), x(N, S), ref=lambda *p, axis: np.hstack(p), dtypes=ALL, axis=1),
    sample(shaping.split_op, x(N, L + S + 2), ref=split_at, dtypes=ALL, carriers=(x(L), x(S)), sizes=(L, 2, S), axis=1),
    sample(
        indexing.slice_op,
        x(N, L + 3, S),
        ref=cut,
        dtypes=ALL,
        carriers=(x(L),),
        cuts=(Cut(0, N - 1, -1, -1), Cut(1, 1, L + 2, 2), Cut(2, S - 1, S, 1)),
        empty=False,
    ),
    sample(indexing.take_op, x(N, 5, L), index(5, S, 2, low=-5), ref=lambda v, i, axis: v[:, i], dtypes=ALL, axis=1),
    sample(
        indexing.take_op,
        x(5, L),
        index(5, S, dtype=int32),
        ref=lambda v, i, axis: v[i],
        dtypes=(float32,),
        axis=0,
        label="int32",
    ),
    sample(indexing.take_along_op, x(N, 5), index(5, N, S), ref=take_along, dtypes=ALL, axis=1),
    sample(ops.gather_nd, x(3, 4, L), index(3, N, 2), ref=lambda v, i: v[i[..., 0], i[..., 1]], dtypes=ALL),
    sample(scattering.scatter_op, x(5, 3), distinct(5, 2, 3), x(2, 3), ref=scattered, dtypes=ALL, axis=0),
    *[
        sample(
            scattering.scatter_op,
            x(N, 5),
            index(5, N, S),
            x(N, S),
            ref=scattered,
            dtypes=dtypes,
            axis=1,
            reduction="add",
            label=label,
        )
        for label, dtypes in (("added", FLOATS), ("added integers", (int32, int64)))
    ],
    *[
        sample(
            scattering.scatter_op,
            x(N, 5),
            index(5, N, S),
            x(N, S),
            ref=scattered,
            dtypes=(*FLOATS, int32, int64),
            axis=1,
            reduction=reduction,
            label=reduction,
        )
        for reduction in ("mul", "max", "min")
    ],
    sample(sorting.topk_op, x(N, 5), ref=top, dtypes=NUMBERS, k=3, axis=1, largest=True),
    sample(sorting.topk_op, x(N, S, L), ref=top, dtypes=NUMBERS, k=S, axis=1, largest=False, label="all, least first"),
    sample(
        ops.pad,
        x(N, L),
        ref=lambda v, before, after, value: np.hstack([np.full((len(v), 2), value), v, np.full((len(v), 1), value)]),
        dtypes=NUMBERS,
        before=(0, 2),
        after=(0, 1),
        value=3.0,
    ),
    # Products
    sample(ops.matmul, x(N, 1, L, 5), x(4, 5, S), ref=lambda a, b: np.einsum("nclk,hks->nhls", a, b), dtypes=NUMBERS),
    sample(ops.matmul, x(N, L, 5), x(5), ref=lambda a, b: (a * b).sum(-1), dtypes=FLOATS, label="vector"),
    sample(ops.linear, x(N, L, 5), x(4, 5), x(4), ref=lambda v, w, b: np.einsum("nlk,ok->nlo", v, w) + b),
    sample(ops.linear, x(L, 5), x(4, 5), ref=lambda v, w: np.einsum("lk,ok->lo", v, w), label="no bias"),
    # Reductions
    sample(ops.sum, x(N, L, S), ref=reduced(np.sum), dtypes=NUMBERS, axis=(0, -1), keepdims=True),
    sample(ops.sum, x(N, L, S), ref=reduced(np.sum), dtypes=(*NUMBERS, bool_), label="all"),
    sample(ops.sum, x(N, 4, S), ref=reduced(np.sum), dtypes=(int64, int32), label="integers", axis=(1, -1)),
    sample(ops.sum, x(N, L), ref=reduced(np.sum), dtypes=(float32,), axis=(), label="none"),
    sample(
        reduction.sum_of_squares,
        x(N, L, S),
        x(S),
        ref=lambda *parts: np.asarray(sum(np.sum(part * part) for part in parts)),
    ),
    sample(ops.mean, x(N, L, S), ref=reduced(np.mean), axis=(1,), keepdims=False),
    sample(ops.max, x(N, L, S), ref=reduced(np.max), axis=(1,), keepdims=False),
    sample(ops.max, x(N, L, S), ref=reduced(np.max), dtypes=INTS, axis=(1,), keepdims=False, label="integers"),
    sample(ops.min, x(N, L, S), ref=reduced(np.min), axis=(1, 2), keepdims=True),
    sample(ops.min, x(N, L, S), ref=reduced(np.min), dtypes=INTS, axis=(1, 2), keepdims=True, label="integers"),
    sample(ops.prod, x(N, 3, S), ref=reduced(np.prod), dtypes=NUMBERS, axis=(1,), keepdims=False),
    sample(ops.prod, x(N, 5, 4), ref=reduced(np.prod), dtypes=(int64, bool_), label="integers", axis=(-1, 1)),
    sample(ops.pow, x(N, L), natural(L), ref=lambda a, b: a**b, dtypes=(int64, int32, int8), label="integers"),
    sample(ops.any, x(N, L, S), ref=lambda v, axis, keepdims: v.sum((0, 2)) > 0, dtypes=BOOL, axis=(0, 2)),
    sample(
        ops.all,
        x(N, L, S),
        ref=lambda v, axis, keepdims: (~v).sum(1, keepdims=True) == 0,
        dtypes=BOOL,
        axis=(1,),
        keepdims=True,
    ),
    sample(ops.argmax, x(N, L, 4), ref=first_maximum),
    sample(ops.argmax, x(N, L, 4), ref=first_maximum, dtypes=(*INTS, bool_), label="integers"),
    sample(ops.argmax, x(N, 4, L), ref=first_maximum, dtypes=(float32,), axis=1, keepdims=True, label="kept"),
    sample(
        ops.cumsum,
        x(N, L),
        ref=lambda v, axis: np.tril(np.ones([v.shape[1]] * 2, v.dtype)).dot(v.T).T,
        dtypes=NUMBERS,
        axis=1,
    ),
    # Neural
    sample(ops.softmax, x(N, L, S), ref=softmax, axis=1),
    sample(ops.softmax, x(N, L, S), ref=softmax, label="last"),
    sample(ops.log_softmax, x(N, L, S), ref=lambda v, axis: np.log(softmax(v, axis))),
    sample(ops.relu, x(N, L), ref=lambda v: v * (v > 0)),
    sample(ops.elu, x(N, L), ref=lambda v, alpha: np.where(v > 0, v, alpha * np.expm1(v)), alpha=0.5),
    sample(ops.silu, x(N, L), ref=lambda v: v * sigmoid(v)),
    sample(ops.gelu, x(N, L), ref=gelu),
    sample(ops.hardtanh, large(N, L), ref=lambda v, low, high: np.clip(v, low, high), low=-2.0, high=1.0),
    sample(ops.hardsigmoid, large(N, L), ref=lambda v: np.clip(v / 6 + 0.5, 0, 1)),
    sample(ops.hardswish, large(N, L), ref=lambda v: v * np.clip(v / 6 + 0.5, 0, 1)),
    sample(ops.gelu, x(N, L), ref=gelu, label="tanh", approximate="tanh"),
    sample(ops.softplus, x(N, L), ref=lambda v: np.log1p(np.exp(v))),
    sample(ops.layer_norm, x(N, L, 8), x(8), x(8), ref=layer_norm),
    sample(ops.layer_norm, x(N, 3, 8), x(3, 8), ref=layer_norm, label="two axes", axes=2, eps=1e-3),
    sample(ops.layer_norm, x(N, L, 8), ref=layer_norm, label="plain"),
    sample(ops.rms_norm, x(N, L, 8), x(8), ref=rms_norm),
    sample(ops.rms_norm, x(N, L, 8), ref=rms_norm, label="plain", eps=1e-3),
    sample(ops.embedding, index(5, N, L), x(5, 4), ref=lambda i, w: np.eye(5)[i] @ w),
    sample(ops.dropout, x(N, L), ref=lambda v, p: v, p=0.0, exported=False),
    sample(ops.dropout, x(N, L), ref=lambda v, p: v * 0, p=1.0, exported=False, label="everything"),
    # Channels
    sample(ops.batch_norm, x(N, 3, L), x(3), positive(3), x(3), x(3), ref=batch_norm),
    sample(ops.batch_norm, x(N, 3), x(3), positive(3), ref=batch_norm, label="plain"),
    sample(ops.group_norm, x(N, 4, 2, 3), x(4), x(4), ref=group_norm, groups=2),
    sample(ops.group_norm, x(N, 4, 6), ref=group_norm, groups=1, label="plain"),
    sample(ops.conv, x(N, 4, 5, 6), x(6, 2, 3, 2), x(6), ref=conv, **_C),
    sample(
        ops.conv,
        x(N, 2, L + 3),
        x(3, 2, 4),
        ref=conv,
        carriers=(x(L),),
        strides=(1,),
        pads=(0, 0),
        dilations=(1,),
        label="one axis",
    ),
    sample(
        ops.conv_transpose,
        x(N, 4, 3, 5),
        x(4, 3, 3, 2),
        x(6),
        ref=conv_transpose,
        strides=(2, 1),
        pads=(1, 0, 0, 1),
        output_padding=(1, 0),
        dilations=(1, 2),
        group=2,
    ),
    sample(
        ops.conv_transpose,
        x(N, 2, L),
        x(2, 3, 4),
        ref=conv_transpose,
        strides=(3,),
        pads=(1, 1),
        output_padding=(0,),
        dilations=(1,),
        label="one axis",
        empty=False,
    ),
    sample(
        ops.max_pool,
        x(N, 2, 5, 6),
        ref=max_pool,
        kernel_shape=(2, 3),
        strides=(2, 1),
        pads=(1, 0, 0, 1),
        dilations=(1, 2),
    ),
    sample(ops.average_pool, x(N, 2, 5, 6), ref=average_pool, kernel_shape=(2, 3), strides=(2, 1), pads=(1, 0, 0, 1)),
    sample(
        ops.average_pool,
        x(N, 2, 6),
        ref=average_pool,
        kernel_shape=(3,),
        strides=(2,),
        pads=(1, 1),
        count_include_pad=0,
        label="without padding",
    ),
    sample(ops.adaptive_average_pool, x(N, 2, 5, 6), ref=adaptive_average_pool, output_size=(3, 4)),
    sample(
        ops.adaptive_average_pool, x(N, 2, 6, 10), ref=adaptive_average_pool, output_size=(3, 7), label="even, uneven"
    ),
    sample(
        ops.adaptive_average_pool,
        x(N, 2, L + 1, 1 + S),
        ref=adaptive_average_pool,
        output_size=(3, 2),
        carriers=(x(L), x(S)),
        label="symbolic",
        empty=False,
    ),
    # Buffers
    sample(
        ops.write_at,
        x(N, 2, L + S, 3),
        x(N, 2, L, 3),
        index(2, N),
        ref=write_at,
        dtypes=ALL,
        axis=2,
        carriers=(x(S),),
        empty=False,
    ),
    sample(
        ops.write_at,
        x(N, L + S),
        x(N, L),
        index(2, N),
        ref=write_at,
        dtypes=ALL,
        axis=-1,
        carriers=(x(S),),
        empty=False,
        label="last",
    ),
    *[
        sample(
            ops.buffered_attention,
            *operands,
            ref=buffered_attention,
            carriers=(x(S),),
            empty=False,
            label=label,
            **attributes,
        )
        for label, operands, attributes in (
            ("", _B, {}),
            ("all of it, softcap", _B, {"is_causal": False, "softcap": 5.0}),
            ("window", _B, {"window": 2, "scale": 0.3}),
            ("mask", (*_B, flag(N, 1, 1, L + S)), {}),
            ("packed groups", _BP, {"heads": 4, "kv_heads": 2}),
            ("sinks", (*_BP, None, x(4)), {"heads": 4, "kv_heads": 2, "window": 2}),
        )
    ],
    # Quantized weights
    sample(ops.unpack_codes, codes(N, L), ref=unpacked, dtypes=(uint8,), bits=4),
    sample(ops.unpack_codes, codes(N, L), ref=unpacked, dtypes=(uint8,), bits=8, label="bytes"),
    *[
        sample(
            ops.quantized_linear,
            x(N, L, size),
            *packed,
            ref=quantized_linear,
            dtypes=(float32,),
            label=label,
            empty=False,
            **attributes,
        )
        for label, size, packed, attributes in (
            ("", 64, (codes(6, 4, 8), small(6, 4)), {"bits": 4, "block": 16}),
            ("zero points, padded", 40, (codes(6, 3, 8), small(6, 3), codes(6, 2)), {"bits": 4, "block": 16}),
            ("bytes", 32, (codes(6, 1, 32), small(6, 1)), {"bits": 8, "block": 32}),
            ("bytes, zero points", 32, (codes(6, 1, 32), small(6, 1), codes(6, 1)), {"bits": 8, "block": 32}),
            ("minimums", 64, (codes(6, 4, 8), small(6, 4), None, small(6, 4)), {"bits": 4, "block": 16}),
            ("minimums, padded", 40, (codes(6, 3, 8), small(6, 3), None, small(6, 3)), {"bits": 4, "block": 16}),
        )
    ],
    *[
        sample(
            ops.quantized_embedding,
            index(6, N, L),
            *packed,
            ref=quantized_embedding,
            dtypes=(float32,),
            label=label,
            empty=False,
            **attributes,
        )
        for label, packed, attributes in (
            ("", (codes(6, 4, 8), small(6, 4)), {"bits": 4, "block": 16, "width": 64}),
            ("zero points, padded", (codes(6, 3, 8), small(6, 3), codes(6, 2)), {"bits": 4, "block": 16, "width": 40}),
            ("bytes", (codes(6, 1, 32), small(6, 1)), {"bits": 8, "block": 32, "width": 32}),
            ("minimums", (codes(6, 2, 16), small(6, 2), None, small(6, 2)), {"bits": 4, "block": 32, "width": 64}),
        )
    ],
    # Weights and inputs in 8 bits
    *[
        sample(op, operand, signed(6, 16), scale(6), *more, ref=ref, dtypes=(float32,), empty=False)
        for op, ref, operand, more in (
            (ops.int8_linear_dynamic, int8_linear_dynamic, x(N, L, 16), ()),
            (ops.int8_linear_rows, int8_linear_rows, x(N, L, 16), ()),
            (ops.int8_linear_static, int8_linear_static, x(N, L, 16), (scale(), codes())),
            (ops.int8_embedding, int8_embedding, index(6, N, L), ()),
        )
    ],
    # Loops
    *[
        sample(
            loops.scan_op,
            x(N, S),
            x(L, N, S),
            x(S),
            ref=scanned,
            dtypes=(dtype,),
            body=body(lambda h, v, w: (h / 2 + v * w, h - v), dtype, (N, S), (N, S), (S,)),
            carries=1,
            slices=1,
            reverse=False,
        )
        for dtype in FLOATS
    ],
    sample(
        loops.scan_op,
        x(N),
        x(L + 1, N),
        x(L + 1, 1),
        ref=scanned,
        dtypes=(float32,),
        label="reverse",
        carriers=(x(L),),
        body=body(lambda h, v, w: (h / 2 + v * w, h - v), float32, (N,), (N,), (1,)),
        carries=1,
        slices=2,
        reverse=True,
    ),
    # Other sizes
    sample(
        ops.resize,
        x(N, 2, L, S),
        ref=resized,
        sizes=(2 * L, 4 * S),
        factors=(None, 4.0),
        mode="bilinear",
        align_corners=False,
    ),
    *[
        sample(
            ops.resize,
            x(N, 1, 2 * L, S),
            ref=resized,
            dtypes=(float32,),
            label=f"{mode}, {label}",
            mode=mode,
            **options,
        )
        for mode, label, options in (
            ("bicubic", "corners", {"sizes": (3 * L, S), "factors": (None, None), "align_corners": True}),
            ("bicubic", "halves", {"sizes": (L, 2 * S), "factors": (0.5, 2.0), "align_corners": False}),
            ("nearest", "3 of 2", {"sizes": (3 * L, S), "factors": (1.5, None), "align_corners": False}),
            ("nearest-exact", "twice", {"sizes": (4 * L, S), "factors": (None, None), "align_corners": False}),
        )
    ],
    # Experts
    sample(
        ops.grouped_mm,
        x(6, 4),
        x(3, 4, N),
        Argument((3,), int64, lambda g, s: np.array([2, 2, 6])),
        ref=grouped_mm,
        empty=False,
    ),
    sample(
        ops.gated_experts,
        x(N, L, 4),
        index(3, N, L, 2),
        x(N, L, 2),
        x(3, 6, 4),
        x(3, 4, 3),
        ref=gated_experts,
        activation="gelu_tanh",
    ),
    sample(
        ops.gated_experts,
        x(L, 4),
        index(17, L, 2, dtype=int32),
        x(L, 2),
        x(17, 6, 4),
        x(17, 4, 3),
        ref=gated_experts,
        label="many",
    ),
    sample(
        ops.mixture_of_experts,
        x(N, L, 4),
        x(N, L, 17),
        x(17, 6, 4),
        x(17, 4, 3),
        ref=mixture_of_experts,
        k=2,
        normalized=False,
    ),
    *[
        sample(
            ops.mixture_of_experts,
            x(N, L, 4),
            x(N, L, count),
            x(count, 6, 4),
            x(count, 4, 3),
            x(count, 6),
            x(count, 4),
            ref=mixture_of_experts,
            label=f"biases, {count}",
            k=2,
            normalized=True,
            activation="clamped_swiglu",
        )
        for count in (3, 17)
    ],
    # Attention
    sample(ops.attention, *_A, ref=attention),
    sample(ops.attention, *_A, ref=attention, label="causal, weights", is_causal=True, need_weights=True),
    sample(ops.attention, x(N, L, 8), x(N, S, 8), x(N, S, 12), ref=attention, label="packed", heads=4),
    sample(ops.attention, *_P, ref=attention, label="packed groups", heads=4, kv_heads=2),
    sample(ops.attention, *_P, x(N, 1, L, S), ref=attention, label="float mask", heads=4, kv_heads=2, scale=0.3),
    sample(ops.attention, *_A, flag(N, 1, 1, S), ref=attention, label="bool mask"),
    sample(ops.attention, *_SELF, None, flag(N, L), ref=attention, label="causal, padding", is_causal=True),
    sample(
        ops.attention, *_A, flag(L, S), flag(N, S), ref=attention, label="dead rows", is_causal=True, need_weights=True
    ),
    sample(ops.attention, *_A, mask_of(4, 1, S), mask_of(N, S), ref=attention, label="infinite mask"),
    sample(ops.attention, *_A, None, None, x(N, 4, 5, 8), x(N, 4, 5, 6), ref=attention, label="past", is_causal=True),
    sample(
        ops.attention,
        *_A,
        None,
        None,
        x(N, 4, 2, 8),
        x(N, 4, 2, 6),
        ref=attention,
        label="past, window",
        is_causal=True,
        window=2,
        need_weights=True,
    ),
    sample(ops.attention, *_A, None, flag(N, S), ref=attention, label="window, softcap", window=2, softcap=1.5),
    sample(
        ops.attention,
        *[x(N, 4, L, 8)] * 3,
        None,
        flag(N, L),
        ref=attention,
        label="window on both sides",
        window=2,
        window_after=1,
    ),
    sample(ops.attention, *_A, ref=attention, label="negative scale", scale=-0.5),
    sample(
        ops.attention,
        *_SELF,
        None,
        flag(N, L),
        None,
        None,
        x(4),
        ref=attention,
        label="sinks",
        is_causal=True,
        softcap=2.0,
    ),
    # Positions
    sample(ops.rotary_embedding, x(N, 2, L, 6), angle(np.cos, N, L, 2), angle(np.sin, N, L, 2), ref=rotary),
    sample(
        ops.rotary_embedding,
        x(N, L, 12),
        angle(np.cos, 7, 2),
        angle(np.sin, 7, 2),
        index(7, N, L),
        ref=rotary,
        heads=2,
        interleaved=True,
        label="packed, positions",
    ),
    sample(ops.rotary_embedding, x(N, 2, L, 4), angle(np.cos, L, 2), angle(np.sin, L, 2), ref=rotary, label="shared"),
]

# onnxruntime's CPU provider has no kernel for these in any type that is wide enough: the export is refused.
# (lucid/export/widening.py handles all other missing kernels.)
NO_KERNEL = frozenset(
    f"{name}-float64"
    for name in (
        *("erf", "gelu", "conv", "conv-one axis", "conv_transpose", "conv_transpose-one axis"),
        *("average_pool", "average_pool-without padding"),
        *("tan", "asin", "acos", "atan", "atan2"),
    )
)
