"""Gradient rules of products, normalizations, attention, windows and loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from lucid import ops
from lucid.core.graph.loop_bodies import with_bodies
from lucid.core.graph.values import Attributes, Body, in_order
from lucid.core.sizes.dims import product, same
from lucid.gradients.tape import AGAIN, BODIES, RULES, GradientError, Rule, Tape, filled
from lucid.ops.attention.call import AttentionOptions
from lucid.ops.attention.op import joined_heads, split_heads
from lucid.ops.convolution import Ints
from lucid.ops.elementwise import at_least_float32
from lucid.ops.loops import scan_op
from lucid.ops.reduction import variance
from lucid.ops.tensor.tensor import Tensor

# Products ------------------------------------------------------------------------------------------------------------


def _rows(x: Tensor) -> Tensor:
    """(..., K) as (M, K)."""
    return x.reshape(product(x.shape[:-1]), x.shape[-1])


def _matmul(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.ndim == 1:
        g = g.unsqueeze(-2 if b.ndim > 1 else -1)
    if b.ndim == 1:
        g = g.unsqueeze(-1)
    left, right = a.unsqueeze(0) if a.ndim == 1 else a, b.unsqueeze(1) if b.ndim == 1 else b
    # One product for all matrices of a, where they share one of b.
    to_b = _rows(left).mT @ _rows(g) if right.ndim == 2 else left.mT @ g
    return g @ right.mT, to_b.squeeze(-1) if b.ndim == 1 else to_b


def _grouped_mm(g: Tensor, y: Tensor, x: Tensor, weight: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    row, end = ops.arange(x.shape[0]), ends.long().unsqueeze(1)
    start = ops.pad(end[:-1], before=(1, 0), after=(0, 0))
    own = ((row >= start) & (row < end)).unsqueeze(1)  # (G, 1, M): the rows of each group
    return ops.grouped_mm(g, weight.mT, ends), ops.where(own, x.mT, 0.0) @ g


def _quantized_linear(g: Tensor, y: Tensor, x: Tensor, packed: Tensor, *parts: Any, bits: int, block: int) -> Any:
    rows, width = ops.arange(packed.shape[0]), int(x.shape[-1])
    weight = ops.quantized_embedding(rows, packed, *parts, bits=bits, block=block, width=width)
    return g.astype(weight.dtype) @ weight, None, *(None,) * len(parts)


def _int8_linear(g: Tensor, y: Tensor, x: Tensor, weight: Tensor, scales: Tensor, *grid: Tensor) -> Any:
    """That of the product with the weight: rounding of the input counts as none (Bengio et al. 2013)."""
    numbers = ops.int8_embedding(ops.arange(weight.shape[0]), weight, scales)
    return g.astype(numbers.dtype) @ numbers, None, None, *(None,) * len(grid)


# Normalizations ------------------------------------------------------------------------------------------------------


def _through_norm(g: Tensor, normal: Tensor, factor: Tensor, axes: tuple[int, ...], centred: bool) -> Tensor:
    """The gradient of the input of a norm: `normal` is (x - its mean) * factor, or x * factor."""
    g = at_least_float32(g)
    rest = g - g.mean(axis=axes, keepdims=True) if centred else g
    return factor * (rest - normal * (g * normal).mean(axis=axes, keepdims=True))


def _layer_norm(
    g: Tensor, y: Tensor, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, axes: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    last, wide = tuple(range(-axes, 0)), at_least_float32(x)
    deviation = (variance(wide, last) + eps).sqrt()
    normal = (wide - wide.mean(axis=last, keepdims=True)) / deviation
    scaled = g if weight is None else g * weight
    return _through_norm(scaled, normal, deviation.reciprocal(), last, True), g * normal, g


def _rms_norm(
    g: Tensor, y: Tensor, x: Tensor, weight: Tensor | None = None, *, eps: float, offset: float
) -> tuple[Tensor, Tensor]:
    wide = at_least_float32(x)
    factor = ((wide * wide).mean(axis=(-1,), keepdims=True) + eps).sqrt().reciprocal()
    normal = wide * factor
    scaled = g if weight is None else g * (weight + offset if offset else weight)
    return _through_norm(scaled, normal, factor, (-1,), False), g * normal


# Attention -----------------------------------------------------------------------------------------------------------


def _attention_body(needs_grad: Sequence[bool], *operands: Tensor | None, **attributes: Any) -> Any:
    """Step by step where more than weights are needed."""
    options = AttentionOptions.from_attributes(attributes)
    more = options.softcap or options.dropout_p or any(x is not None for x in operands[7:]) or any(needs_grad[3:5])
    return ops.attention.expand(operands, attributes) if more else None


def _attention_again(operands: Sequence[Tensor | None], attributes: Attributes) -> Any:
    return ops.attention(*operands, **{**attributes, "need_weights": True})  # type: ignore[arg-type]


def _attention(g: Any, y: Any, *operands: Tensor | None, **attributes: Any) -> Any:
    """The outputs y are computed again, with weights. Those of hidden keys are 0, so that their gradients are."""
    query, key, value, _, _, past_key = (*operands, *[None] * 3)[:6]
    assert query is not None and key is not None and value is not None
    options = AttentionOptions.from_attributes(attributes)
    if not options.need_weights:
        g = [*([g] if isinstance(g, Tensor) else g), None]
    counts, (to_output,) = options.head_counts, filled(g[:1], y[:1])
    scale = options.scale_of(query.shape[-1] // (options.heads or 1))
    if counts is not None:
        query, key, value = map(split_heads, ("query", "key", "value"), (query, key, value), counts)
        to_output = split_heads("output", to_output, counts[0])
    keys, values = (key, value) if past_key is None else (y[1], y[2])
    heads = keys.shape[1]

    def by_key(x: Tensor) -> Tensor:
        """(N, H, L, d) as (N, H_kv, rows, d), joining the queries that read one head of keys, in the type of scores."""
        return at_least_float32(x).reshape(x.shape[0], heads, x.shape[1] // heads * x.shape[2], x.shape[3])

    weights, to_output = by_key(y[-1]), by_key(to_output)
    to_weights = to_output @ at_least_float32(values).mT
    if g[-1] is not None:
        to_weights = to_weights + by_key(g[-1])
    to_scores = weights * (to_weights - (to_weights * weights).sum(axis=(-1,), keepdims=True)) * scale
    to_query = (to_scores @ at_least_float32(keys)).reshape(query.shape)
    parts = [to_scores.mT @ by_key(query), weights.mT @ to_output]
    to_past: list[Tensor | None] = [None, None]
    if past_key is not None:
        parts = [x if more is None else x + more for x, more in zip(parts, g[1:3], strict=True)]
        to_past, parts = [x[:, :, : past_key.shape[2]] for x in parts], [x[:, :, past_key.shape[2] :] for x in parts]
    parts = [to_query, *parts]
    return [*(parts if counts is None else map(joined_heads, parts)), None, None, *to_past]


def _rotary_body(needs_grad: Sequence[bool], *operands: Tensor | None, **attributes: Any) -> Any:
    return ops.rotary_embedding.expand(operands, attributes) if any(needs_grad[1:]) else None


def _rotary(g: Tensor, y: Tensor, x: Tensor, cos: Tensor, sin: Tensor, *positions: Any, **attributes: Any) -> Tensor:
    """Turned back."""
    return ops.rotary_embedding(g, cos, -sin, *positions, **attributes)


# Windows -------------------------------------------------------------------------------------------------------------


def _windows(x: Tensor, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints, fill: float = 0.0) -> Tensor:
    """All windows of (N, C, *spatial): (N, C, *windows, *kernel)."""
    axes = len(kernel)
    if any(pads):
        x = ops.pad(x, before=(0, 0, *pads[:axes]), after=(0, 0, *pads[axes:]), value=fill)
    for i in reversed(range(axes)):
        size, span = x.shape[2 + i], dilations[i] * (kernel[i] - 1) + 1
        count = (size - span) // strides[i] + 1
        if strides[i] == kernel[i] and dilations[i] == 1 and same(count * kernel[i], size):
            x = x.reshape(*x.shape[: 2 + i], count, kernel[i], *x.shape[3 + i :])
        else:
            places = (ops.arange(count) * strides[i]).unsqueeze(1) + ops.arange(kernel[i]) * dilations[i]
            x = ops.take(x, places, 2 + i)
    return x.permute(0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2))


def _conv(g: Tensor, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None, **options: Any) -> Any:
    """The transposed convolution; elements that no window reaches get 0."""
    axes, pads = x.ndim - 2, options.pop("pads")
    spread = ops.conv_transpose(g, weight, pads=(0,) * 2 * axes, output_padding=(0,) * axes, **options)
    rest = [x.shape[2 + i] + pads[i] + pads[axes + i] - spread.shape[2 + i] for i in range(axes)]
    if not all(same(count, 0) for count in rest):
        spread = ops.pad(spread, before=(0,) * x.ndim, after=(0, 0, *rest))
    to_x = spread[(..., *(slice(pads[i], pads[i] + x.shape[2 + i]) for i in range(axes)))]
    windows = _windows(x, _kernel_of(weight), options["strides"], pads, options["dilations"])
    return to_x, _to_weight(windows, g, weight, options["group"]), g.sum(axis=(0, *range(2, g.ndim)))


def _conv_transpose(g: Tensor, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None, **options: Any) -> Any:
    axes, pads, kernel = x.ndim - 2, options.pop("pads"), _kernel_of(weight)
    strides, dilations = options["strides"], options["dilations"]
    whole = ops.pad(g, before=(0, 0, *pads[:axes]), after=(0, 0, *pads[axes:])) if any(pads) else g
    reached = [(x.shape[2 + i] - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 for i in range(axes)]
    whole = whole[(..., *(slice(0, count) for count in reached))]  # not what output_padding adds
    del options["output_padding"]
    to_x = ops.conv(whole, weight, pads=(0,) * 2 * axes, **options)
    windows = _windows(whole, kernel, strides, (0,) * 2 * axes, dilations)
    return to_x, _to_weight(windows, x, weight, options["group"]), g.sum(axis=(0, *range(2, g.ndim)))


def _kernel_of(weight: Tensor) -> Ints:
    return tuple(int(size) for size in weight.shape[2:])


def _to_weight(windows: Tensor, g: Tensor, weight: Tensor, group: int) -> Tensor:
    """The gradient of a weight (out, C / group, *kernel): the product of gradients (N, out, *windows) with windows."""
    n, out, places, depth = g.shape[0], g.shape[1], product(g.shape[2:]), product(weight.shape[2:])
    channels = windows.shape[1] // group
    columns = windows.reshape(n, group, channels, places, depth).permute(1, 0, 3, 2, 4)
    rows = g.reshape(n, group, out // group, places).permute(1, 2, 0, 3).reshape(group, out // group, n * places)
    return (rows @ columns.reshape(group, n * places, channels * depth)).reshape(weight.shape)


def _through(body: Callable[..., Tensor]) -> Rule:
    """The rule of an op of one tensor whose gradient is that of a body written only for this purpose."""

    def gradients(g: Tensor, y: Tensor, x: Tensor, **attributes: Any) -> Tensor | None:
        tape = Tape([x])
        again = tape.replay([body(x, **attributes).to_value()], {id(x.to_value()): x})
        return tape.gradients(again, [g], [x])[0]

    return Rule(gradients)


def _largest(x: Tensor, *, kernel_shape: Ints, strides: Ints, pads: Ints, dilations: Ints) -> Tensor:
    """The first maximum of each window."""
    windows = _windows(x, kernel_shape, strides, pads, dilations, -math.inf)
    windows = windows.reshape(*windows.shape[: -len(kernel_shape)], math.prod(kernel_shape))
    return ops.take_along(windows, ops.argmax(windows, axis=-1, keepdims=True), axis=-1).squeeze(-1)


def _average(x: Tensor, *, kernel_shape: Ints, strides: Ints, pads: Ints, count_include_pad: int) -> Tensor:
    dense, last = (1,) * len(kernel_shape), tuple(range(-len(kernel_shape), 0))
    total = _windows(x, kernel_shape, strides, pads, dense).sum(axis=last)
    if count_include_pad:
        return total * (1 / math.prod(kernel_shape))
    ones = ops.full((1, 1, *x.shape[2:]), 1, x.dtype)
    return total / _windows(ones, kernel_shape, strides, pads, dense).sum(axis=last)


# Loops ---------------------------------------------------------------------------------------------------------------


def _scan_body(
    needs_grad: Sequence[bool], *operands: Tensor, body: Body, carries: int, slices: int, reverse: bool
) -> Any:
    """A loop that also gives the carried values before each step, for the loop of its gradient."""
    before = body.inputs[:carries]
    if any(node.op is ops.dropout for node in with_bodies(in_order(body.outputs))):
        raise GradientError(
            "scan: dropout in a loop or in a recomputed module has no gradient, as steps are computed twice: drop "
            "elements outside, or call eval()"
        )
    if not carries or (len(body.outputs) >= 2 * carries and all(map(is_, body.outputs[-carries:], before))):
        return None
    attributes = {"body": Body(body.inputs, (*body.outputs, *before)), "carries": carries, "slices": slices}
    results: Any = scan_op.apply(operands, {**attributes, "reverse": reverse})
    return results[: len(body.outputs)]


def _scan(
    g: Any, y: Any, *operands: Tensor, body: Body, carries: int, slices: int, reverse: bool, needs_grad: Any
) -> Any:
    """A loop in the other order: each step computes the body once more and goes back through it."""
    g, y = ([g], [y]) if isinstance(y, Tensor) else (g, y)  # of one output alone
    own = carries + slices
    outputs, outer = body.outputs, operands[own:]
    places = [i for i, x in enumerate(operands) if x.dtype.kind == "float" and (i < carries or needs_grad[i])]
    stepwise, summed = [i for i in places if i < own], [i for i in places if i >= own]
    before = [i for i in places if i < carries]
    rows = [i for i in range(carries, len(outputs)) if g[i] is not None]

    def step(state: tuple[list[Tensor], list[Tensor]], x: tuple[list[Tensor], list[Tensor], list[Tensor]]) -> Any:
        (to_carry, totals), (elements, carry, to_rows) = state, x
        inputs = [*carry, *elements, *outer]
        tape = Tape(inputs[i] for i in places)
        again = tape.replay(outputs, {id(value): x for value, x in zip(body.inputs, inputs, strict=True)})
        chosen = [inputs[i] for i in places]
        gradients = tape.gradients([again[i] for i in (*before, *rows)], [*to_carry, *to_rows], chosen)
        now = dict(zip(places, filled(gradients, chosen), strict=True))
        added = [total + now[i] for i, total in zip(summed, totals, strict=True)]
        return ([now[i] for i in before], added), [now[i] for i in stepwise[len(before) :]]

    start = filled([g[i] for i in before], [y[i] for i in before]), [ops.zeros_like(operands[i]) for i in summed]
    xs = list(operands[carries:own]), list(y[len(outputs) - carries :]), [g[i] for i in rows]
    (to_carry, totals), to_elements = ops.scan(step, start, xs, reverse=not reverse)
    by_place = dict(zip((*stepwise, *summed), (*to_carry, *to_elements, *totals), strict=True))
    return [by_place.get(i) for i in range(len(operands))]


RULES |= {
    "matmul": Rule(_matmul),
    "linear": Rule(lambda g, y, x, weight, bias=None: (g @ weight, _rows(g).mT @ _rows(x), g)),
    "grouped_mm": Rule(_grouped_mm),
    "quantized_linear": Rule(_quantized_linear),
    **dict.fromkeys(("int8_linear_dynamic", "int8_linear_rows", "int8_linear_static"), Rule(_int8_linear)),
    "softmax": Rule(lambda g, y, x, *, axis: y * (g - (g * y).sum(axis=(axis,), keepdims=True))),
    "log_softmax": Rule(lambda g, y, x, *, axis: g - y.exp() * g.sum(axis=(axis,), keepdims=True)),
    "layer_norm": Rule(_layer_norm),
    "rms_norm": Rule(_rms_norm),
    "attention": Rule(_attention),
    "rotary_embedding": Rule(_rotary),
    "conv": Rule(_conv),
    "conv_transpose": Rule(_conv_transpose),
    "max_pool": _through(_largest),
    "average_pool": _through(_average),
    "scan": Rule(_scan, selective=True),
}
AGAIN |= {op.name: op.expand for op in (ops.gelu, ops.silu, ops.layer_norm, ops.rms_norm)}
AGAIN["attention"] = _attention_again
BODIES |= {
    # The same elements in both directions.
    "dropout": lambda needs_grad, x, *, p: x * ops.dropout(ops.ones_like(x), p=p),
    "attention": _attention_body,
    "rotary_embedding": _rotary_body,
    "scan": _scan_body,
}
