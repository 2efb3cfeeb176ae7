"""Element types that an op's ONNX form or its kernels lack: the op is computed in a wider type and cast back.

The result is the same to the bit: NumPy computes bfloat16 in float32 and rounds once an op as well, and small integers
wrap around alike. Measured on onnxruntime 1.31's CPU provider; `tests/test_ops.py` runs every op in every type.
"""

from __future__ import annotations

from lucid.export.target import Target
from lucid.graph import Node, Value, new_node
from lucid.ops.elementwise import cast
from lucid.types import DType, bfloat16, bool_, float32, int8, int32, uint8

# What has a bfloat16 kernel on a CPU: it moves elements, or is a cast itself.
_MOVES = frozenset(
    {"cast", "concat_parts", "full_of", "gather_nd", "permute_axes", "reshape_to", "slice_axes", "split_sizes"}
    | {"squeeze_axes", "take_along_axis", "take_axis", "unsqueeze_axes"}
)
# Where ONNX itself took bfloat16 later than its other types.
_SINCE_22 = frozenset({"average_pool", "conv", "cos", "max_pool", "round", "sin"})
_NO_SMALL_INTEGERS = frozenset({"cumsum", "matmul", "pow", "prod", "sum", "tril", "triu"})


def wider_type(node: Node, target: Target) -> tuple[DType, DType] | None:
    """The element type among a primitive's inputs that the target cannot compute in, and the one to take instead."""
    types = {value.type.dtype for value in node.inputs if value is not None}
    name = node.op.name
    if bfloat16 in types and _lacks_bfloat16(name, target):
        return bfloat16, float32
    for small in (int8, uint8):
        if small in types and (name in _NO_SMALL_INTEGERS or (name == "neg" and small == uint8)):
            return small, int32
    return (bool_, uint8) if name == "where" and node.types[0].dtype == bool_ else None


def _lacks_bfloat16(name: str, target: Target) -> bool:
    if target.provider == "cuda":
        return target.opset < 22 and name in _SINCE_22
    return name not in _MOVES


def widened(node: Node, narrow: DType, wide: DType) -> list[Value]:
    """The results of a node, computed in the wide type. Weights stay narrow in the file: their cast is a node."""
    condition = 0 if node.op.name == "where" else None
    inputs: list[Value | None] = []
    for index, value in enumerate(node.inputs):
        narrowed = value is not None and value.type.dtype == narrow and index != condition
        inputs.append(new_node(cast, [value], {"dtype": wide}).results[0] if narrowed else value)
    computed = new_node(node.op, inputs, node.attributes)
    return [
        result if result.type.dtype == kind.dtype else new_node(cast, [result], {"dtype": kind.dtype}).results[0]
        for result, kind in zip(computed.results, node.types, strict=True)
    ]
