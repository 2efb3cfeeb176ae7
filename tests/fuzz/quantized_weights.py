"""Layers whose weights are quantized. Codes, scales and zeros are drawn; by definition a layer multiplies with the
numbers that they stand for, so no step of it is the package's own: packing, unpacking, blocks, parts of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import lucid
from lucid import Tensor, nn
from lucid.core.graph.types import Array, DType, float32, float64
from lucid.core.sizes.dims import Size, dim
from lucid.nn import functional as F
from lucid.quantization import Blocks
from tests.fuzz.layers import filled, has_width, nested
from tests.fuzz.programs import FLOATS, Drafting, Maker, Step, among
from tests.fuzz.values import PLAIN, Recipe

QUANTIZED_WEIGHTS: list[Maker] = []
ROUNDED: list[Maker] = []  # those for accuracy level 4, whose inputs are plain


class Weight(NamedTuple):
    """A quantized weight, and the numbers that it stands for."""

    stored: nn.QuantizedWeight
    numbers: Array
    text: str


def weight(draft: Drafting, rows: int, size: int, dtype: DType) -> Weight:
    """Scales are multiples of a power of two, so that every element type holds them, and float32 the numbers."""
    bits, block = draft.choose([4, 4, 8]), draft.choose([16, 16, 32, 64])
    kind = draft.choose(["symmetric", "zeros", "zeros", "minimums"])
    generator = np.random.default_rng(draft.number(0, 99))
    count = -(-size // block)
    codes = generator.integers(0, 2**bits, (rows, size))
    scales = generator.integers(1, 17, (rows, count)) / 2.0 ** (bits + 2)
    zeros, minimums = None, None
    if kind == "symmetric":
        scales *= generator.choice([-1, 1], scales.shape)
        least = -(2.0 ** (bits - 1)) * scales
    elif kind == "zeros":
        zeros = generator.integers(0, 2**bits, (rows, count))
        least = -zeros * scales
    else:
        least = minimums = generator.integers(-32, 1, (rows, count)) / 16
    # No row is all 0: kernels of level 4 subtract the zeros at the end, from sums that rounding has moved.
    codes[:, 0] ^= codes[:, 0] * scales[:, 0] + least[:, 0] == 0
    columns = np.arange(size) // block
    numbers = codes * scales[:, columns] + least[:, columns]
    blocks = Blocks(
        codes.astype(np.uint8),
        scales.astype(np.float32),
        None if zeros is None else zeros.astype(np.uint8),
        bits,
        block,
        None if minimums is None else minimums.astype(np.float32),
    )
    return Weight(
        nn.QuantizedWeight(blocks, dtype), numbers, f"{rows}x{size} in {bits} bits, blocks of {block}, {kind}"
    )


def product(x: Tensor, numbers: Array) -> Tensor:
    """The product with a weight (N, K) by definition: half precision is computed in float32."""
    wide = float64 if x.dtype == float64 else float32
    return (x.astype(wide) @ Tensor(numbers.T.astype(wide.numpy))).astype(x.dtype)


def _multiplied(draft: Drafting, x: int) -> Step:
    kind = draft.values[x].type
    size = kind.shape[-1]
    assert isinstance(size, int)
    drawn, bias = weight(draft, draft.number(1, 9), size, kind.dtype), draft.flag()
    layer = filled(nn.Linear(size, len(drawn.numbers), bias), kind.dtype)
    added = layer.bias
    layer.weight = drawn.stored
    module = nested(draft, layer)

    def defined(v: Tensor) -> Tensor:
        y = product(v, drawn.numbers)
        return y if added is None else y + added

    return Step(f"Linear {drawn.text}, bias={bias}", (x,), module, layer=module, definition=defined)


def _input(draft: Drafting, dtype: DType, how: Recipe | None = None) -> int:
    shape: Sequence[Size] = [
        *[dim("N"), dim("L")][: draft.number(0, 2)],
        draft.choose([3, 16, 20, 32, 33, 40, 48, 64, 80]),
    ]
    return draft.input(dtype, shape) if how is None else draft.input(dtype, shape, lambda *_: how)


@among(QUANTIZED_WEIGHTS)
def multiplied(draft: Drafting) -> Step | None:
    x = draft.pick(has_width(1, 2, 3, 4)) if draft.flag() else None
    return _multiplied(draft, _input(draft, draft.choose(FLOATS)) if x is None else x)


@among(ROUNDED)
def rounded(draft: Drafting) -> Step | None:
    """One product after another."""
    x = draft.pick(lambda v: has_width(1, 2, 3)(v) and not v.exact)
    how = draft.choose([PLAIN, PLAIN, Recipe("offset", 1), Recipe("hot", 2)])
    return _multiplied(draft, _input(draft, draft.choose(FLOATS), how) if x is None else x)


@among(ROUNDED)
@among(QUANTIZED_WEIGHTS)
def looked_up(draft: Drafting) -> Step | None:
    """Rows of a table by index or in order, which may also be the output layer after them."""
    i = draft.pick(lambda v: v.type.dtype in (lucid.int32, lucid.int64) and v.rank <= 3)
    if i is None:
        i = draft.input(lucid.int64, [dim("N"), dim("L")])
    dtype, rows = draft.choose(FLOATS), draft.number(5, 9)
    drawn = weight(draft, rows, draft.choose([4, 16, 33, 40]), dtype)
    table = nn.Embedding(*drawn.numbers.shape)
    table.weight = drawn.stored  # type: ignore[assignment]
    tied, first = draft.flag(), draft.number(0, 3)

    def apply(v: Tensor) -> Tensor:
        x = table(v % rows) + table.weight[first : first + 1]
        return F.linear(x, table.weight) if tied else x

    def defined(v: Tensor) -> Tensor:
        numbers = Tensor(drawn.numbers.astype(dtype.numpy))
        x = lucid.ops.take(numbers, v % rows) + numbers[first : first + 1]
        return product(x, drawn.numbers) if tied else x

    return Step(f"Embedding {drawn.text}, tied={tied}", (i,), apply, layer=table, definition=defined)


@among(QUANTIZED_WEIGHTS)
def attention(draft: Drafting) -> Step | None:
    """Multi-head attention, whose projections are parts of one weight."""
    x = draft.pick(lambda v: has_width(3)(v) and v.type.shape[-1] in (4, 8, 16, 20, 32))
    if x is None:
        dtype, wide = draft.choose(FLOATS), draft.choose([16, 20, 32])
        x = draft.input(dtype, [dim("N"), dim("L"), wide])
    kind = draft.values[x].type
    width = kind.shape[-1]
    assert isinstance(width, int)
    heads, causal = draft.choose([1, 2, 4]), draft.flag()
    kv_heads = draft.choose([h for h in (1, 2, 4) if heads % h == 0])
    small, whole = (filled(nn.MultiHeadAttention(width, heads, num_kv_heads=kv_heads), kind.dtype) for _ in range(2))
    drawn = weight(draft, whole.in_proj_weight.shape[0], width, kind.dtype)
    small.in_proj_weight = drawn.stored
    numbers = np.split(drawn.numbers, [width, width + width // heads * kv_heads])

    def defined(v: Tensor) -> Tensor:
        biases = whole.in_proj_bias.split([len(part) for part in numbers])
        q, k, y = (product(v, part) + bias for part, bias in zip(numbers, biases, strict=True))
        out = lucid.ops.attention(q, k, y, heads=heads, kv_heads=kv_heads, is_causal=causal)
        return F.linear(out, whole.out_proj.weight, whole.out_proj.bias)

    text = f"MultiHeadAttention {heads} {kv_heads} {drawn.text}, causal={causal}"
    return Step(text, (x,), lambda v: small(v, is_causal=causal), layer=small, definition=defined)
