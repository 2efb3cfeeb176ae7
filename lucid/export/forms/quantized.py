"""Products with quantized weights: onnxruntime's own op, and the standard ops that it turns into it.

Kernels that compute at accuracy level 4 round the inputs of a product to 8 bits, in blocks of a row; level 0 computes
in float32. With 8 bits onnxruntime has no kernel of level 0: it unpacks the weight at each call (2 to 11 times slower
than float32, the page "Benchmarks"), so there the body is better, whose weight it widens once, when it loads the model.
"""

from __future__ import annotations

import numpy as np
import onnx

from lucid.core.graph.types import Array, TensorType, float32, int32, int64, promote, uint8
from lucid.core.graph.values import Constant, Node, Value, operand
from lucid.core.targets.runtimes import NARROW_PRODUCTS, OWN, PADDED_BLOCKS, ZEROS_OF_ROWS
from lucid.export.builder import Builder, computed
from lucid.export.form import Taken, contrib_form, form, refuse, refuse_wrong
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.run_time_sizes import reshaped
from lucid.ops import quantized
from lucid.ops.linalg import matmul
from lucid.ops.tensor.tensor import Tensor
from lucid.quantization.blocks import middle, pack, unpack


@form(quantized.unpack_codes, takes="bits", name="ai.onnx Mod, Div")
def unpack_codes(build: Builder, node: Node) -> str:
    """Shifts in int32, because OpenVINO rounds the results of shifts of bytes."""
    packed = operand(node)
    if node.attributes["bits"] == 8:
        return build.op("Identity", packed)
    wide, sixteen = build.op("Cast", packed, to=onnx_code(int32)), np.asarray(16, np.int32)
    last = np.asarray([-1], np.int64)
    halves = [build.op("Unsqueeze", build.op(way, wide, sixteen), last) for way in ("Mod", "Div")]
    pairs = build.op("Cast", build.op("Concat", *halves, axis=-1), to=onnx_code(uint8))
    return reshaped(build, pairs, (*packed.type.shape, 2), node.types[0].shape)


@contrib_form(quantized.quantized_linear, "MatMulNBits", "zero_points minimums bits block")
def matmul_nbits(build: Builder, node: Node) -> Taken:
    x, packed, scales, zero_points = _operands(build, node)
    product = build.op(
        "MatMulNBits",
        x,
        packed,
        scales,
        zero_points,
        domain=OWN,
        K=x.type.shape[-1],
        N=packed.type.shape[0],
        bits=node.attributes["bits"],
        block_size=node.attributes["block"],
        accuracy_level=build.target.accuracy_level,
    )
    return Taken([_corrected(build, node, product)], _cost(build, node))


@form(
    quantized.quantized_linear,
    takes="zero_points minimums bits block",
    name="ai.onnx DequantizeLinear, MatMul",
    opset=21,
    kernel="DequantizeLinear",
)
def dequantize_linear(build: Builder, node: Node) -> Taken:
    """onnxruntime fuses both to MatMulNBits, if the weight is stored transposed."""
    x, packed, scales, zero_points = _operands(build, node)
    if not isinstance(packed, Constant) or not isinstance(scales, Constant):
        refuse("its weight is computed")
    if zero_points is not None and not isinstance(zero_points, Constant):
        refuse("its zero points are computed")
    bits = node.attributes["bits"]
    rows, count = scales.array.shape
    if x.type.shape[-1] != count * node.attributes["block"]:
        refuse_wrong(build.target, PADDED_BLOCKS)
    codes = unpack(packed.array, bits).reshape(rows, -1)[:, : x.type.shape[-1]]
    signed, zeros = zero_points is None, None
    if zero_points is not None:
        zeros = _stored(build, unpack(zero_points.array, bits)[:, :count].T, zero_points, bits, signed, ".T")
    weight = build.op(
        "DequantizeLinear",
        _stored(build, codes.T, packed, bits, signed, ".T"),
        Tensor.from_value(scales).mT,
        zeros,
        axis=0,
        block_size=node.attributes["block"],
    )
    return Taken([_corrected(build, node, build.op("MatMul", x, weight))], _cost(build, node))


def _cost(build: Builder, node: Node) -> str:
    """How onnxruntime computes it, and where that takes longer than a float32 product (the page "Benchmarks")."""
    exact = build.target.accuracy_level == 0
    why = "computed in float32" if exact else "inputs are rounded to 8 bits, in blocks of a row"
    has_minimums = node.inputs[4] is not None
    if exact or has_minimums or node.attributes["block"] == 16:
        return f"{why}; faster than float32 for few rows, slower for some 16 and more"
    return why


@form(
    quantized.quantized_linear,
    takes="zero_points minimums bits block",
    name="float32 between casts",
    dtypes=("float16", "bfloat16"),
)
def in_float32(build: Builder, node: Node) -> Taken:
    """Half precision for which no form has a kernel. The body computes in float32 as well."""
    x, packed, scales = (Tensor.from_value(operand(node, index)) for index in range(3))
    zero_points, minimums = (None if v is None else Tensor.from_value(v) for v in node.inputs[3:])
    if scales.dtype.itemsize > 4:
        refuse(f"the scales are {scales.dtype}")
    wide = scales.astype(float32).named_after(scales, ".float32")
    least = None if minimums is None else minimums.astype(float32).named_after(minimums, ".float32")
    product = quantized.quantized_linear(x.astype(float32), packed, wide, zero_points, least, **node.attributes)
    return Taken([product.astype(x.dtype)], "computed in float32")


def _operands(build: Builder, node: Node) -> tuple[Value, Value, Value, Value | None]:
    """Input, codes, scales and zero points, if onnxruntime has a fast kernel for them."""
    x, packed, scales = (operand(node, index) for index in range(3))
    zero_points, minimums = node.inputs[3:]
    if x.type.dtype != scales.type.dtype:
        refuse(f"the input is {x.type.dtype} and the scales are {scales.type.dtype}")
    if node.attributes["bits"] == 8 and build.target.accuracy_level == 0:
        refuse_wrong(build.target, NARROW_PRODUCTS)
    size = x.type.shape[-1]
    assert isinstance(size, int)
    if minimums is not None and size % node.attributes["block"]:
        refuse("its blocks have minimums, and the last one is padded")
    return x, packed, scales, zero_points


def _corrected(build: Builder, node: Node, product: str) -> str:
    """A product with scale * (code - middle), corrected where blocks have a minimum.

    The correction is (minimum + scale * middle) times the sum of a block's inputs. onnxruntime also takes zero points
    that are not whole, in a kernel that is 20 times slower. Products that share an input also share its sums.
    """
    if node.inputs[4] is None:
        return product
    x, scales, minimums = (Tensor.from_value(operand(node, index)) for index in (0, 2, 4))
    wide = promote(x.dtype, float32)
    shift = minimums.astype(wide) + scales.astype(wide) * float(middle(node.attributes["bits"]))
    sums = x.astype(wide).reshape(*x.shape[:-1], scales.shape[1], node.attributes["block"]).sum(axis=-1)
    return build.op("Add", product, matmul(sums, shift.mT).astype(x.dtype))


def _stored(build: Builder, codes: Array, original: Constant, bits: int, signed: bool, suffix: str) -> str:
    """Codes as an initializer of 4 or 8 bits each. Signed codes have the middle subtracted and need no zero points."""
    kinds = {
        (4, False): onnx.TensorProto.UINT4,
        (4, True): onnx.TensorProto.INT4,
        (8, False): onnx.TensorProto.UINT8,
        (8, True): onnx.TensorProto.INT8,
    }
    flat = np.ascontiguousarray(codes).reshape(-1)
    if signed:
        flat = flat ^ np.uint8(1 << (bits - 1))  # two's complement of the code less the middle
    label = build.graph.name_of(original)
    return build.stored(pack(flat, bits), kinds[bits, signed], codes.shape, f"{label}{suffix}")


@form(
    quantized.quantized_embedding,
    takes="zero_points minimums bits block width",
    name="ai.onnx DequantizeLinear",
    opset=21,
    kernel="DequantizeLinear",
)
def dequantize_all_rows(build: Builder, node: Node) -> Tensor:
    """The whole weight, as gradients of products read it; onnxruntime widens it in each run, and not when it loads."""
    indices, packed, scales = (operand(node, index) for index in range(3))
    zero_points, minimums = node.inputs[3:]
    if not isinstance(packed, Constant) or not isinstance(zero_points, Constant | None):
        refuse("its codes are computed")
    rows, count, _ = packed.array.shape
    if not isinstance(indices, Constant) or not np.array_equal(indices.array, np.arange(rows)):
        refuse("it reads some of the rows")
    bits, block, width = (node.attributes[name] for name in ("bits", "block", "width"))
    signed, zeros = zero_points is None and minimums is None, None
    if zero_points is not None:
        zeros = _stored(build, unpack(zero_points.array, bits)[:, :count], zero_points, bits, signed, "[rows]")
    codes = _stored(build, unpack(packed.array, bits).reshape(rows, -1), packed, bits, signed, "[rows]")
    name = build.op("DequantizeLinear", codes, scales, zeros, axis=1, block_size=block)
    weight = computed(build, name, TensorType(scales.type.dtype, (rows, count * block)))
    if minimums is not None:
        least = Tensor.from_value(minimums).unsqueeze(-1)
        weight = (weight.reshape(rows, count, block) + least).reshape(rows, count * block)
    return weight[:, :width]


# A quantized table that is also the output layer is in a file for MatMulNBits once, row by row, and the body takes rows
# of it. With standard ops it is there twice: for DequantizeLinear and MatMul it is stored transposed, and if anything
# else reads these numbers, onnxruntime (1.31) does not fuse the two, and widens the whole table in each step (SmolLM2
# in 8 bits: 23 instead of 11 ms for a step, 156 instead of 185 MB). In 4 bits it has no Gather either.


@contrib_form(
    quantized.quantized_embedding, "GatherBlockQuantized", "zero_points bits block width", strategy="partial reads"
)
def gather_block_quantized(build: Builder, node: Node) -> str:
    packed, scales, zero_points = operand(node, 1), operand(node, 2), node.inputs[3]
    missing = build.target.missing("GatherBlockQuantized", scales.type.dtype)
    if missing:
        refuse(missing)
    if _is_multiplied(build, packed):
        refuse("its table is also the weight of a product, and would be stored twice")
    bits, (rows, count, size) = node.attributes["bits"], packed.type.shape
    if zero_points is not None and bits == 4 and count % 2:
        refuse_wrong(build.target, ZEROS_OF_ROWS)
    stored = Tensor.from_value(packed)
    table = stored.reshape(rows, count * size).named_after(stored, "[rows]")
    selected = build.op(
        "GatherBlockQuantized",
        table,
        _indices(node),
        scales,
        zero_points,
        domain=OWN,
        bits=bits,
        block_size=node.attributes["block"],
        gather_axis=0,
        quantize_axis=1,
    )
    width = node.attributes["width"]
    if count * node.attributes["block"] == width:
        return selected
    return build.op("Slice", selected, *(np.asarray([number], np.int64) for number in (0, width, -1)))


def _indices(node: Node) -> Tensor:
    indices = Tensor.from_value(operand(node))
    return indices if indices.dtype in (int32, int64) else indices.astype(int64)


def _is_multiplied(build: Builder, packed: Value) -> bool:
    """Whether a table is also the weight of a product."""
    if not isinstance(packed, Constant):
        return False
    products = (node.inputs[1] for node in build.graph.nodes() if node.op is quantized.quantized_linear)
    return any(isinstance(weight, Constant) and weight.array is packed.array for weight in products)


# Best first, of each op.
FORMS = (matmul_nbits, dequantize_linear, in_float32, dequantize_all_rows, gather_block_quantized, unpack_codes)
