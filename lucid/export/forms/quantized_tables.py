"""Rows of quantized tables.

A table that is the output layer too is in a file for MatMulNBits once, row by row, and the body takes rows of it. With
standard ops it is there twice: for DequantizeLinear and MatMul it is stored transposed, and if anything else reads
these numbers, onnxruntime (1.31) does not fuse the two, and widens the whole table in each step (SmolLM2 in 8 bits: 23
instead of 11 ms for a step, 156 instead of 185 MB). In 4 bits it has no Gather either.
"""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import int32, int64
from lucid.core.graph.values import Constant, Node, Value
from lucid.core.targets.runtimes import ZEROS_OF_ROWS
from lucid.export.builder import Builder
from lucid.export.form import form, refuse, refuse_wrong
from lucid.ops import quantized
from lucid.ops.tensor.tensor import Tensor


@form(
    quantized.quantized_embedding,
    takes="zero_points bits block width",
    name="com.microsoft GatherBlockQuantized",
    kind="contrib",
    domain="com.microsoft",
    kernel="GatherBlockQuantized",
    strategy="partial reads",
)
def gather_block_quantized(build: Builder, node: Node) -> str:
    _, packed, scales, zero_points, _ = node.inputs
    assert packed is not None
    assert scales is not None
    missing = build.target.missing("GatherBlockQuantized", scales.type.dtype)
    if missing:
        refuse(missing)
    if _is_multiplied(build, packed):
        refuse("its table is multiplied with, too, and would be there twice")
    bits, (rows, count, size) = node.attributes["bits"], packed.type.shape
    if zero_points is not None and bits == 4 and count % 2:
        refuse_wrong(build, ZEROS_OF_ROWS)
    stored = Tensor.from_value(packed)
    table = stored.reshape(rows, count * size).named_after(stored, "[rows]")
    found = build.op(
        "GatherBlockQuantized",
        table,
        _indices(node),
        scales,
        zero_points,
        domain="com.microsoft",
        bits=bits,
        block_size=node.attributes["block"],
        gather_axis=0,
        quantize_axis=1,
    )
    width = node.attributes["width"]
    if count * node.attributes["block"] == width:
        return found
    return build.op("Slice", found, *(np.asarray([number], np.int64) for number in (0, width, -1)))


def _indices(node: Node) -> Tensor:
    assert node.inputs[0] is not None
    indices = Tensor.from_value(node.inputs[0])
    return indices if indices.dtype in (int32, int64) else indices.astype(int64)


def _is_multiplied(build: Builder, packed: Value) -> bool:
    """Whether a table is also the weight of a product."""
    if not isinstance(packed, Constant):
        return False
    products = (node.inputs[1] for node in build.graph.nodes() if node.op is quantized.quantized_linear)
    return any(isinstance(weight, Constant) and weight.array is packed.array for weight in products)
