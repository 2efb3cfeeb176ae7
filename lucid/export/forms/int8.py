"""Products of bytes, in standard ops that onnxruntime turns into its own: DynamicQuantizeMatMul, MatMulIntegerToFloat.

A test (test_int8) counts the nodes that are left after its optimisation.
"""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import float32, float64, uint8
from lucid.core.graph.values import Node, Value, operand
from lucid.export.builder import Builder, Operand
from lucid.export.form import Taken, form, refuse
from lucid.export.forms.primitives import over_axes
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.ops import int8
from lucid.ops.tensor.tensor import Tensor
from lucid.quantization.int8 import LEVELS

_FEW, _FEW_FOR_ROWS = 32, 128  # with fewer inputs or outputs a product takes longer than one of float32


@form(int8.int8_linear_dynamic, name="ai.onnx DynamicQuantizeLinear, MatMulInteger")
def dynamic(build: Builder, node: Node) -> Taken:
    """onnxruntime fuses it to DynamicQuantizeMatMul; or to MatMulIntegerToFloat, if several products share an input."""
    x, weight, scales = _operands(build, node)
    codes, step, zero = build.ops("DynamicQuantizeLinear", x, outputs=3)
    sums = build.op("Cast", build.op("MatMulInteger", codes, weight.mT, zero), to=onnx_code(float32))
    product = build.op("Mul", sums, build.op("Mul", step, scales))
    return _taken(build, node, product, "inputs are rounded to 8 bits, with one scale for all rows", _FEW)


@form(int8.int8_linear_rows, name="ai.onnx QuantizeLinear by row, MatMul of 8 bits")
def rows(build: Builder, node: Node) -> Taken:
    """onnxruntime fuses the product and the DequantizeLinear nodes before it to MatMulIntegerToFloat.

    ReduceMin and ReduceMax ignore NaN here: a guard would take longer than the product gains.
    """
    x, weight, scales = _operands(build, node)
    axis = (x.ndim - 1,)
    low = over_axes(build, "ReduceMin", x, axis, True)
    span = build.op("Sub", over_axes(build, "ReduceMax", x, axis, True), low)
    step = build.op("Max", build.op("Div", span, np.asarray([LEVELS], np.float32)), np.asarray([int8.TINY], np.float32))
    whole = build.op("Div", build.op("Sub", x, low), step)
    one, none = np.asarray(1, np.float32), np.asarray(0, np.uint8)
    product = build.op("Mul", _product(build, whole, one, none, weight, scales), step)
    shift = build.op("Mul", low, int8.row_sums(weight, scales))
    why = "inputs are rounded to 8 bits, each row by itself"
    return _taken(build, node, build.op("Add", product, shift), why, _FEW_FOR_ROWS)


@form(int8.int8_linear_static, name="ai.onnx QuantizeLinear, MatMul of 8 bits")
def static(build: Builder, node: Node) -> Taken:
    """onnxruntime fuses the product and the DequantizeLinear nodes before it to MatMulIntegerToFloat."""
    x, weight, scales = _operands(build, node)
    step, zero = (_unnamed(operand(node, index)) for index in (3, 4))
    # Of a MatMul whose sizes are known and an Add, onnxruntime makes a Gemm, which it does not compute in bytes: 6 to
    # 50 times slower than in float32. With an axis more it does not see them next to each other.
    apart = x.ndim <= 2 or all(isinstance(size, int) for size in x.shape)
    product = _product(build, x.unsqueeze(0) if apart else x, step, zero, weight, scales)
    result = build.op("Squeeze", product, np.asarray([0], np.int64)) if apart else product
    return _taken(build, node, result, "inputs are rounded to 8 bits, with the scale that calibration found", _FEW)


def _unnamed(value: Value) -> Operand:
    """A number; a constant without its name, so that layers with one input round it once."""
    number = Tensor.from_value(value)
    wide = number.astype(float32) if number.dtype.kind == "float" else number
    return wide if wide.is_traced else wide.numpy()


def _product(build: Builder, x: Operand, step: Operand, zero: Operand, weight: Tensor, scales: Tensor) -> str:
    """The product of an input (..., K), rounded to codes, and a weight (N, K)."""
    inputs = build.op("DequantizeLinear", build.op("QuantizeLinear", x, step, zero), step, zero)
    return build.op("MatMul", inputs, build.op("DequantizeLinear", weight.mT, scales, axis=1))


def _operands(build: Builder, node: Node) -> tuple[Tensor, Tensor, Tensor]:
    """Input, codes and scales in float32, the only type that ONNX rounds to 8 bits; if the runtime multiplies bytes."""
    x, weight, scales = (Tensor.from_value(operand(node, index)) for index in range(3))
    if x.dtype == float64:
        refuse("ONNX rounds no float64 to 8 bits")
    missing = build.target.missing("MatMulInteger", uint8)
    if missing:
        refuse(missing)
    return x.astype(float32), weight, scales.astype(float32)


def _taken(build: Builder, node: Node, result: str, why: str, few: int) -> Taken:
    """The product in the type of the input, with a note where it is slower than float32."""
    for size, what in zip(operand(node, 1).type.shape, ("outputs", "inputs"), strict=True):
        if isinstance(size, int) and size < few:
            why = f"{why}; slower than float32 with only {size} {what}"
            break
    dtype = node.types[0].dtype
    if dtype != float32:
        result = build.op("Cast", result, to=onnx_code(dtype))
    return Taken(result, why)


# Best first, of each op.
FORMS = (dynamic, rows, static)
