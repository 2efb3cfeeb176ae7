"""The lines that people write first, as they write them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lucid
from lucid import nn
from lucid.nn.functional import multi_head_attention_forward
from lucid.ops.tensor.tensor import Tensor

ROOT = Path(__file__).parents[1]


def test_multi_head_attention_as_a_script() -> None:
    script = (
        "import lucid, lucid.nn as nn; from lucid.ops.tensor.tensor import Tensor; "
        "mha = nn.MultiHeadAttention(embed_dim=512, num_heads=8)\n"
        "print(mha(Tensor.randn(16, 10, 512), Tensor.randn(16, 10, 512), Tensor.randn(16, 10, 512)).shape)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "(16, 10, 512)\n"


def test_scaled_dot_product_attention() -> None:
    for attention in (nn.ScaledDotProductAttention(), nn.ScaledDotProductAttention(is_causal=True)):
        query, key, value = (Tensor.randn(2, 4, 8, 16) for _ in range(3))
        assert attention(query, key, value).shape == (2, 4, 8, 16)


def test_multi_head_attention_forward() -> None:
    q = k = v = lucid.randn(16, 2, 64)
    out, attn = multi_head_attention_forward(
        q,
        k,
        v,
        embed_dim_to_check=64,
        num_heads=8,
        in_proj_weight=lucid.randn(192, 64),
        out_proj_weight=lucid.randn(64, 64),
        need_weights=False,
    )
    assert out.shape == (16, 2, 64)
    assert attn is None


def test_to_onnx_of_an_attention_alone() -> None:
    mha = nn.MultiHeadAttention(embed_dim=512, num_heads=8)
    model = lucid.export.to_onnx(mha)
    x = Tensor.randn(2, 5, 512)
    difference = lucid.runtime.Session(model)(x, x, x) - mha(x)
    assert float(abs(difference).max()) < 2e-6
