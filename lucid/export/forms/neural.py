"""Composites that ONNX has an op for: activations, norms, rotary positions, interpolation."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from lucid.core.graph.types import DType, float16, float64
from lucid.core.graph.values import Constant, Node, Result, operand
from lucid.core.sizes.dims import Size, same
from lucid.core.targets.record import Fault
from lucid.core.targets.runtimes import GELU_OF_ODD_HALVES, NAN_BETWEEN_TWO, NO_EXTREMES
from lucid.export.builder import Builder, Operand
from lucid.export.form import Form, form, one_node, refuse, refuse_wrong
from lucid.ops import elementwise, expand, interpolation, neural, rotary_embedding, take
from lucid.ops.op import Op
from lucid.ops.tensor.tensor import Tensor


@form(neural.dropout, takes="p")
def dropout(build: Builder, node: Node) -> NoReturn:
    refuse("dropout is for training: export in evaluation mode, or with dropout_p=0")


relu = one_node(neural.relu, "Relu")
softplus = one_node(neural.softplus, "Softplus")
log_softmax = one_node(neural.log_softmax, "LogSoftmax", "axis")


@form(neural.gelu, takes="approximate", name="ai.onnx Gelu", opset=20, kernel="Gelu")
def gelu(build: Builder, node: Node) -> str:
    kind, approximate = operand(node).type, node.attributes["approximate"]
    if approximate == "tanh" and kind.dtype == float16 and not any(same(size % 2, 0) for size in kind.shape):
        refuse_wrong(build.target, GELU_OF_ODD_HALVES)
    return build.op("Gelu", *node.inputs, approximate=approximate)


def _hard(op: Op[..., Any], onnx: str, **options: Any) -> Form:
    """A function of pieces of lines, which takes extremes as Max and Min do."""

    @form(op, name=f"ai.onnx {onnx}", kernel=onnx)
    def hard(build: Builder, node: Node) -> str:
        refuse_wrong(build.target, NAN_BETWEEN_TWO)
        return build.op(onnx, *node.inputs, **options)

    return hard


hardsigmoid, hardswish = _hard(neural.hardsigmoid, "HardSigmoid", alpha=1 / 6), _hard(neural.hardswish, "HardSwish")


def _clip(fewest: int, mends: Fault | None) -> Form:
    """A form for so many known bounds, or more. Where only one is known, Max or Min is one op as well."""

    def applies(node: Node) -> bool:
        bounds = [bound for bound in node.inputs[1:] if bound is not None]
        return len(bounds) >= fewest and all(
            isinstance(bound, Constant) and bound.array.ndim == 0 and not np.isnan(bound.array) for bound in bounds
        )

    @form(elementwise.clip, takes="low high", name="ai.onnx Clip", kernel="Clip", mends=mends, applies=applies)
    def clipped(build: Builder, node: Node) -> str:
        """One op for Max and Min, which onnxruntime joins with a convolution: MobileNet takes 0.86 of the time."""
        refuse_wrong(build.target, NAN_BETWEEN_TWO)
        x, low, high = operand(node), *node.inputs[1:]
        # The op's own bounds are the largest numbers, which are less than infinity.
        least, most = (np.asarray(end, x.type.dtype.numpy) for end in (-np.inf, np.inf))
        return build.op("Clip", x, least if low is None else low, most if high is None else high)

    return clipped


@form(
    neural.layer_norm,
    takes="weight bias axes eps",
    name="ai.onnx LayerNormalization, apart from a sum",
    strategy="reshapes",
)
def layer_normalization_of_a_sum(build: Builder, node: Node) -> str:
    """onnxruntime (1.28 to 1.31 at least) fuses this with a sum of three axes that nothing else reads. The fused kernel
    takes four times as long as both. A reshape to the same shape in between prevents the fusion and moves no data.
    """
    total = operand(node)
    is_sum = isinstance(total, Result) and total.node.op is elementwise.add
    if not is_sum or total.type.rank != 3 or build.uses(total) > 1:
        refuse("its input is not a sum that onnxruntime would fuse it with")
    return _layer_normalization(build, node, lambda: build.op("Reshape", total, np.zeros(3, np.int64)))


@form(neural.layer_norm, takes="weight bias axes eps", name="ai.onnx LayerNormalization", kernel="LayerNormalization")
def layer_normalization(build: Builder, node: Node) -> str:
    return _layer_normalization(build, node, lambda: node.inputs[0])


def _layer_normalization(build: Builder, node: Node, source: Callable[[], Operand]) -> str:
    """The node. `source` emits its input, after the last check that may refuse."""
    x, (weight, bias) = operand(node), node.inputs[1:]
    axes = node.attributes["axes"]
    refuse_float64(node)
    if any(v is not None and v.type.dtype != x.type.dtype for v in (weight, bias)):
        refuse("weight or bias has another element type than the input")
    scale = weight if weight is not None else _ones(x.type.shape[-axes:], x.type.dtype)
    return build.op("LayerNormalization", source(), scale, bias, axis=-axes, epsilon=float(node.attributes["eps"]))


@form(neural.rms_norm, takes="weight eps offset", name="ai.onnx RMSNormalization", opset=23, kernel="RMSNormalization")
def rms_normalization(build: Builder, node: Node) -> str:
    x, weight = operand(node), node.inputs[1]
    refuse_float64(node)
    if weight is not None and weight.type.dtype != x.type.dtype:
        refuse("the weight has another element type than the input")
    offset = node.attributes["offset"]
    if offset and x.type.dtype.itemsize == 2:
        refuse("half precision would round the sum of weight and offset")
    scale: Operand = weight if weight is not None else _ones(x.type.shape[-1:], x.type.dtype)
    if weight is not None and offset:  # onnxruntime adds them when it loads the model
        scale = build.op("Add", weight, np.asarray(offset, x.type.dtype.numpy))
    return build.op("RMSNormalization", x, scale, axis=-1, epsilon=float(node.attributes["eps"]))


def refuse_float64(node: Node) -> None:
    """Leave float64 to the body."""
    if node.types[0].dtype == float64:
        refuse("its epsilon is a float32 number, which is not exact enough for float64")


def _ones(shape: object, dtype: DType) -> np.ndarray:
    if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
        refuse("the normalised axes have symbolic sizes and there is no weight")
    return np.ones(shape, dtype.numpy)


@form(
    rotary_embedding,
    takes="positions heads interleaved",
    name="ai.onnx RotaryEmbedding",
    opset=23,
    kernel="RotaryEmbedding",
)
def rotary(build: Builder, node: Node) -> str:
    x, cos, sin, positions = operand(node), operand(node, 1), operand(node, 2), node.inputs[3]
    heads, half = node.attributes["heads"], cos.type.shape[-1]
    width = x.type.shape[-1] if heads is None else x.type.shape[-1] // heads
    part = None if same(2 * half, width) else 2 * half
    if part is not None and heads is None:
        heads = x.type.shape[1]  # the op requires it if only a part of each head is rotated
        if not isinstance(heads, int):
            refuse("the number of heads is symbolic, and only a part of each head is rotated")
    tables = [Tensor.from_value(cos), Tensor.from_value(sin)]
    if positions is not None and not _at_most(positions.type.shape[-1], cos.type.shape[0]):
        # onnxruntime refuses a text that is longer than the tables, even where every position is in them.
        tables, positions = [take(table, Tensor.from_value(positions), 0) for table in tables], None
    elif positions is None:  # without positions the op takes cosines and sines for each text of the batch
        tables = [expand(table, (x.type.shape[0], cos.type.shape[-2], half)) for table in tables]
    return build.op(
        "RotaryEmbedding",
        x,
        *tables,
        positions,
        num_heads=heads,
        rotary_embedding_dim=part,
        interleaved=int(node.attributes["interleaved"]) or None,
    )


def _at_most(length: Size, rows: Size) -> bool:
    """Whether this is known before the model runs."""
    return same(length, rows) or (isinstance(length, int) and isinstance(rows, int) and length < rows)


# ONNX Resize, where it reads exactly the positions that torch reads. torch multiplies places with the quotient of the
# sizes, Resize divides by the inverse: the results are the same in float32 only for powers of two. Others would be off
# by about 1e-7 of the size of an axis, and the nearest modes would read other elements.
_MODES: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    "nearest-exact": {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    "linear": {"mode": "linear"},
    "bilinear": {"mode": "linear"},
    "trilinear": {"mode": "linear"},
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.75},
}
_POWERS = [Fraction(2) ** power for power in range(-8, 9)]


@form(interpolation.resize, takes="sizes factors mode align_corners", name="ai.onnx Resize", kernel="Resize")
def resize(build: Builder, node: Node) -> str:
    x, attributes = operand(node), node.attributes
    if attributes["align_corners"]:
        refuse("it rounds positions differently with align_corners")
    axes = zip(x.type.shape[2:], attributes["sizes"], attributes["factors"], strict=True)
    scales = [float(_power(*axis)) for axis in axes]
    options = {"coordinate_transformation_mode": "half_pixel"} | _MODES[attributes["mode"]]
    return build.op("Resize", x, None, np.asarray([1, 1, *scales], np.float32), **options)


def _power(size: Size, target: Size, factor: float | None) -> Fraction:
    """The power of two that a size is multiplied with; halves are rounded down only if a factor is given."""
    for power in _POWERS:
        exact = same(target * power.denominator, size * power.numerator)
        if exact if factor is None else factor == power and same(size * power.numerator // power.denominator, target):
            return power
    refuse(f"{target} is not {size} multiplied with a power of two, and it rounds positions differently")


# Best first, of each op.
FORMS = (
    *(layer_normalization_of_a_sum, layer_normalization, rms_normalization),
    *(_clip(2, None), _clip(1, NO_EXTREMES)),
    *(resize, dropout, relu, hardsigmoid, hardswish, softplus, log_softmax, gelu, rotary),
)
