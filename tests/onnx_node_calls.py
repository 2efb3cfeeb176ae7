"""ONNX's operators as calls of Lucid: what a node means, written in ops, for `test_backend_node_tests.py`.

A call takes the inputs (None for an absent one), the attributes and the node, and gives the outputs; None where Lucid
has no such output. It raises `Inexpressible` with the reason for what Lucid cannot express.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

import lucid
from lucid import Tensor, nn, ops
from lucid.nn import functional as F

Inputs = list[Any]
Attributes = Mapping[str, Any]
Call = Callable[[Inputs, Attributes, onnx.NodeProto], list[Tensor | None]]


class Inexpressible(Exception):
    """Why Lucid cannot express a node."""


UNKNOWN_TYPE = "an element type that Lucid does not have"

# Whole operators that Lucid does not have, by reason.
REASONS: dict[str, str] = {
    "GRU": "torch's gates: linear_before_reset=1, of which the wheel has no test",
    **dict.fromkeys("Adagrad Adam Momentum Bernoulli".split(), "training"),
    **dict.fromkeys("Acos Acosh Asin Asinh Atan Atanh Det".split(), "no such function"),
    **dict.fromkeys(
        "BlackmanWindow HammingWindow HannWindow DFT STFT MelWeightMatrix".split(), "no Fourier transforms"
    ),
    **dict.fromkeys("BitCast BitShift".split(), "no such operation on bits"),
    **dict.fromkeys(
        "SequenceInsert SequenceMap SplitToSequence OptionalGetElement OptionalHasElement".split(), "no sequences"
    ),
    **dict.fromkeys("RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer".split(), "no strings"),
    **dict.fromkeys("If Loop Scan".split(), "bodies are Python functions, not graphs"),
    **dict.fromkeys(
        "QuantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul".split(),
        "other codes of few bits",
    ),
    **dict.fromkeys("ConvInteger MatMulInteger".split(), "products of integers are of one type"),
    **dict.fromkeys("NonMaxSuppression Unique".split(), "the number of results is known only at run time"),
    **dict.fromkeys("DeformConv RoiAlign MaxUnpool LRN Col2Im ImageDecoder Upsample".split(), "no such layer"),
    **dict.fromkeys(
        "CausalConvWithState LinearAttention FlexAttention TensorScatter SwiGLU ScatterND".split(), "no op of this form"
    ),
    **dict.fromkeys("CumProd".split(), "no such function"),
}


def text(a: Attributes, name: str, usual: str) -> str:
    """An attribute of text."""
    value = a.get(name, usual)
    return value.decode() if isinstance(value, bytes) else value


def numbers(x: Tensor) -> list[int]:
    """The values of a tensor of sizes or axes."""
    return [int(v) for v in x.numpy().ravel()]


def _one(call: Callable[..., Any]) -> Call:
    """An operator whose inputs are the operands of one call."""
    return lambda inputs, a, node: [call(*inputs)]


def _each(call: Callable[[Any, Any], Any]) -> Call:
    """An operator of any number of inputs, joined two by two."""

    def run(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
        total = inputs[0]
        for x in inputs[1:]:
            total = call(total, x)
        return [total]

    return run


def _attention(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    query, key, value, mask, past_key, past_value, filled = (inputs + [None] * 7)[:7]
    keys = key.shape[-2] + (0 if past_key is None else past_key.shape[-2])
    if mask is not None and mask.shape[-1] not in (1, keys):  # what a mask does not reach is hidden
        hidden = False if mask.dtype.kind == "bool" else -math.inf
        mask = F.pad(mask, (0, keys - mask.shape[-1]), value=hidden)
    left, right = a.get("left_window_size", -1), a.get("right_window_size", -1)
    wanted = len(node.output) > 3 and bool(node.output[3]) and a.get("qk_matmul_output_mode", 0) == 3
    options: dict[str, Any] = {
        "heads": a.get("q_num_heads"),
        "kv_heads": a.get("kv_num_heads"),
        "scale": a.get("scale"),
        "is_causal": bool(a.get("is_causal", 0)),
        "window": left + 1 if left >= 0 else None,
        "window_after": right if right >= 0 else None,
        "softcap": a.get("softcap", 0.0),
        "need_weights": wanted,
    }
    key_mask = None
    if filled is not None:  # positions count from the end of what is filled
        key_mask = lucid.arange(keys) < filled.unsqueeze(1)
        mask = _joined(mask, _positions(query.shape[-2], keys, filled, options))
    result = ops.attention(query, key, value, mask, key_mask, past_key, past_value, **options)
    results = list(result) if isinstance(result, tuple) else [result]
    present: list[Tensor | None] = results[1:3] if past_key is not None else [None, None]
    return [results[0], *present, results[-1] if wanted else None]


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


def _cast(x: Tensor, code: int) -> list[Tensor | None]:
    try:
        return [x.astype(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)))]
    except TypeError as error:
        raise Inexpressible(UNKNOWN_TYPE) from error


def _compress(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, kept = inputs
    x, axis = (x, a["axis"]) if "axis" in a else (x.flatten(), 0)
    return [x.index_select(axis, kept.nonzero()[:, 0])]


def _dropout(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, _, training = (inputs + [None] * 2)[:3]
    if training is not None and training.item():
        raise Inexpressible("training")
    return [x, None]


def _hardmax(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), axis = inputs, a.get("axis", -1)
    hit = x.argmax(axis).unsqueeze(-1) == lucid.arange(x.shape[axis])
    return [hit.movedim(-1, axis).astype(x.dtype)]


def _rotary(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    heads = a.get("num_heads") if inputs[0].ndim == 3 else None
    return [ops.rotary_embedding(*inputs, heads=heads, interleaved=bool(a.get("interleaved", 0)))]


def _layer_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    rank = inputs[0].ndim
    return [ops.layer_norm(*inputs, axes=rank - a.get("axis", -1) % rank, eps=a.get("epsilon", 1e-5)), None, None]


def _rms_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, weight = inputs
    return [F.rms_norm(x, x.shape[a.get("axis", -1) % x.ndim :], weight, a.get("epsilon", 1e-5))]


def _reduction(call: Callable[..., Any], needs_no_elements: bool = True) -> Call:
    """Axes come as an input or an attribute; without them all are meant, or none."""

    def run(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
        x = inputs[0]
        given = numbers(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else list(a.get("axes", ()))
        if not given and a.get("noop_with_empty_axes", 0):
            return [call(x.unsqueeze(0), axis=(0,), keepdims=False)]
        axes = tuple(axis % x.ndim for axis in given) or tuple(range(x.ndim))
        if not needs_no_elements and 0 in x.shape:
            raise Inexpressible("the maximum of nothing")
        return [call(x, axis=axes, keepdims=bool(a.get("keepdims", 1)))]

    return run


def _log_sum_exp(x: Tensor, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    most = x.amax(axis, keepdim=True)
    shift = ops.where(ops.isfinite(most), most, 0.0)
    total = ops.sum(ops.exp(x - shift), axis=axis, keepdims=True).log() + shift
    return total if keepdims else ops.squeeze(total, axis)


def _like(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The result in the element type of the operand: Lucid's sums of integers are int64."""
    return lambda x, **options: call(x, **options).astype(x.dtype)


def _arg(call: Callable[..., Tensor]) -> Call:
    def run(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
        (x,), axis = inputs, a.get("axis", 0)
        last = bool(a.get("select_last_index", 0))
        found = call(x.flip(axis) if last else x, axis, bool(a.get("keepdims", 1)))
        return [x.shape[axis] - 1 - found if last else found]

    return run


def _cumsum(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, (axis,) = inputs[0], numbers(inputs[1])
    turned = x.flip(axis) if a.get("reverse", 0) else x
    total = turned.cumsum(axis).astype(x.dtype)
    total = total - turned if a.get("exclusive", 0) else total
    return [total.flip(axis) if a.get("reverse", 0) else total]


def _softmax(call: Callable[..., Tensor]) -> Call:
    return lambda inputs, a, node: [call(*inputs, axis=a.get("axis", -1))]


def _gemm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, y, c = [*inputs, None][:3]
    x, y = x.T if a.get("transA", 0) else x, y.T if a.get("transB", 0) else y
    product = (x @ y) * a.get("alpha", 1.0)
    return [product if c is None else product + c * a.get("beta", 1.0)]


def _reshape(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, shape = inputs[0], numbers(inputs[1])
    kept = [x.shape[i] if size == 0 and not a.get("allowzero", 0) else size for i, size in enumerate(shape)]
    return [x.reshape(kept)]


def _flatten(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,) = inputs
    axis = a.get("axis", 1)
    return [x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))]


def _split(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, axis = inputs[0], a.get("axis", 0)
    if len(inputs) > 1 and inputs[1] is not None:
        return list(x.split(numbers(inputs[1]), axis))
    size = -(-x.shape[axis] // len(node.output))
    sizes = [min(size, max(0, x.shape[axis] - size * i)) for i in range(len(node.output))]
    return list(x.split(sizes, axis))


def _slice(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, starts, ends, axes, steps = (inputs + [None] * 2)[:5]
    first, last = numbers(starts), numbers(ends)
    which = range(len(first)) if axes is None else numbers(axes)
    jumps = [1] * len(first) if steps is None else numbers(steps)
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(which, first, last, jumps, strict=True):
        size = x.shape[axis]
        index[axis % x.ndim] = slice(start, None if step < 0 and end < -size else end, step)
    return [x[tuple(index)]]


def _pad(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, pads, value, axes = (inputs + [None] * 3)[:4]
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}[
        text(a, "mode", "constant")
    ]
    which = range(x.ndim) if axes is None else [axis % x.ndim for axis in numbers(axes)]
    amounts = numbers(pads)
    both = dict(zip(which, zip(amounts[: len(amounts) // 2], amounts[len(amounts) // 2 :], strict=True), strict=True))
    if mode != "constant":  # for the last axes, and without those that are not padded
        for axis, (before, after) in both.items():
            if before or after:
                moved = x.movedim(axis, -1)
                flat = moved.reshape(1, math.prod(moved.shape[:-1]), moved.shape[-1])
                padded = F.pad(flat, (before, after), mode=mode)
                x = padded.reshape(*moved.shape[:-1], padded.shape[-1]).movedim(-1, axis)
        return [x]
    order = [amount for axis in reversed(range(x.ndim)) for amount in both.get(axis, (0, 0))]
    return [F.pad(x, order, value=0 if value is None else value.item())]


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


def _conv(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    return [ops.conv(*inputs, **_window(inputs, a, inputs[1].shape[2:]), group=a.get("group", 1))]


def _conv_transpose(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    kernel = inputs[1].shape[2:]
    if "output_shape" in a or text(a, "auto_pad", "NOTSET") != "NOTSET":
        raise Inexpressible("transposed convolutions have pads, no output shape")
    options = _window(inputs, a, kernel)
    extra = tuple(a.get("output_padding", [0] * len(kernel)))
    return [ops.conv_transpose(*inputs, **options, output_padding=extra, group=a.get("group", 1))]


def _pool(call: Callable[..., Tensor], maximum: bool) -> Call:
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


def _global_pool(call: Callable[..., Tensor]) -> Call:
    return lambda inputs, a, node: [call(inputs[0], axis=tuple(range(2, inputs[0].ndim)), keepdims=True)]


def _batch_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    if a.get("training_mode", 0):
        raise Inexpressible("training")
    x, weight, bias, mean, variance = inputs
    return [ops.batch_norm(x, mean, variance, weight, bias, eps=a.get("epsilon", 1e-5))]


def _instance_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, weight, bias = inputs
    return [ops.group_norm(x, weight, bias, groups=x.shape[1], eps=a.get("epsilon", 1e-5))]


def _group_norm(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    return [ops.group_norm(*inputs, groups=a["num_groups"], eps=a.get("epsilon", 1e-5))]


def _lp_normalization(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,) = inputs
    return [F.normalize(x, p=a.get("p", 2), axis=a.get("axis", -1))]


def _mean_variance(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), axes = inputs, tuple(a.get("axes", (0, 2, 3)))
    return [(x - x.mean(axes, keepdim=True)) / (ops.variance(x, axes).sqrt() + 1e-9)]


def _gather(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, indices = inputs
    return [ops.take(x, indices, a.get("axis", 0))]


def _gather_elements(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, indices = inputs
    return [ops.take_along(x, indices, axis=a.get("axis", 0))]


def _gather_nd(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, indices = inputs
    if a.get("batch_dims", 0):
        raise Inexpressible("gather_nd has no batch axes")
    return [ops.gather_nd(x, indices)]


def _scatter_elements(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x, indices, values), axis = inputs, a.get("axis", 0)
    how = text(a, "reduction", "none")
    if how not in ("none", "add"):
        raise Inexpressible("scatter replaces or adds")
    indices = ops.where(indices < 0, indices + x.shape[axis], indices)
    return [(ops.scatter if how == "none" else ops.scatter_add)(x, axis, indices, values)]


def _one_hot(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    indices, (depth,), values = inputs[0].astype("int64"), numbers(inputs[1]), inputs[2]
    axis, off, on = a.get("axis", -1), values[0], values[1]
    hit = ops.where(indices < 0, indices + depth, indices).unsqueeze(-1) == lucid.arange(depth)
    return [ops.where(hit, on, off).movedim(-1, axis)]


def _topk(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, (k,) = inputs[0], numbers(inputs[1])
    return list(x.topk(k, a.get("axis", -1), bool(a.get("largest", 1))))


def _resize(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
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


def _grid_sample(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    mode = {"linear": "bilinear"}.get(text(a, "mode", "linear"), text(a, "mode", "linear"))
    if inputs[0].ndim != 4 or mode not in ("bilinear", "nearest"):
        raise Inexpressible("samples of volumes, and cubic ones")
    options = {"padding_mode": text(a, "padding_mode", "zeros"), "align_corners": bool(a.get("align_corners", 0))}
    return [F.grid_sample(*inputs, mode, **options)]


def _affine_grid(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    theta, size = inputs[0], numbers(inputs[1])
    if len(size) != 4:
        raise Inexpressible("grids of volumes")
    return [F.affine_grid(theta, size, bool(a.get("align_corners", 0)))]


def _depth_to_space(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), block = inputs, a["blocksize"]
    n, c, h, w = x.shape
    if text(a, "mode", "DCR") == "DCR":
        parts = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // block**2, block, block, h, w).permute(0, 1, 4, 2, 5, 3)
    return [parts.reshape(n, c // block**2, h * block, w * block)]


def _space_to_depth(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), block = inputs, a["blocksize"]
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block)
    order = (0, 3, 5, 1, 2, 4) if text(a, "mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return [parts.permute(order).reshape(n, c * block**2, h // block, w // block)]


def _trilu(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, k = [*inputs, None][:2]
    call = lucid.triu if a.get("upper", 1) else lucid.tril
    return [call(x, 0 if k is None else int(k.numpy().reshape(()).item()))]


def _shape(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    return [lucid.tensor(np.array(inputs[0].shape[a.get("start", 0) : a.get("end", None)], np.int64))]


def _eye(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    if a.get("dtype", 1) not in (1, 6, 7, 11) or a.get("k", 0):
        raise Inexpressible("eye has ones on the diagonal")
    dtype = {1: "float32", 6: "int32", 7: "int64", 11: "float64"}[a["dtype"]] if "dtype" in a else inputs[0].dtype
    return [lucid.eye(*inputs[0].shape, dtype=dtype)]


def _is_inf(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,) = inputs
    above = (x == math.inf) & bool(a.get("detect_positive", 1))
    return [above | ((x == -math.inf) & bool(a.get("detect_negative", 1)))]


def _clip(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, low, high = (inputs + [None] * 2)[:3]
    return [x if low is None and high is None else x.clamp(low, high)]


def _mod(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, y = inputs
    if not a.get("fmod", 0):
        return [x % y]
    return [x - y * x.div(y, rounding_mode="trunc")]


def _div(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, y = inputs
    return [x / y if x.dtype.kind == "float" else x.div(y, rounding_mode="trunc")]


def _pow(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, y = inputs
    return [(x**y).astype(x.dtype)]


def _recurrent(kind: str) -> Call:
    """One layer, forward; gates in ONNX's order."""

    def run(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
        x, w, r, b, lengths, h0, c0, peephole = (inputs + [None] * 8)[:8]
        hidden = a["hidden_size"]
        if text(a, "direction", "forward") != "forward" or peephole is not None or a.get("layout", 0):
            raise Inexpressible("recurrent layers as torch has them")
        order = {"LSTM": (0, 2, 3, 1), "RNN": (0,)}[kind]
        layer = getattr(nn, kind)(x.shape[2], hidden)

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
        if lengths is not None and set(numbers(lengths)) != {x.shape[0]}:
            raise Inexpressible("recurrent layers as torch has them")
        output, last = layer(x) if state is None else layer(x, state)
        final = last if isinstance(last, tuple) else (last,)
        return [output.unsqueeze(1), *final]

    return run


def _celu(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), alpha = inputs, a.get("alpha", 1.0)
    return [x.clamp(min=0) + (alpha * ((x / alpha).exp() - 1)).clamp(max=0)]


def _selu(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    alpha, gamma = a.get("alpha", 1.67326319217681884765625), a.get("gamma", 1.05070102214813232421875)
    return [F.elu(inputs[0], alpha) * gamma]


def _shrink(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x,), bias, limit = inputs, a.get("bias", 0.0), a.get("lambd", 0.5)
    return [ops.where(x < -limit, x + bias, ops.where(x > limit, x - bias, 0.0))]


def _reverse_sequence(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, lengths = inputs
    if (a.get("batch_axis", 1), a.get("time_axis", 0)) != (1, 0):
        return [
            t if t is None else t.transpose(0, 1) for t in _reverse_sequence([x.transpose(0, 1), lengths], {}, node)
        ]
    steps = lucid.arange(x.shape[0]).unsqueeze(1)
    places = ops.where(steps < lengths, lengths - 1 - steps, steps)
    return [ops.take_along(x, places.reshape(*places.shape, *[1] * (x.ndim - 2)).expand(x.shape), axis=0)]


def _constant_of_shape(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    value = onnx.numpy_helper.to_array(a["value"]) if "value" in a else np.zeros(1, np.float32)
    return [lucid.full(numbers(inputs[0]), value.item(), dtype=str(value.dtype))]


def _crop_pad(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, sizes = inputs[0], numbers(inputs[1])
    for axis, size in zip([axis % x.ndim for axis in a.get("axes", range(x.ndim))], sizes, strict=True):
        spare = x.shape[axis] - size
        if spare > 0:
            x = x.narrow(axis, spare // 2, size)
        elif spare < 0:
            before = -spare // 2
            amounts = [0, 0] * (x.ndim - 1 - axis) + [before, -spare - before]
            x = F.pad(x, amounts)
    return [x]


def _loss(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
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


def _lp_pool(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    power, kernel = a.get("p", 2), tuple(a["kernel_shape"])
    options = _window(inputs, a, kernel)
    if a.get("ceil_mode", 0) or set(options.pop("dilations")) != {1}:
        raise Inexpressible("means have no dilation")
    means = ops.average_pool(abs(inputs[0]) ** power, kernel_shape=kernel, count_include_pad=1, **options)
    return [(means * math.prod(kernel)) ** (1 / power)]


def _dequantize(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    (x, scale, zero), axis = [*inputs, None][:3], a.get("axis", 1)
    if a.get("block_size", 0):
        raise Inexpressible("other codes of few bits")
    along = [-1, *[1] * (x.ndim - axis % x.ndim - 1)] if scale.ndim else []
    codes = x.astype(scale.dtype) - (0 if zero is None else zero.reshape(along).astype(scale.dtype))
    return [codes * scale.reshape(along)]


CALLS: dict[str, Call] = {
    **{
        name: _one(getattr(ops, call))
        for name, call in {
            "Abs": "abs",
            "Neg": "neg",
            "Exp": "exp",
            "Log": "log",
            "Sqrt": "sqrt",
            "Sin": "sin",
            "Cos": "cos",
            "Tanh": "tanh",
            "Erf": "erf",
            "Floor": "floor",
            "Ceil": "ceil",
            "Round": "round",
            "Sign": "sign",
            "Sigmoid": "sigmoid",
            "Reciprocal": "reciprocal",
            "IsNaN": "isnan",
            "Not": "logical_not",
            "Relu": "relu",
            "Softplus": "softplus",
            "Add": "add",
            "Sub": "sub",
            "Mul": "mul",
            "Equal": "equal",
            "And": "logical_and",
            "Or": "logical_or",
            "BitwiseAnd": "bitwise_and",
            "BitwiseOr": "bitwise_or",
            "BitwiseXor": "bitwise_xor",
            "BitwiseNot": "bitwise_not",
            "MatMul": "matmul",
            "Where": "where",
        }.items()
    },
    "Xor": _one(lambda x, y: x ^ y),
    "Less": _one(lambda x, y: x < y),
    "LessOrEqual": _one(lambda x, y: x <= y),
    "Greater": _one(lambda x, y: x > y),
    "GreaterOrEqual": _one(lambda x, y: x >= y),
    "Identity": _one(lambda x: x),
    "Tan": _one(lambda x: x.sin() / x.cos()),
    "Sinh": _one(lambda x: (x.exp() - (-x).exp()) / 2),
    "Cosh": _one(lambda x: (x.exp() + (-x).exp()) / 2),
    "HardSwish": _one(F.hardswish),
    "Softsign": _one(lambda x: x / (1 + abs(x))),
    "Mish": _one(lambda x: x * ops.softplus(x).tanh()),
    "PRelu": _one(lambda x, slope: ops.where(x < 0, x * slope, x)),
    "NonZero": _one(lambda x: x.nonzero().T),
    "Size": _one(lambda x: lucid.tensor(x.numel())),
    "Range": _one(lambda start, stop, step: lucid.arange(start.item(), stop.item(), step.item(), dtype=start.dtype)),
    "Expand": _one(lambda x, shape: x.broadcast_to(np.broadcast_shapes(x.shape, numbers(shape)))),
    "Tile": _one(lambda x, repeats: x.tile(numbers(repeats))),
    "Max": _each(ops.maximum),
    "Min": _each(ops.minimum),
    "Sum": _each(ops.add),
    "Mean": lambda inputs, a, node: [sum(inputs[1:], start=inputs[0]) / len(inputs)],
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _loss),
    "LpPool": _lp_pool,
    "DequantizeLinear": _dequantize,
    "Gelu": lambda inputs, a, node: [ops.gelu(*inputs, approximate=text(a, "approximate", "none"))],
    "LeakyRelu": lambda inputs, a, node: [F.leaky_relu(*inputs, a.get("alpha", 0.01))],
    "Elu": lambda inputs, a, node: [F.elu(*inputs, a.get("alpha", 1.0))],
    "HardSigmoid": lambda inputs, a, node: [(inputs[0] * a.get("alpha", 0.2) + a.get("beta", 0.5)).clamp(0, 1)],
    "ThresholdedRelu": lambda inputs, a, node: [ops.where(inputs[0] > a.get("alpha", 1.0), inputs[0], 0.0)],
    "Swish": lambda inputs, a, node: [inputs[0] * (inputs[0] * a.get("alpha", 1.0)).sigmoid()],
    "Concat": lambda inputs, a, node: [ops.concat(inputs, a["axis"])],
    "Transpose": lambda inputs, a, node: [inputs[0].permute(*a.get("perm", reversed(range(inputs[0].ndim))))],
    "Squeeze": lambda inputs, a, node: [inputs[0].squeeze(*[numbers(axes) for axes in inputs[1:]])],
    "Unsqueeze": lambda inputs, a, node: [inputs[0].unsqueeze(numbers(inputs[1]))],
    "Einsum": lambda inputs, a, node: [lucid.einsum(a["equation"].decode(), *inputs)],
    "Constant": lambda inputs, a, node: [lucid.tensor(onnx.numpy_helper.to_array(a["value"]))],
    "Celu": _celu,
    "Selu": _selu,
    "Shrink": _shrink,
    "Clip": _clip,
    "Mod": _mod,
    "Div": _div,
    "Pow": _pow,
    "IsInf": _is_inf,
    "ReduceSum": _reduction(_like(ops.sum)),
    "ReduceMean": _reduction(ops.mean),
    "ReduceProd": _reduction(_like(ops.prod)),
    "ReduceMax": _reduction(ops.max, False),
    "ReduceMin": _reduction(ops.min, False),
    "ReduceL1": _reduction(lambda x, **o: ops.sum(ops.abs(x), **o)),
    "ReduceL2": _reduction(lambda x, **o: ops.sqrt(ops.sum(x * x, **o))),
    "ReduceSumSquare": _reduction(_like(lambda x, **o: ops.sum(x * x, **o))),
    "ReduceLogSum": _reduction(lambda x, **o: ops.log(ops.sum(x, **o))),
    "ReduceLogSumExp": _reduction(_log_sum_exp, False),
    "ArgMax": _arg(Tensor.argmax),
    "ArgMin": _arg(Tensor.argmin),
    "CumSum": _cumsum,
    "Softmax": _softmax(ops.softmax),
    "LogSoftmax": _softmax(ops.log_softmax),
    "Gemm": _gemm,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Trilu": _trilu,
    "Shape": _shape,
    "EyeLike": _eye,
    "ConstantOfShape": _constant_of_shape,
    "CenterCropPad": _crop_pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "ReverseSequence": _reverse_sequence,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "Scatter": _scatter_elements,
    "OneHot": _one_hot,
    "TopK": _topk,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "AveragePool": _pool(ops.average_pool, False),
    "MaxPool": _pool(ops.max_pool, True),
    "GlobalAveragePool": _global_pool(ops.mean),
    "GlobalMaxPool": _global_pool(ops.max),
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance,
    "Resize": _resize,
    "GridSample": _grid_sample,
    "AffineGrid": _affine_grid,
    "LSTM": _recurrent("LSTM"),
    "RNN": _recurrent("RNN"),
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
    "Compress": _compress,
    "Dropout": _dropout,
    "Hardmax": _hardmax,
    "Cast": lambda inputs, a, node: _cast(inputs[0], a["to"]),
    "CastLike": lambda inputs, a, node: [inputs[0].astype(inputs[1].dtype)],
}
