"""ONNX's operators of neural networks as calls of Lucid: attention, norms, convolutions, pools, recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx

import lucid
from lucid import Tensor, nn, ops
from lucid.nn import functional as F
from tests.onnx_inputs import Attributes, Call, Inexpressible, Inputs, numbers, text


def attention(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    query, key, value, mask, past_key, past_value, filled = (inputs + [None] * 7)[:7]
    keys = key.shape[-2] + (0 if past_key is None else past_key.shape[-2])
    if mask is not None and mask.shape[-1] not in (1, keys):  # what a mask does not reach is hidden
        hidden = False if mask.dtype.kind == "bool" else -math.inf
        mask = F.pad(mask, (0, keys - mask.shape[-1]), value=hidden)
    left, right = a.get("left_window_size", -1), a.get("right_window_size", -1)
    need_weights = len(node.output) > 3 and bool(node.output[3]) and a.get("qk_matmul_output_mode", 0) == 3
    options: dict[str, Any] = {
        "heads": a.get("q_num_heads"),
        "kv_heads": a.get("kv_num_heads"),
        "scale": a.get("scale"),
        "is_causal": bool(a.get("is_causal", 0)),
        "window": left + 1 if left >= 0 else None,
        "window_after": right if right >= 0 else None,
        "softcap": a.get("softcap", 0.0),
        "need_weights": need_weights,
    }
    key_mask = None
    if filled is not None:  # positions count from the end of what is filled
        key_mask = lucid.arange(keys) < filled.unsqueeze(1)
        mask = _joined(mask, _positions(query.shape[-2], keys, filled, options))
    result = ops.attention(query, key, value, mask, key_mask, past_key, past_value, **options)
    results = list(result) if isinstance(result, tuple) else [result]
    present: list[Tensor | None] = results[1:3] if past_key is not None else [None, None]
    return [results[0], *present, results[-1] if need_weights else None]


def _positions(queries: int, keys: int, filled: Tensor, options: dict[str, Any]) -> Tensor | None:
    """Causality and windows as a mask (N, 1, L, S), where the last query is the last key that is filled."""
    key = lucid.arange(keys)
    query = (lucid.arange(queries).unsqueeze(0) + (filled - queries).unsqueeze(1)).unsqueeze(-1).unsqueeze(1)
    after = 0 if options["is_causal"] else options["window_after"]
    seen = [] if after is None else [key <= query + after]
    if options["window"] is not None:
        seen.append(key > query - options["window"])
    options |= {"is_causal": False, "window": None, "window_after": None}
    return None if not seen else seen[0] if len(seen) == 1 else seen[0] & seen[1]


def _joined(mask: Tensor | None, seen: Tensor | None) -> Tensor | None:
    if mask is None or seen is None:
        return seen if mask is None else mask
    return mask & seen if mask.dtype.kind == "bool" else ops.where(seen, mask, -math.inf)


def dropout(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, _, training = (inputs + [None] * 2)[:3]
    if training is not None and training.item():
        raise Inexpressible("training")
    return [x, None]


def hardmax(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), axis = inputs, a.get("axis", -1)
    hit = x.argmax(axis).unsqueeze(-1) == lucid.arange(x.shape[axis])
    return [hit.movedim(-1, axis).astype(x.dtype)]


def rotary(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    heads = a.get("num_heads") if inputs[0].ndim == 3 else None
    return [ops.rotary_embedding(*inputs, heads=heads, interleaved=bool(a.get("interleaved", 0)))]


def layer_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    rank = inputs[0].ndim
    return [ops.layer_norm(*inputs, axes=rank - a.get("axis", -1) % rank, eps=a.get("epsilon", 1e-5)), None, None]


def rms_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, weight = inputs
    return [F.rms_norm(x, x.shape[a.get("axis", -1) % x.ndim :], weight, a.get("epsilon", 1e-5))]


def softmax(call: Callable[..., Tensor]) -> Call:
    return lambda inputs, a, node: [call(*inputs, axis=a.get("axis", -1))]


def _pads(
    a: Attributes, x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    mode = text(a, "auto_pad", "NOTSET")
    if mode == "VALID":
        return [0] * (2 * len(kernel))
    if mode == "NOTSET":
        return list(a.get("pads", [0] * (2 * len(kernel))))
    totals = [
        max(0, (-(-size // s) - 1) * s + d * (k - 1) + 1 - size)
        for size, s, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)
    ]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return [*less, *more] if mode == "SAME_UPPER" else [*more, *less]


def _window(inputs: Inputs, a: Attributes, kernel: Sequence[int]) -> dict[str, Any]:
    """Strides, pads and dilations as Lucid's ops name them."""
    count = len(kernel)
    strides, dilations = list(a.get("strides", [1] * count)), list(a.get("dilations", [1] * count))
    pads = _pads(a, inputs[0], kernel, strides, dilations)
    return {"strides": tuple(strides), "pads": tuple(pads), "dilations": tuple(dilations)}


def conv(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    return [ops.conv(*inputs, **_window(inputs, a, inputs[1].shape[2:]), group=a.get("group", 1))]


def conv_transpose(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    kernel = inputs[1].shape[2:]
    if "output_shape" in a or text(a, "auto_pad", "NOTSET") != "NOTSET":
        raise Inexpressible("transposed convolutions have pads, no output shape")
    options = _window(inputs, a, kernel)
    extra = tuple(a.get("output_padding", [0] * len(kernel)))
    return [ops.conv_transpose(*inputs, **options, output_padding=extra, group=a.get("group", 1))]


def pool(call: Callable[..., Tensor], maximum: bool) -> Call:
    def run(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
        kernel = tuple(a["kernel_shape"])
        options = _window(inputs, a, kernel)
        if a.get("ceil_mode", 0):
            raise Inexpressible("windows that begin in the padding: pad the input to a whole number of windows")
        if len(node.output) > 1:
            raise Inexpressible("the places of maxima are no output")
        if not maximum:
            if set(options.pop("dilations")) != {1}:
                raise Inexpressible("means have no dilation")
            options["count_include_pad"] = a.get("count_include_pad", 0)
        if inputs[0].dtype.kind != "float":
            raise Inexpressible("pools are of floats")
        return [call(inputs[0], kernel_shape=kernel, **options)]

    return run


def global_pool(call: Callable[..., Tensor]) -> Call:
    return lambda inputs, a, node: [call(inputs[0], axis=tuple(range(2, inputs[0].ndim)), keepdims=True)]


def batch_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    if a.get("training_mode", 0):
        raise Inexpressible("training")
    x, weight, bias, mean, variance = inputs
    return [ops.batch_norm(x, mean, variance, weight, bias, eps=a.get("epsilon", 1e-5))]


def instance_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, weight, bias = inputs
    return [ops.group_norm(x, weight, bias, groups=x.shape[1], eps=a.get("epsilon", 1e-5))]


def group_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    return [ops.group_norm(*inputs, groups=a["num_groups"], eps=a.get("epsilon", 1e-5))]


def lp_normalization(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,) = inputs
    return [F.normalize(x, p=a.get("p", 2), axis=a.get("axis", -1))]


def mean_variance(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), axes = inputs, tuple(a.get("axes", (0, 2, 3)))
    return [(x - x.mean(axes, keepdim=True)) / (ops.variance(x, axes).sqrt() + 1e-9)]


def resize(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, roi, scales, sizes = (inputs + [None] * 3)[:4]
    mode, place = text(a, "mode", "nearest"), text(a, "coordinate_transformation_mode", "half_pixel")
    if roi is not None or a.get("antialias", 0) or "axes" in a or a.get("exclude_outside", 0):
        raise Inexpressible("interpolation of whole images, without antialias")
    if text(a, "keep_aspect_ratio_policy", "stretch") != "stretch" or x.ndim != 4:
        raise Inexpressible("interpolation of whole images, without antialias")
    if sizes is not None:
        options: dict[str, Any] = {"size": numbers(sizes)[2:]}
        if numbers(sizes)[:2] != list(x.shape[:2]):
            raise Inexpressible("interpolation of whole images, without antialias")
    else:
        options = {"scale_factor": tuple(float(v) for v in scales.numpy()[2:])}
        if list(scales.numpy()[:2]) != [1, 1]:
            raise Inexpressible("interpolation of whole images, without antialias")
    if mode == "nearest" and (place, text(a, "nearest_mode", "round_prefer_floor")) == ("asymmetric", "floor"):
        return [F.interpolate(x, mode="nearest", **options)]
    shrunk = any(wide < 2 for wide in options.get("size", [2])) or (scales is not None and min(scales.numpy()) < 1)
    if mode == "linear" and (
        place == "half_pixel" or (place in ("align_corners", "pytorch_half_pixel") and not shrunk)
    ):
        return [F.interpolate(x, mode="bilinear", align_corners=place == "align_corners", **options)]
    raise Inexpressible("interpolation as torch has it: other kernels and coordinates")


def grid_sample(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    mode = text(a, "mode", "linear")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    options = {"padding_mode": text(a, "padding_mode", "zeros"), "align_corners": bool(a.get("align_corners", 0))}
    return [F.grid_sample(*inputs, mode, **options)]


def affine_grid(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    theta, size = inputs[0], numbers(inputs[1])
    return [F.affine_grid(theta, size, bool(a.get("align_corners", 0)))]


def recurrent(kind: str) -> Call:
    """One layer in one direction; gates in ONNX's order."""

    def run(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
        x, w, r, b, lengths, h0, c0, peephole = (inputs + [None] * 8)[:8]
        hidden = a["hidden_size"]
        direction, batch_first = text(a, "direction", "forward"), bool(a.get("layout", 0))
        if direction == "bidirectional" or peephole is not None:
            raise Inexpressible("recurrent layers as torch has them")
        order = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}[kind]
        own = {"reset_after": bool(a.get("linear_before_reset", 0))} if kind == "GRU" else {}
        reverse = direction == "reverse"
        layer = getattr(nn, kind)(x.shape[2], hidden, batch_first=batch_first, reverse=reverse, **own)

        def gates(v: Tensor) -> Tensor:
            parts = v.split(hidden, 0)
            return lucid.cat([parts[i] for i in order])

        biases = lucid.zeros(2 * len(order) * hidden) if b is None else b[0]
        first, second = biases.split(len(order) * hidden, 0)
        names = {
            "weight_ih_l0": gates(w[0]),
            "weight_hh_l0": gates(r[0]),
            "bias_ih_l0": gates(first),
            "bias_hh_l0": gates(second),
        }
        layer.load_state_dict({name: value.numpy() for name, value in names.items()})
        state = None if h0 is None else (h0, c0) if kind == "LSTM" else h0
        output, last = layer(x, state, lengths=lengths)
        final = last if isinstance(last, tuple) else (last,)
        if batch_first:
            return [output.unsqueeze(2), *(each.transpose(0, 1) for each in final)]
        return [output.unsqueeze(1), *final]

    return run


def celu(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), alpha = inputs, a.get("alpha", 1.0)
    return [x.clamp(min=0) + (alpha * ((x / alpha).exp() - 1)).clamp(max=0)]


def selu(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    alpha, gamma = a.get("alpha", 1.67326319217681884765625), a.get("gamma", 1.05070102214813232421875)
    return [F.elu(inputs[0], alpha) * gamma]


def shrink(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), bias, limit = inputs, a.get("bias", 0.0), a.get("lambd", 0.5)
    return [ops.where(x < -limit, x + bias, ops.where(x > limit, x - bias, 0.0))]


def loss(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    """The negative logarithms of probabilities (N, C, ...) at classes (N, ...)."""
    scores, classes, weight = [*inputs, None][:3]
    logs = F.log_softmax(scores, 1) if node.op_type == "SoftmaxCrossEntropyLoss" else scores
    ignored = classes == a["ignore_index"] if "ignore_index" in a else lucid.zeros(classes.shape, dtype=bool)
    known = ops.where(ignored, 0, classes)
    factors = lucid.ones(classes.shape) if weight is None else ops.take(weight, known, 0)
    factors = ops.where(ignored, 0.0, factors)
    losses = -ops.take_along(logs, known.astype("int64").unsqueeze(1), axis=1).squeeze(1) * factors
    how = text(a, "reduction", "mean")
    total = losses if how == "none" else losses.sum() if how == "sum" else losses.sum() / factors.sum()
    return [total, logs]


def lp_pool(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    power, kernel = a.get("p", 2), tuple(a["kernel_shape"])
    options = _window(inputs, a, kernel)
    if a.get("ceil_mode", 0) or set(options.pop("dilations")) != {1}:
        raise Inexpressible("means have no dilation")
    means = ops.average_pool(abs(inputs[0]) ** power, kernel_shape=kernel, count_include_pad=1, **options)
    return [(means * math.prod(kernel)) ** (1 / power)]
