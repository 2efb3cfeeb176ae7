"""The result of each op, computed from its definition in float64, with loops where these are clearest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid.core.graph.types import Array, DType, bool_
from lucid.ops.indexing import Cut

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def softmax(v: Array, axis: int = -1) -> Array:
    e = np.exp(v)
    return e / e.sum(axis, keepdims=True)


def gelu(v: Array, approximate: str) -> Array:
    if approximate == "none":
        return v * (1 + erf(v / math.sqrt(2))) / 2
    return v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


def layer_norm(v: Array, weight: Array | None = None, bias: Array | None = None, *, axes: int, eps: float) -> Array:
    axis = tuple(range(v.ndim - axes, v.ndim))
    y = (v - v.mean(axis, keepdims=True)) / np.sqrt(v.var(axis, keepdims=True) + eps)
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


def rms_norm(v: Array, weight: Array | None = None, *, eps: float, offset: float) -> Array:
    return v / np.sqrt((v**2).mean(-1, keepdims=True) + eps) * (1 if weight is None else weight + offset)


def per_channel(v: Array, vector: Array | None, default: float) -> Any:
    return default if vector is None else vector.reshape(1, -1, *[1] * (v.ndim - 2))


def batch_norm(
    v: Array, mean: Array, var: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float
) -> Array:
    y = (v - per_channel(v, mean, 0)) / np.sqrt(per_channel(v, var, 0) + eps)
    return y * per_channel(v, weight, 1) + per_channel(v, bias, 0)


def group_norm(v: Array, weight: Array | None = None, bias: Array | None = None, *, groups: int, eps: float) -> Array:
    y = np.empty_like(v)
    width = v.shape[1] // groups
    for n, g in itertools.product(range(v.shape[0]), range(groups)):
        part = v[n, g * width : (g + 1) * width]
        y[n, g * width : (g + 1) * width] = (part - part.mean()) / np.sqrt(part.var() + eps)
    return y * per_channel(v, weight, 1) + per_channel(v, bias, 0)


def windows(v: Array, kernel: tuple[int, ...], strides: Any, pads: Any, dilations: Any, fill: float) -> Any:
    """The position of every output cell, and the values in its window by offset, None in the padding."""
    axes = len(kernel)
    sizes = v.shape[2:]
    counts = [
        (sizes[a] + pads[a] + pads[axes + a] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1
        for a in range(axes)
    ]
    for cell in np.ndindex(*counts):
        seen = {}
        for offset in np.ndindex(*kernel):
            at = tuple(c * s + o * d - p for c, s, o, d, p in zip(cell, strides, offset, dilations, pads, strict=False))
            if all(0 <= i < size for i, size in zip(at, sizes, strict=True)):
                seen[offset] = v[(slice(None), slice(None), *at)]
        yield counts, cell, seen


def conv(
    v: Array, weight: Array, bias: Array | None = None, *, strides: Any, pads: Any, dilations: Any, group: int
) -> Array:
    result = None
    inside, outside = weight.shape[1], weight.shape[0] // group
    for counts, cell, seen in windows(v, weight.shape[2:], strides, pads, dilations, 0):
        result = np.zeros((v.shape[0], weight.shape[0], *counts)) if result is None else result
        for (offset, part), o in itertools.product(seen.items(), range(weight.shape[0])):
            first = o // outside * inside
            for c in range(inside):
                result[(slice(None), o, *cell)] += part[:, first + c] * weight[(o, c, *offset)]
    assert result is not None
    return result + per_channel(result, bias, 0)


def max_pool(v: Array, kernel_shape: Any, strides: Any, pads: Any, dilations: Any) -> Array:
    result = None
    for counts, cell, seen in windows(v, kernel_shape, strides, pads, dilations, -math.inf):
        result = np.zeros((*v.shape[:2], *counts)) if result is None else result
        result[(slice(None), slice(None), *cell)] = np.max(list(seen.values()), axis=0)
    assert result is not None
    return result


def average_pool(v: Array, kernel_shape: Any, strides: Any, pads: Any, count_include_pad: int) -> Array:
    result = None
    for counts, cell, seen in windows(v, kernel_shape, strides, pads, (1,) * len(kernel_shape), 0):
        result = np.zeros((*v.shape[:2], *counts)) if result is None else result
        count = math.prod(kernel_shape) if count_include_pad else len(seen)
        result[(slice(None), slice(None), *cell)] = np.sum(list(seen.values()), axis=0) / count
    assert result is not None
    return result


def adaptive_average_pool(v: Array, output_size: Any) -> Array:
    result = np.zeros((*v.shape[:2], *output_size))
    for cell in np.ndindex(*output_size):
        cut = [
            slice(i * size // n, -(-(i + 1) * size // n))
            for i, n, size in zip(cell, output_size, v.shape[2:], strict=True)
        ]
        axes = tuple(range(2, v.ndim))
        result[(slice(None), slice(None), *cell)] = v[(slice(None), slice(None), *cut)].mean(axes)
    return result


def rotary(
    v: Array, cos: Array, sin: Array, positions: Array | None = None, *, heads: int | None, interleaved: bool
) -> Array:
    """Pairs of features as complex numbers, multiplied by cos + i sin."""
    n, l = v.shape[0], v.shape[-2] if heads is None else v.shape[1]
    split = v if heads is None else v.reshape(n, l, heads, -1).transpose(0, 2, 1, 3)
    turn = cos + 1j * sin
    turn = turn[positions] if positions is not None else np.broadcast_to(turn, (n, l, turn.shape[-1]))
    half, result = cos.shape[-1], split.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    turned = (split[..., first] + 1j * split[..., second]) * turn[:, None]
    result[..., first], result[..., second] = turned.real, turned.imag
    return result if heads is None else result.transpose(0, 2, 1, 3).reshape(v.shape)


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Any = None,
    key_mask: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    sinks: Any = None,
    **a: Any,
) -> Any:
    """The contract of docs/attention.md, one query and one key at a time."""
    packed = a["heads"] is not None
    if packed:
        kv_heads = a["kv_heads"] or a["heads"]
        q, k, v = (
            t.reshape(*t.shape[:2], h, -1).transpose(0, 2, 1, 3)
            for t, h in ((q, a["heads"]), (k, kv_heads), (v, kv_heads))
        )
    past = 0
    if past_k is not None:
        past = past_k.shape[2]
        k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    (n, h, l, d), s = q.shape, k.shape[2]
    group = h // k.shape[1]
    mask = np.broadcast_to(np.zeros(()) if mask is None else mask, (n, h, l, s))
    key_mask = np.broadcast_to(np.zeros(()) if key_mask is None else key_mask, (n, s))
    scale = a["scale"] if a["scale"] is not None else 1 / math.sqrt(d)
    output, weights = np.zeros((n, h, l, v.shape[3])), np.zeros((n, h, l, s))
    for b, head, i in np.ndindex(n, h, l):
        scores: dict[int, float] = {}
        for j in range(s):
            score = scale * float(q[b, head, i] @ k[b, head // group, j])
            if a["softcap"]:
                score = a["softcap"] * math.tanh(score / a["softcap"])
            visible = True
            for part in (mask[b, head, i, j], key_mask[b, j]):
                visible &= bool(part) if part.dtype == bool else bool(part > -np.inf)
                score += 0.0 if part.dtype == bool else float(part)
            visible &= not a["is_causal"] or j <= i + past
            visible &= a["window"] is None or j > i + past - a["window"]
            visible &= a.get("window_after") is None or j <= i + past + a["window_after"]
            if visible:
                scores[j] = score
        total = sum(math.exp(score) for score in scores.values())
        total += 0.0 if sinks is None else math.exp(sinks[head])
        for j, score in scores.items():
            weights[b, head, i, j] = math.exp(score) / total
            output[b, head, i] += weights[b, head, i, j] * v[b, head // group, j]
    results = [output.transpose(0, 2, 1, 3).reshape(n, l, -1) if packed else output]
    results += [k, v] if past_k is not None else []
    results += [weights] if a["need_weights"] else []
    return tuple(results) if len(results) > 1 else results[0]


def take_along(v: Array, i: Array, axis: int) -> Array:
    result = np.empty(i.shape, v.dtype)
    for at in np.ndindex(*i.shape):
        result[at] = v[(*at[:axis], i[at], *at[axis + 1 :])]
    return result


def cut(v: Array, cuts: tuple[Cut, ...]) -> Array:
    for axis, start, stop, step in cuts:
        v = np.take(v, list(range(start, stop, step)), axis)
    return v


def split_at(v: Array, sizes: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    ends = list(itertools.accumulate(sizes))
    return tuple(np.take(v, range(end - size, end), axis) for end, size in zip(ends, sizes, strict=True))


def reduced(function: Callable[..., Any]) -> Callable[..., Array]:
    def reference(v: Array, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
        return np.asarray(function(v, axis=axis, keepdims=keepdims))

    return reference


def to_type(v: Array, dtype: DType) -> Array:
    return v != 0 if dtype is bool_ else np.trunc(v) if dtype.kind == "int" else v


def first_maximum(v: Array, axis: int, keepdims: bool) -> Array:
    rows = np.moveaxis(v, axis, -1)
    positions = np.zeros(rows.shape[:-1], np.int64)
    for at in np.ndindex(*rows.shape[:-1]):
        positions[at] = list(rows[at]).index(max(rows[at]))
    return np.expand_dims(positions, axis) if keepdims else positions


def write_at(buffer: Array, new: Array, starts: Array, *, axis: int) -> Array:
    """One element of the axis at a time."""
    written = np.moveaxis(buffer.copy(), axis, 1)
    for row, step in np.ndindex(new.shape[0], new.shape[axis]):
        written[row, starts[row] + step] = np.moveaxis(new, axis, 1)[row, step]
    return np.moveaxis(written, 1, axis)


def bits(call: Callable[[int, int], int], x: Array, y: Array) -> Array:
    """Python's operator of bits for each pair of whole numbers."""
    pairs = np.broadcast_arrays(x, y)
    return np.asarray([call(int(a), int(b)) for a, b in zip(*(p.ravel() for p in pairs), strict=True)]).reshape(
        pairs[0].shape
    )


def buffered_attention(
    q: Array,
    k: Array,
    v: Array,
    k_buffer: Array,
    v_buffer: Array,
    starts: Array,
    mask: Any = None,
    sinks: Any = None,
    **a: Any,
) -> Any:
    """Each row of the batch alone, with the filled part of its buffer as the past."""
    heads, kv_heads = a["heads"], a["kv_heads"] or a["heads"]
    split = [t if heads is None else t.reshape(*t.shape[:2], kv_heads, -1).transpose(0, 2, 1, 3) for t in (k, v)]
    buffers = [write_at(b, t, starts, axis=2) for b, t in zip((k_buffer, v_buffer), split, strict=True)]
    rows = []
    for n, start in enumerate(starts):
        seen = None if mask is None else np.broadcast_to(mask, (len(starts), *mask.shape[1:]))[n : n + 1]
        seen = None if seen is None else seen[..., : start + q.shape[-2]]
        operands = [t[n : n + 1] for t in (q, k, v)]
        past = [t[n : n + 1, :, :start] for t in (k_buffer, v_buffer)]
        rows.append(attention(*operands, seen, None, *past, sinks, **{"need_weights": False, "dropout_p": 0.0, **a})[0])
    return (np.concatenate(rows) if rows else np.zeros(q.shape), *buffers)


def unpacked(packed: Array, *, bits: int) -> Array:
    """One code at a time, low bits first."""
    per_byte = 8 // bits
    codes = np.zeros((*packed.shape[:-1], packed.shape[-1] * per_byte), np.uint8)
    for at in np.ndindex(codes.shape):
        byte = int(packed[(*at[:-1], at[-1] // per_byte)])
        codes[at] = byte >> bits * (at[-1] % per_byte) & (1 << bits) - 1
    return codes


def dequantized(
    packed: Array, scales: Array, zeros: Array | None, minimums: Array | None, bits: int, block: int, size: int
) -> Array:
    """scale * (code - zero), or scale * code + minimum, one number at a time."""
    codes = unpacked(packed.astype(np.uint8), bits=bits).reshape(len(packed), -1)
    middles = None if zeros is None else unpacked(zeros.astype(np.uint8), bits=bits)
    weight = np.zeros((len(packed), size))
    for n, k in np.ndindex(weight.shape):
        scale, code = scales[n, k // block], float(codes[n, k])
        if minimums is not None:
            weight[n, k] = scale * code + minimums[n, k // block]
        else:
            weight[n, k] = scale * (code - float(1 << (bits - 1) if middles is None else middles[n, k // block]))
    return weight


def quantized_linear(
    x: Array, packed: Array, scales: Array, zeros: Any = None, minimums: Any = None, *, bits: int, block: int
) -> Array:
    weight = dequantized(packed, scales, zeros, minimums, bits, block, x.shape[-1])
    return np.asarray(np.einsum("nlk,ok->nlo", x, weight))


def quantized_embedding(
    indices: Array,
    packed: Array,
    scales: Array,
    zeros: Any = None,
    minimums: Any = None,
    *,
    bits: int,
    block: int,
    width: int,
) -> Array:
    return dequantized(packed, scales, zeros, minimums, bits, block, width)[indices.astype(np.int64)]


def int8_linear_dynamic(x: Array, weight: Array, scales: Array) -> Array:
    """ONNX DynamicQuantizeLinear, one number at a time."""
    low, high = min(0.0, x.min()), max(0.0, x.max())
    step = (high - low) / 255
    zero = round(-low / step)
    rounded = [step * (min(255, max(0, round(number / step) + zero)) - zero) for number in x.reshape(-1)]
    return np.asarray(np.einsum("nlk,ok->nlo", np.reshape(rounded, x.shape), weight * scales[:, None]))


def int8_linear_rows(x: Array, weight: Array, scales: Array) -> Array:
    """In each row the nearest of 256 numbers from its smallest to its largest."""
    rounded = np.zeros(x.shape)
    for at in np.ndindex(x.shape[:-1]):
        numbers = np.linspace(x[at].min(), x[at].max(), 256)
        rounded[at] = [numbers[np.abs(numbers - number).argmin()] for number in x[at]]
    return np.asarray(np.einsum("nlk,ok->nlo", rounded, weight * scales[:, None]))


def int8_linear_static(x: Array, weight: Array, scales: Array, scale: Array, zero: Array) -> Array:
    codes = np.clip(np.rint(x / scale) + zero, 0, 255)
    return np.asarray(np.einsum("nlk,ok->nlo", (codes - zero) * scale, weight * scales[:, None]))


def int8_embedding(indices: Array, weight: Array, scales: Array) -> Array:
    return np.asarray((weight * scales[:, None])[indices.astype(np.int64)])


def scattered(x: Array, indices: Array, values: Array, axis: int, reduction: str) -> Array:
    """Element by element."""
    combine = {"none": lambda _, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    result = x.copy()
    for place in np.ndindex(*indices.shape):
        target = (*place[:axis], indices[place], *place[axis + 1 :])
        result[target] = combine[reduction](result[target], values[place])
    return result


def top(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """By Python's stable sort of each row."""
    rows = np.moveaxis(np.where(np.isnan(x), np.inf, x), axis, -1)
    picks = np.zeros((*rows.shape[:-1], k), np.int64)
    for place in np.ndindex(*rows.shape[:-1]):
        row = rows[place]
        picks[place] = sorted(range(len(row)), key=lambda i: (-row[i] if largest else row[i], i))[:k]
    picks = np.moveaxis(picks, -1, axis)
    return np.take_along_axis(x, picks, axis), picks


def resized(
    x: Array, sizes: tuple[int, ...], factors: tuple[float | None, ...], mode: str, align_corners: bool
) -> Array:
    """One axis after the other, element by element: each is a sum over its neighbours, weighted by their distance."""
    a = -0.75

    def cubic(t: float) -> float:  # Keys 1981
        t = abs(t)
        if t <= 1:
            return (a + 2) * t**3 - (a + 3) * t**2 + 1
        return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0

    for axis, (size, factor) in enumerate(zip(sizes, factors, strict=True), start=2):
        old = x.shape[axis]
        step = old / size if factor is None else 1 / factor
        middle = 0.0 if mode == "nearest" else 0.5
        pieces = []
        for place in range(size):
            at = (place + middle) * step - (0 if mode == "nearest" else 0.5)
            if align_corners:
                at = place * (old - 1) / (size - 1) if size > 1 else 0.0
            if mode == "bilinear":
                at = max(at, 0.0)
            first = math.floor(at + 0.5 if mode == "nearest-exact" else at)
            if mode == "bicubic":
                weights = {first + offset: cubic(at - first - offset) for offset in (-1, 0, 1, 2)}
            else:
                weights = {first: first + 1 - at, first + 1: at - first} if mode == "bilinear" else {first: 1.0}
            pieces.append(sum(w * x.take(min(max(i, 0), old - 1), axis) for i, w in weights.items()))
        x = np.stack(pieces, axis)
    return x


def grouped_mm(x: Array, weight: Array, ends: Array) -> Array:
    """Row by row: that of the first group which does not end before it."""
    return np.array([row @ weight[int(np.argmax(ends > place))] for place, row in enumerate(x)])


def gated_experts(
    x: Array,
    indices: Array,
    weights: Array,
    gate_up: Array,
    down: Array,
    gate_up_bias: Any = None,
    down_bias: Any = None,
    *,
    activation: str,
) -> Array:
    """Token by token."""
    gates = {"silu": lambda v: v * sigmoid(v), "gelu_tanh": lambda v: gelu(v, "tanh")}
    result = np.zeros(x.shape)
    for place in np.ndindex(x.shape[:-1]):
        for expert, weight in zip(indices[place], weights[place], strict=True):
            both = gate_up[expert] @ x[place] + (0 if gate_up_bias is None else gate_up_bias[expert])
            if activation == "clamped_swiglu":
                gate, up = np.minimum(both[::2], 7), np.clip(both[1::2], -7, 7)
                inner = (up + 1) * gate * sigmoid(1.702 * gate)
            else:
                gate, up = np.split(both, 2)
                inner = gates[activation](gate) * up
            result[place] += weight * (down[expert] @ inner + (0 if down_bias is None else down_bias[expert]))
    return result


def mixture_of_experts(
    x: Array,
    router_logits: Array,
    gate_up: Array,
    down: Array,
    gate_up_bias: Any = None,
    down_bias: Any = None,
    *,
    k: int,
    normalized: bool,
    activation: str,
) -> Array:
    weights, indices = top(softmax(router_logits), k, -1, True)
    weights = weights / weights.sum(-1, keepdims=True) if normalized else weights
    return gated_experts(x, indices, weights, gate_up, down, gate_up_bias, down_bias, activation=activation)


def conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    output_padding: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> Array:
    """Every element of the input adds a window to the output, one by one."""
    (n, channels), axes, out = x.shape[:2], x.ndim - 2, weight.shape[1]
    kernel, spatial = weight.shape[2:], x.shape[2:]
    sizes = [
        (spatial[i] - 1) * strides[i]
        + dilations[i] * (kernel[i] - 1)
        + 1
        - pads[i]
        - pads[axes + i]
        + output_padding[i]
        for i in range(axes)
    ]
    result = np.zeros((n, group * out, *sizes))
    for place in np.ndindex(*spatial):
        for offset in np.ndindex(*kernel):
            at = [place[i] * strides[i] + offset[i] * dilations[i] - pads[i] for i in range(axes)]
            if not all(0 <= a < size for a, size in zip(at, sizes, strict=True)):
                continue
            for channel in range(channels):
                g = channel // (channels // group)
                values = x[(slice(None), channel, *place)][:, None] * weight[(channel, slice(None), *offset)]
                result[(slice(None), slice(g * out, (g + 1) * out), *at)] += values
    return result if bias is None else result + bias.reshape(-1, *[1] * axes)


def scanned(h: Array, xs: Array, ws: Array, body: Any, carries: int, slices: int, reverse: bool) -> tuple[Array, Array]:
    """The loop of the samples, whose step is h / 2 + x * w, h - x; the last operand is a sequence or stays the same."""
    results = np.empty(xs.shape)
    for index in range(len(xs))[:: -1 if reverse else 1]:
        results[index] = h - xs[index]
        h = h / 2 + xs[index] * (ws[index] if slices == 2 else ws)
    return h, results
