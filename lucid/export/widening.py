"""Element types for which an op has no ONNX form or no kernel: the op is computed in a wider type and cast back.

The result has the same bits: NumPy also computes bfloat16 in float32 and rounds once per op, and small integers wrap
around in the same way. Measured on onnxruntime 1.31's CPU provider; a test (test_element_types) runs every op in
every type.

An op without a kernel in any wider type is an error here; onnxruntime would refuse it only when it loads the model.
So is an integer that the model holds and the runtime's widest type does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lucid.core.graph.scope import new_node
from lucid.core.graph.types import DType, bfloat16, bool_, float16, float32, float64, int8, int32, int64, uint8
from lucid.core.graph.values import Body, Constant, Node, Origin, Result, Value, in_order
from lucid.core.targets.runtimes import PROCESSOR, WIDE_INTEGERS
from lucid.export.target import ExportError, Target
from lucid.ops.elementwise import cast
from lucid.ops.shaping import permute_op

# For each element type, wider ones that give the same result, best first. Types are checked in this order.
_WIDER: dict[DType, tuple[DType, ...]] = {
    bfloat16: (float32,),
    int8: (int32, int64),
    uint8: (int32, int64),
    int32: (int64,),
    float16: (float32,),
    float32: (float64,),
    bool_: (uint8,),
    float64: (),
}
# ONNX ops that take bfloat16 only from opset 22 on.
_BFLOAT16_SINCE_22 = frozenset({"AveragePool", "Conv", "Cos", "MaxPool", "Round", "Sin"})


class Wider(NamedTuple):
    """An element type for which a kernel is missing, the one to use instead, and why."""

    narrow: DType
    wide: DType
    why: str


def wider_type(node: Node, kernel: str, target: Target, path: str) -> Wider | None:
    """The element type of a primitive's inputs for which the target has no kernel, and the one to use; else None.

    Raises:
        ExportError: if no wider type has a kernel.
    """
    inputs = node.inputs[1:] if node.op.name == "where" else node.inputs  # the condition stays boolean
    types = {value.type.dtype for value in inputs if value is not None}
    missing = {dtype: why for dtype in types if (why := _missing(kernel, dtype, target))}
    if not missing:
        return None
    narrow = next(dtype for dtype in _WIDER if dtype in missing)
    wider = _WIDER[narrow]
    if not wider:
        raise ExportError(
            f"{path or node.op.name}: {missing[narrow]}, and no type is wider; "
            "compute it in float32: model.to(lucid.float32), or x.astype(lucid.float32)"
        )
    wide = next((wide for wide in wider if not _missing(kernel, wide, target)), wider[0])
    return Wider(narrow, wide, missing[narrow])


def refuse_wide_integers(outputs: Sequence[Value], target: Target) -> None:
    """Refuse a model with an integer beyond 32 bits where the target computes no more.

    Raises:
        ExportError: for such an integer; it is named.
    """
    how = target.wrong(WIDE_INTEGERS)
    for node in in_order(outputs) if how else ():
        held = [value.array for value in node.inputs if isinstance(value, Constant) and value.type.dtype == int64]
        if node.types[0].dtype == int64:
            held.append(np.asarray(node.attributes.get("value", 0)))
        for array in held:
            beyond = array[(array < -(2**31)) | (array >= 2**31)]
            if beyond.size:
                raise ExportError(
                    f"{node.scope or node.op.name}: the integer {beyond[0]} does not fit, because {how}; use "
                    f'integers from -2**31 to 2**31 - 1, or another target, such as target="{PROCESSOR}"'
                )
        for body in node.attributes.values():
            if isinstance(body, Body):
                refuse_wide_integers(body.outputs, target)


def _missing(kernel: str, dtype: DType, target: Target) -> str:
    if dtype == bfloat16 and target.opset < 22 and kernel in _BFLOAT16_SINCE_22:
        return f"ONNX has {kernel} of bfloat16 only from opset 22 on"
    return target.missing(kernel, dtype)


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


def stored_narrow(node: Node) -> Constant | None:
    """The weight in a narrower type that this node only widens; None for other nodes."""
    weight = node.inputs[0] if node.op is cast else None
    if isinstance(weight, Constant) and weight.type.dtype.itemsize < node.types[0].dtype.itemsize:
        return weight
    return None


def transposed_weight(node: Node) -> Value | None:
    """For the transpose of a weight that is stored in a narrower type: the transposed weight, widened; else None.

    So a weight is stored as it would be in its own type, and not transposed when the model runs.
    """
    operand = node.inputs[0] if node.op is permute_op and node.attributes["axes"] == (1, 0) else None
    stored = stored_narrow(operand.node) if isinstance(operand, Result) else None
    if stored is None or not isinstance(operand, Result):
        return None
    shape = stored.type.shape[::-1]
    turned = Constant(stored.array.T, stored.type.with_shape(shape), Origin(stored.array, ".T", stored.origin))
    return Node(cast, (turned,), operand.node.attributes, node.types, node.scope).results[0]
