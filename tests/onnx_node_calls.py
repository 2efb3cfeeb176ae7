"""ONNX's operators as calls of Lucid: what a node means, written in ops, for `test_backend_node_tests.py`.

A call takes the inputs (None for an absent one), the attributes and the node, and gives the outputs; None where Lucid
has no such output. It raises `Inexpressible` with the reason for what Lucid cannot express.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import lucid
from lucid import Tensor, ops
from lucid.nn import functional as F
from tests import onnx_neural_calls as neural
from tests.onnx_inputs import UNKNOWN_TYPE, Attributes, Call, Inexpressible, Inputs, numbers, text

# Whole operators that Lucid does not have, by reason.
REASONS: dict[str, str] = {
    **dict.fromkeys("Adagrad Adam Momentum Bernoulli".split(), "training"),
    **dict.fromkeys("Det".split(), "no such function"),
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


def _cast(x: Tensor, code: int) -> list[Tensor | None]:
    try:
        return [x.astype(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)))]
    except TypeError as error:
        raise Inexpressible(UNKNOWN_TYPE) from error


def _compress(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, kept = inputs
    x, axis = (x, a["axis"]) if "axis" in a else (x.flatten(), 0)
    return [x.index_select(axis, kept.nonzero()[:, 0])]


def _reduction(call: Callable[..., Any], needs_no_elements: bool = True) -> Call:
    """Axes come as an input or an attribute; without them all are meant, or none."""

    def run(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
        x = inputs[0]
        listed = numbers(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else list(a.get("axes", ()))
        if not listed and a.get("noop_with_empty_axes", 0):
            return [call(x.unsqueeze(0), axis=(0,), keepdims=False)]
        axes = tuple(axis % x.ndim for axis in listed) or tuple(range(x.ndim))
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
        position = call(x.flip(axis) if last else x, axis, bool(a.get("keepdims", 1)))
        return [x.shape[axis] - 1 - position if last else position]

    return run


def _cumsum(inputs: Inputs, a: Attributes, node: onnx.NodeProto) -> list[Tensor | None]:
    x, (axis,) = inputs[0], numbers(inputs[1])
    turned = x.flip(axis) if a.get("reverse", 0) else x
    total = turned.cumsum(axis).astype(x.dtype)
    total = total - turned if a.get("exclusive", 0) else total
    return [total.flip(axis) if a.get("reverse", 0) else total]


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
            "Tan": "tan",
            "Asin": "asin",
            "Acos": "acos",
            "Atan": "atan",
            "Sinh": "sinh",
            "Cosh": "cosh",
            "Asinh": "asinh",
            "Acosh": "acosh",
            "Atanh": "atanh",
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
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), neural.loss),
    "LpPool": neural.lp_pool,
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
    "Celu": neural.celu,
    "Selu": neural.selu,
    "Shrink": neural.shrink,
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
    "Softmax": neural.softmax(ops.softmax),
    "LogSoftmax": neural.softmax(ops.log_softmax),
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
    "Conv": neural.conv,
    "ConvTranspose": neural.conv_transpose,
    "AveragePool": neural.pool(ops.average_pool, False),
    "MaxPool": neural.pool(ops.max_pool, True),
    "GlobalAveragePool": neural.global_pool(ops.mean),
    "GlobalMaxPool": neural.global_pool(ops.max),
    "BatchNormalization": neural.batch_norm,
    "InstanceNormalization": neural.instance_norm,
    "GroupNormalization": neural.group_norm,
    "LayerNormalization": neural.layer_norm,
    "RMSNormalization": neural.rms_norm,
    "LpNormalization": neural.lp_normalization,
    "MeanVarianceNormalization": neural.mean_variance,
    "Resize": neural.resize,
    "GridSample": neural.grid_sample,
    "AffineGrid": neural.affine_grid,
    "GRU": neural.recurrent("GRU"),
    "LSTM": neural.recurrent("LSTM"),
    "RNN": neural.recurrent("RNN"),
    "Attention": neural.attention,
    "RotaryEmbedding": neural.rotary,
    "Compress": _compress,
    "Dropout": neural.dropout,
    "Hardmax": neural.hardmax,
    "Cast": lambda inputs, a, node: _cast(inputs[0], a["to"]),
    "CastLike": lambda inputs, a, node: [inputs[0].astype(inputs[1].dtype)],
}
