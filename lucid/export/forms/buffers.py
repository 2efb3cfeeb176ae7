"""Writing into a buffer: ONNX's own op where the opset has it, and elements scattered one by one below."""

from __future__ import annotations

from lucid.core.graph.values import Node
from lucid.core.targets.runtimes import TENSOR_SCATTER
from lucid.export.builder import Builder
from lucid.export.form import form, refuse_wrong
from lucid.ops import arange_op, expand, reshape, where
from lucid.ops.attention import buffers
from lucid.ops.tensor.tensor import Tensor

_FAR = 2**62


@form(buffers.write_at, takes="axis", name="ai.onnx TensorScatter", opset=24, kernel="ScatterElements")
def tensor_scatter(build: Builder, node: Node) -> str:
    refuse_wrong(build, TENSOR_SCATTER)
    return build.op("TensorScatter", *node.inputs, axis=node.attributes["axis"])


@form(buffers.write_at, takes="axis", name="ai.onnx ScatterElements", kernel="ScatterElements")
def scatter_elements(build: Builder, node: Node) -> str:
    buffer, new, starts = node.inputs
    assert buffer is not None and new is not None and starts is not None
    rank = new.type.rank
    axis = node.attributes["axis"] % rank
    along = [new.type.shape[axis] if i == axis else 1 for i in range(rank)]
    steps = reshape(arange_op(start=0, stop=new.type.shape[axis]), along)
    # ScatterElements counts negative positions from the end: they become too large, which it refuses.
    given = Tensor.from_value(starts)
    first = reshape(where(given < 0, _FAR, given), (new.type.shape[0], *[1] * (rank - 1)))
    return build.op("ScatterElements", buffer, expand(first + steps, new.type.shape), new, axis=axis)
