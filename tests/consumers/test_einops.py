"""einops with tensors of Lucid: eagerly as with NumPy's arrays, and exported with symbolic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from einops import einsum, pack, rearrange, reduce, repeat

import lucid
from lucid.export import to_onnx
from lucid.runtime import Session


def lines(x: Any) -> tuple[Any, ...]:
    heads = rearrange(x, "n l (h d) -> n h l d", h=2)
    mean = reduce(x, "n l d -> n d", "mean")
    return (
        heads,
        rearrange(heads, "n h l d -> n l (h d)"),
        rearrange(x, "n (w k) d -> (n w) k d", k=4),
        mean,
        reduce(x, "n (w k) d -> n w d", "max", k=4),
        repeat(mean, "n d -> n k d", k=3),
        repeat(mean, "n d -> (n k) d", k=3),
        pack([x, mean], "n * d")[0],
        einsum(x, x, "n i d, n j d -> n i j"),
    )


@pytest.mark.parametrize("length", [4, 12])
def test_einops_computes_as_with_arrays(length: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, length, 8)).astype(np.float32)
    session = Session(to_onnx(lines, lucid.spec("N", "4*W", 8)))
    for ours, exported, theirs in zip(lines(lucid.tensor(x)), session(x), lines(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(exported, theirs, rtol=1e-5, atol=1e-5)
