"""The native form of rotary positions."""

from __future__ import annotations

from lucid.core.graph.values import Node
from lucid.core.sizes.dims import Size, same
from lucid.export.builder import Builder
from lucid.export.form import form, refuse
from lucid.ops import expand, rotary_embedding, take
from lucid.ops.tensor.tensor import Tensor


@form(
    rotary_embedding,
    takes="positions heads interleaved",
    name="ai.onnx RotaryEmbedding",
    opset=23,
    kernel="RotaryEmbedding",
)
def rotary(build: Builder, node: Node) -> str:
    x, cos, sin, positions = node.inputs
    assert x is not None
    assert cos is not None
    assert sin is not None
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
