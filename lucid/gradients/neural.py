"""Gradient rules of products, normalizations, attention, windows and loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid.core.graph.values import Body
from lucid.core.sizes.dims import product, same
from lucid.gradients.tape import BODIES, RULES, Rule, Tape, filled
from lucid.ops.attention.call import AttentionOptions
from lucid.ops.attention.op import attention, joined_heads, split_heads
from lucid.ops.convolution import Ints, conv, conv_transpose
from lucid.ops.creation import arange, ones_like, zeros
from lucid.ops.elementwise import at_least_float32, exp, reciprocal, sqrt, where
from lucid.ops.experts import grouped_mm
from lucid.ops.indexing import take_along_op, take_op
from lucid.ops.int8 import int8_embedding
from lucid.ops.linalg import matmul
from lucid.ops.loops import scan, scan_op
from lucid.ops.neural import dropout
from lucid.ops.op import Op
from lucid.ops.quantized import quantized_embedding
from lucid.ops.reduction import argmax, mean, sum_
from lucid.ops.rotary import rotary_embedding
from lucid.ops.shaping import concat, pad, permute, reshape, unsqueeze
from lucid.ops.tensor.tensor import Tensor

# Products ------------------------------------------------------------------------------------------------------------


def _rows(x: Tensor) -> Tensor:
    """(..., K) as (M, K)."""
    return x if x.ndim == 2 else reshape(x, (product(x.shape[:-1]), x.shape[-1]))


def _matmul(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.ndim == 1:
        g = unsqueeze(g, -2 if b.ndim > 1 else -1)
    if b.ndim == 1:
        g = unsqueeze(g, -1)
    left, right = unsqueeze(a, 0) if a.ndim == 1 else a, unsqueeze(b, 1) if b.ndim == 1 else b
    to_a = matmul(g, right.mT)
    # One product for all matrices of a, where they share one of b.
    to_b = matmul(_rows(left).mT, _rows(g)) if right.ndim == 2 else matmul(left.mT, g)
    return reshape(to_a, a.shape) if a.ndim == 1 and to_a.ndim == 2 else _vector(to_a, a, -2), _vector(to_b, b, -1)


def _vector(gradient: Tensor, x: Tensor, axis: int) -> Tensor:
    """The gradient of a vector from that of a matrix, or of matrices, of one row or column."""
    if x.ndim > 1:
        return gradient
    gradient = gradient.squeeze(axis)
    return sum_(_rows(gradient), axis=(0,)) if gradient.ndim > 1 else gradient


def _linear(
    g: Tensor, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    rows = _rows(g)
    to_bias = None if bias is None else sum_(rows, axis=(0,)) if bias.ndim == 1 else g
    return matmul(g, weight), matmul(rows.mT, _rows(x)), to_bias


def _grouped_mm(g: Tensor, y: Tensor, x: Tensor, weight: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, None]:
    row = unsqueeze(arange(x.shape[0]), 0)
    end = unsqueeze(ends.long(), 1)
    start = concat([zeros((1, 1), dtype=end.dtype), end[:-1]], 0)
    own = unsqueeze((row >= start) & (row < end), 1)  # (G, 1, M): the rows of each group
    return grouped_mm(g, weight.mT, ends), matmul(where(own, x.mT, 0.0), g), None


def _quantized_linear(
    g: Tensor, y: Tensor, x: Tensor, packed: Tensor, *parts: Tensor | None, bits: int, block: int
) -> Tensor:
    width = int(x.shape[-1])
    weight = quantized_embedding(arange(packed.shape[0]), packed, *parts, bits=bits, block=block, width=width)  # type: ignore[arg-type]
    return matmul(g.astype(weight.dtype), weight)


def _int8_linear(g: Tensor, y: Tensor, x: Tensor, weight: Tensor, scales: Tensor, *grid: Tensor) -> Tensor:
    """That of the product with the weight: rounding of the input counts as none (Bengio et al. 2013)."""
    numbers = int8_embedding(arange(weight.shape[0]), weight, scales)
    return matmul(g.astype(numbers.dtype), numbers)


# Normalizations ------------------------------------------------------------------------------------------------------


def _softmax(g: Tensor, y: Tensor, x: Tensor, *, axis: int) -> Tensor:
    return y * (g - sum_(g * y, axis=(axis,), keepdims=True))


def _log_softmax(g: Tensor, y: Tensor, x: Tensor, *, axis: int) -> Tensor:
    return g - exp(y) * sum_(g, axis=(axis,), keepdims=True)


def _through_norm(g: Tensor, normal: Tensor, factor: Tensor, axes: tuple[int, ...], centred: bool) -> Tensor:
    """The gradient of what was normalized: `normal` is (x - its mean) * factor, or x * factor."""
    along = mean(g * normal, axis=axes, keepdims=True)
    rest = g - mean(g, axis=axes, keepdims=True) if centred else g
    return factor * (rest - normal * along)


def _layer_norm(
    g: Tensor, y: Tensor, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, axes: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    last = tuple(range(-axes, 0))
    wide = at_least_float32(x)
    centred = wide - mean(wide, axis=last, keepdims=True)
    factor = reciprocal(sqrt(mean(centred * centred, axis=last, keepdims=True) + eps))
    normal = centred * factor
    scaled = g if weight is None else g * weight
    return _through_norm(at_least_float32(scaled), normal, factor, last, True), g * normal, g


def _rms_norm(
    g: Tensor, y: Tensor, x: Tensor, weight: Tensor | None = None, *, eps: float, offset: float
) -> tuple[Tensor, Tensor]:
    wide = at_least_float32(x)
    factor = reciprocal(sqrt(mean(wide * wide, axis=(-1,), keepdims=True) + eps))
    normal = wide * factor
    scaled = g if weight is None else g * (weight + offset if offset else weight)
    return _through_norm(at_least_float32(scaled), normal, factor, (-1,), False), g * normal


def _dropout(wanted: Sequence[bool], x: Tensor, *, p: float) -> Tensor:
    """A product with what is kept, so that the gradient is of the same elements."""
    return x * dropout(ones_like(x), p=p)


# Attention -----------------------------------------------------------------------------------------------------------


def _attention_body(wanted: Sequence[bool], *operands: Tensor | None, **attributes: Any) -> Any:
    """Attention whose weights are kept for its gradient; step by step where more than weights are needed."""
    options = AttentionOptions.from_attributes(attributes)
    sinks = operands[7] if len(operands) > 7 else None
    if options.softcap or options.dropout_p or sinks is not None or any(wanted[3:5]):
        return attention.expand(operands, attributes)
    if options.need_weights:
        return None
    results: tuple[Tensor, ...] = attention(*operands, **{**attributes, "need_weights": True})  # type: ignore[arg-type]
    return results[:-1] if len(results) > 2 else results[0]


def _attention(
    g: tuple[Tensor, ...],
    y: tuple[Tensor, ...],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    sinks: Tensor | None = None,
    **attributes: Any,
) -> list[Tensor | None]:
    """Weights of hidden keys are 0, so that their gradients are."""
    options, weights = AttentionOptions.from_attributes(attributes), y[-1]
    counts = options.head_counts
    (to_output,) = filled(g[:1], y[:1])
    queries = query
    if counts is not None:
        queries, to_output = split_heads("query", query, counts[0]), split_heads("output", to_output, counts[0])
        key, value = split_heads("key", key, counts[1]), split_heads("value", value, counts[2])
    if past_key is not None and past_value is not None:
        keys, values = y[1], y[2]
    else:
        keys, values = key, value
    groups = queries.shape[1] // keys.shape[1]

    def apart(x: Tensor) -> Tensor:
        """(N, H, ...) as (N, H_kv, groups, ...), in the type of the scores."""
        x = x.float() if x.dtype.itemsize == 2 else x
        return x if same(groups, 1) else reshape(x, (x.shape[0], keys.shape[1], groups, *x.shape[2:]))

    def shared(x: Tensor) -> Tensor:
        """(N, H_kv, S, d) as it is multiplied with queries of several groups."""
        x = x.float() if x.dtype.itemsize == 2 else x
        return x if same(groups, 1) else unsqueeze(x, 2)

    def joined(x: Tensor) -> Tensor:
        return x if same(groups, 1) else sum_(x, axis=(2,))

    seen, to_output, queries = apart(weights), apart(to_output), apart(queries)
    to_weights = matmul(to_output, shared(values).mT)
    if g[-1] is not None:
        to_weights = to_weights + apart(g[-1])
    to_scores = seen * (to_weights - sum_(to_weights * seen, axis=(-1,), keepdims=True))
    to_scores = to_scores * options.scale_of(query.shape[-1] // (options.heads or 1))
    to_query = matmul(to_scores, shared(keys))
    to_query = to_query if same(groups, 1) else reshape(to_query, (*weights.shape[:3], to_query.shape[-1]))
    to_keys, to_values = joined(matmul(to_scores.mT, queries)), joined(matmul(seen.mT, to_output))
    to_past: list[Tensor | None] = [None, None]
    if past_key is not None:
        to_keys, to_values = (x if more is None else x + more for x, more in ((to_keys, g[1]), (to_values, g[2])))
        past = past_key.shape[2]
        to_past = [to_keys[:, :, :past], to_values[:, :, :past]]
        to_keys, to_values = to_keys[:, :, past:], to_values[:, :, past:]
    found = [to_query, to_keys, to_values]
    if counts is not None:
        found = [joined_heads(x) for x in found]
    return [*found, None, None, *to_past]


def _rotary_body(wanted: Sequence[bool], *operands: Tensor | None, **attributes: Any) -> Any:
    return rotary_embedding.expand(operands, attributes) if any(wanted[1:]) else None


def _rotary(
    g: Tensor, y: Tensor, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None, **attributes: Any
) -> Tensor:
    """Turned back."""
    return rotary_embedding(g, cos, -sin, positions, **attributes)


# Windows -------------------------------------------------------------------------------------------------------------


def _windows(x: Tensor, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints, fill: float = 0.0) -> Tensor:
    """All windows of (N, C, *spatial): (N, C, *windows, *kernel)."""
    axes = len(kernel)
    if any(pads):
        x = pad(x, before=(0, 0, *pads[:axes]), after=(0, 0, *pads[axes:]), value=fill)
    for i in reversed(range(axes)):
        size, span = x.shape[2 + i], dilations[i] * (kernel[i] - 1) + 1
        count = (size - span) // strides[i] + 1
        if strides[i] == kernel[i] and dilations[i] == 1 and same(count * kernel[i], size):
            x = reshape(x, (*x.shape[: 2 + i], count, kernel[i], *x.shape[3 + i :]))
        else:
            places = unsqueeze(arange(count) * strides[i], 1) + arange(kernel[i]) * dilations[i]
            x = take_op(x, places, axis=2 + i)
    return permute(x, (0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2)))


def _kernel_of(weight: Tensor) -> Ints:
    return tuple(int(size) for size in weight.shape[2:])


def _conv(
    g: Tensor,
    y: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    group: int,
) -> tuple[Tensor, Tensor, Tensor]:
    options: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    to_x = _spread_windows(g, weight, x, pads, options)
    windows = _windows(x, _kernel_of(weight), strides, pads, dilations)
    return to_x, _to_weight(windows, g, weight, group), _per_channel(g)


def _spread_windows(g: Tensor, weight: Tensor, x: Tensor, pads: Ints, options: dict[str, Any]) -> Tensor:
    """The transpose of a convolution; elements that no window reaches get 0."""
    axes = x.ndim - 2
    spread = conv_transpose(g, weight, pads=(0,) * 2 * axes, output_padding=(0,) * axes, **options)
    sizes = [x.shape[2 + i] + pads[i] + pads[axes + i] for i in range(axes)]
    rest = [size - spread.shape[2 + i] for i, size in enumerate(sizes)]
    spread = pad(spread, before=(0,) * x.ndim, after=(0, 0, *rest)) if not all(same(n, 0) for n in rest) else spread
    return spread[(..., *(slice(pads[i], pads[i] + x.shape[2 + i]) for i in range(axes)))]


def _to_weight(windows: Tensor, g: Tensor, weight: Tensor, group: int) -> Tensor:
    """The gradient of a weight (out, C / group, *kernel): the product of gradients (N, out, *windows) with windows."""
    axes = weight.ndim - 2
    n, out, places = g.shape[0], g.shape[1], product(g.shape[2:])
    depth = product(weight.shape[2:])
    channels = windows.shape[1] // group
    columns = reshape(windows, (n, group, channels, places, depth))
    columns = reshape(permute(columns, (1, 0, 3, 2, 4)), (group, n * places, channels * depth))
    rows = reshape(
        permute(reshape(g, (n, group, out // group, places)), (1, 2, 0, 3)), (group, out // group, n * places)
    )
    return reshape(matmul(rows, columns), (out, channels, *weight.shape[-axes:]))


def _per_channel(g: Tensor) -> Tensor:
    return sum_(g, axis=(0, *range(2, g.ndim)))


def _conv_transpose(
    g: Tensor,
    y: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Ints,
    pads: Ints,
    output_padding: Ints,
    dilations: Ints,
    group: int,
) -> tuple[Tensor, Tensor, Tensor]:
    axes = len(strides)
    kernel = _kernel_of(weight)
    grown = pad(g, before=(0, 0, *pads[:axes]), after=(0, 0, *pads[axes:])) if any(pads) else g
    reached = tuple(
        slice(0, (x.shape[2 + i] - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1) for i in range(axes)
    )
    grown = grown[(..., *reached)]
    to_x = conv(grown, weight, strides=strides, pads=(0,) * 2 * axes, dilations=dilations, group=group)
    windows = _windows(grown, kernel, strides, (0,) * 2 * axes, dilations)
    return to_x, _to_weight(windows, x, weight, group), _per_channel(g)


def _through(body: Callable[..., Tensor]) -> Rule:
    """The rule of an op of one tensor whose gradient is that of a body, which is written for this alone."""

    def gradients(g: Tensor, y: Tensor, x: Tensor, **attributes: Any) -> Tensor | None:
        tape = Tape([x])
        (again,) = tape.replay([body(x, **attributes).to_value()], {id(x.to_value()): x})
        return tape.gradients([again], [g], [x])[0]

    return Rule(gradients)


def _largest(x: Tensor, *, kernel_shape: Ints, strides: Ints, pads: Ints, dilations: Ints) -> Tensor:
    """The first maximum of each window."""
    windows = _windows(x, kernel_shape, strides, pads, dilations, -math.inf)
    windows = reshape(windows, (*windows.shape[: -len(kernel_shape)], math.prod(kernel_shape)))
    return take_along_op(windows, argmax(windows, axis=-1, keepdims=True), axis=-1).squeeze(-1)


def _average(x: Tensor, *, kernel_shape: Ints, strides: Ints, pads: Ints, count_include_pad: int) -> Tensor:
    dense, last = (1,) * len(kernel_shape), tuple(range(-len(kernel_shape), 0))
    total = sum_(_windows(x, kernel_shape, strides, pads, dense), axis=last)
    if count_include_pad:
        return total * (1 / math.prod(kernel_shape))
    ones = zeros((1, 1, *x.shape[2:]), dtype=x.dtype) + 1
    return total / sum_(_windows(ones, kernel_shape, strides, pads, dense), axis=last)


# Loops ---------------------------------------------------------------------------------------------------------------


def _scan_body(wanted: Sequence[bool], *operands: Tensor, body: Body, carries: int, slices: int, reverse: bool) -> Any:
    """A loop that also gives the carried values before each step, for the loop of its gradient."""
    if _keeps_carries(body, carries):
        return None
    kept = Body(body.inputs, (*body.outputs, *body.inputs[:carries]))
    results = Op.apply(scan_op, operands, {"body": kept, "carries": carries, "slices": slices, "reverse": reverse})
    return results[: len(body.outputs)]


def _keeps_carries(body: Body, carries: int) -> bool:
    return len(body.outputs) >= 2 * carries > 0 and all(
        kept is carry for kept, carry in zip(body.outputs[-carries:], body.inputs, strict=False)
    )


def _scan(
    g: tuple[Tensor | None, ...],
    y: tuple[Tensor, ...],
    *operands: Tensor,
    body: Body,
    carries: int,
    slices: int,
    reverse: bool,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """A loop in the other order: each step computes the body once more and goes back through it."""
    outputs = body.outputs[: len(body.outputs) - carries]
    outer = operands[carries + slices :]
    places = [i for i, x in enumerate(operands) if x.dtype.kind == "float" and (i < carries or wanted[i])]
    in_carry = [i for i in places if i < carries]
    in_slices = [i for i in places if carries <= i < carries + slices]
    in_outer = [i for i in places if i >= carries + slices]
    rows = [i for i in range(carries, len(outputs)) if g[i] is not None]

    def step(state: tuple[list[Tensor], list[Tensor]], x: tuple[list[Tensor], list[Tensor], list[Tensor]]) -> Any:
        to_carry, to_outer = state
        elements, before, to_rows = x
        inputs = [*before, *elements, *outer]
        tape = Tape([inputs[i] for i in places])
        again = tape.replay(outputs, {id(v): x for v, x in zip(body.inputs, inputs, strict=True)})
        chosen = [again[i] for i in (*in_carry, *rows)]
        found = dict(
            zip(places, tape.gradients(chosen, [*to_carry, *to_rows], [inputs[i] for i in places]), strict=True)
        )
        now = [
            zeros(inputs[i].shape, dtype=inputs[i].dtype) if (v := found[i]) is None else v
            for i in (*in_carry, *in_slices)
        ]
        total = [
            before if (v := found[i]) is None else before + v for i, before in zip(in_outer, to_outer, strict=True)
        ]
        return (now[: len(in_carry)], total), now[len(in_carry) :]

    start = (
        filled([g[i] for i in in_carry], [y[i] for i in in_carry]),
        [zeros(operands[i].shape, dtype=operands[i].dtype) for i in in_outer],
    )
    xs = list(operands[carries : carries + slices]), list(y[len(outputs) :]), [g[i] for i in rows]
    (to_carry, to_outer), to_slices = scan(step, start, xs, reverse=not reverse)
    found = dict(zip((*in_carry, *in_outer, *in_slices), (*to_carry, *to_outer, *to_slices), strict=True))
    return [found.get(i) for i in range(len(operands))]


RULES |= {
    "matmul": Rule(_matmul),
    "linear": Rule(_linear),
    "grouped_mm": Rule(_grouped_mm),
    "quantized_linear": Rule(_quantized_linear),
    **dict.fromkeys(("int8_linear_dynamic", "int8_linear_rows", "int8_linear_static"), Rule(_int8_linear)),
    "softmax": Rule(_softmax),
    "log_softmax": Rule(_log_softmax),
    "layer_norm": Rule(_layer_norm),
    "rms_norm": Rule(_rms_norm),
    "attention": Rule(_attention),
    "rotary_embedding": Rule(_rotary),
    "conv": Rule(_conv),
    "conv_transpose": Rule(_conv_transpose),
    "max_pool": _through(_largest),
    "average_pool": _through(_average),
    "scan": Rule(_scan, wanted=True),
}
BODIES |= {"dropout": _dropout, "attention": _attention_body, "rotary_embedding": _rotary_body, "scan": _scan_body}
