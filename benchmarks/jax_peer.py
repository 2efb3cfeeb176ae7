"""jax2onnx. Imported only if it is installed."""

from __future__ import annotations

import onnx
from flax import nnx
from jax2onnx import to_onnx


def multi_head_attention(width: int, heads: int) -> onnx.ModelProto:
    """flax's self-attention, exported with a dynamic batch and length."""
    module = nnx.MultiHeadAttention(num_heads=heads, in_features=width, decode=False, rngs=nnx.Rngs(0))
    model: onnx.ModelProto = to_onnx(module, [("N", "L", width)])
    return model
