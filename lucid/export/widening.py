"""Element types that an op's ONNX form or its kernels lack: the op is computed in a wider type and cast back.

The result is the same to the bit: NumPy computes bfloat16 in float32 and rounds once an op as well, and small integers
wrap around alike. Measured on onnxruntime 1.31's CPU provider; `tests/test_element_types.py` runs every op in every
type.

What no wider type computes is refused here, before onnxruntime does as it loads the model.
"""

from __future__ import annotations

from lucid.export import facts
from lucid.export.target import ExportError, Target
from lucid.graph import Node, Value, new_node
from lucid.ops.elementwise import cast
from lucid.types import DType, bfloat16, bool_, float16, float32, float64, int8, int32, int64, uint8

# What has a bfloat16 kernel on a CPU: it moves elements, or is a cast itself.
_MOVES = frozenset(
    {"cast", "concat_parts", "full_of", "gather_nd", "permute_axes", "reshape_to", "slice_axes", "split_sizes"}
    | {"squeeze_axes", "take_along_axis", "take_axis", "unsqueeze_axes"}
)
# Where ONNX itself took bfloat16 later than its other types.
_SINCE_22 = frozenset({"average_pool", "conv", "cos", "max_pool", "round", "sin"})
_TRIANGLES = frozenset({"tril", "triu"})
_NO_SMALL_INTEGERS = _TRIANGLES | {"matmul", "pow"}
# onnxruntime casts these to float32 as well, by itself; here so that their guards against NaN are computed in it, too.
_NO_FLOAT16 = frozenset({"argmax", "max", "max_pool", "min", "sign"})
_NO_FLOAT64 = frozenset({"average_pool", "conv", "erf"})


def wider_type(node: Node, target: Target) -> tuple[DType, DType] | None:
    """The element type among a primitive's inputs that the target cannot compute in, and the one to take instead."""
    types = {value.type.dtype for value in node.inputs if value is not None}
    name = node.op.name
    if bfloat16 in types and _lacks_bfloat16(name, target):
        return bfloat16, float32
    if name in _TRIANGLES and not target.has(facts.TRILU_INT32) and types & {int8, uint8, int32}:
        return types.pop(), int64
    for small in (int8, uint8):
        if small in types and _lacks_small_integers(name, small, target):
            return small, int32
    if target.provider != "cuda":
        if float16 in types and name in _NO_FLOAT16:
            return float16, float32
        if float32 in types and name == "cumsum":  # running sums are accumulated in float64, as eager ones are
            return float32, float64
    return (bool_, uint8) if name in ("where", "argmax") and bool_ in _computed(node) else None


def _computed(node: Node) -> set[DType]:
    """The element types that a node computes with: those of its inputs, without the condition of a choice."""
    inputs = node.inputs[1:] if node.op.name == "where" else node.inputs
    return {value.type.dtype for value in inputs if value is not None}


def check_kernel(node: Node, target: Target, path: str) -> None:
    """Raise ExportError for what onnxruntime has no kernel for in any type that is wide enough."""
    name = node.op.name
    if name in _NO_FLOAT64 and float64 in _computed(node) and target.provider != "cuda":
        raise ExportError(
            f"{path or name}: onnxruntime's CPU provider has no float64 kernel for {name}, and no type is wider; "
            "compute it in float32: .astype(lucid.float32)"
        )


def _lacks_small_integers(name: str, dtype: DType, target: Target) -> bool:
    if name in ("maximum", "minimum"):
        return not target.has(facts.SMALL_EXTREMES)
    if dtype == int8:
        return name in _NO_SMALL_INTEGERS or (name == "where" and not target.has(facts.WHERE_INT8))
    return name in _NO_SMALL_INTEGERS or name == "neg"


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
