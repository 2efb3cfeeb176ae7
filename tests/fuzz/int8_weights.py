"""Layers whose weights and inputs are in 8 bits. What they are given lies between two codes with room on both sides, in
every arithmetic, so the codes are known: by definition a layer multiplies with the numbers that these stand for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.types import Array, DType, bfloat16, int32, uint8
from lucid.core.sizes.dims import Size, dim
from lucid.nn import functional as F
from lucid.nn.quantized import Activations
from lucid.quantization import Grid8, Rows
from tests.fuzz.layers import filled, nested
from tests.fuzz.programs import FLOATS, Drafting, Maker, Step, among
from tests.fuzz.quantized_weights import product

INT8_WEIGHTS: list[Maker] = []


class Inputs(NamedTuple):
    """How inputs are made of integers (..., K - 2), and what they are rounded to."""

    kind: Activations
    step: float
    zero: int  # the code of 0
    shift: int  # of a static grid: how many codes the inputs are above it
    between: float  # how far they are from a code, in steps

    def build(self, v: Tensor, dtype: DType) -> Tensor:
        """(..., K): each row has the first and the last code."""
        return (self._codes(v, self.between).astype(dtype) - float(self.zero)) * self.step

    def rounded(self, v: Tensor, dtype: DType) -> Tensor:
        """The numbers that they are rounded to."""
        codes = self._codes(v, 0.0)
        if self.kind == "static":
            codes = ops.clip(codes + float(self.shift), 0, 255) - float(self.shift)
        return (codes.astype(dtype) - float(self.zero)) * self.step

    def grid(self) -> Grid8 | None:
        zero = np.asarray(self.zero + self.shift, np.uint8)
        return Grid8(np.asarray(self.step, np.float32), zero) if self.kind == "static" else None

    def _codes(self, v: Tensor, between: float) -> Tensor:
        spread = (v.astype(int32) * 53 + ops.arange(v.shape[-1], dtype=int32) * 37) % 254 + 1
        ends = ops.expand(Tensor(np.asarray([0.0, 255.0], np.float32)), (*v.shape[:-1], 2))
        return ops.concat([spread.astype(lucid.float32) + between, ends], -1)


def inputs(draft: Drafting, dtype: DType) -> Inputs:
    """Steps are powers of two, so that inputs and their codes are exact. 0 is a code, as ONNX's own rounding has it."""
    kind: Activations = draft.choose(["dynamic", "dynamic_rows", "static"])
    zero = draft.choose([0, 1, 100, 128, 255])
    shift = draft.choose([0, -40, 30]) if kind == "static" else 0
    shift = shift if 0 <= zero + shift <= 255 else 0
    between = 0.0 if dtype == bfloat16 else draft.choose([0.0, 0.25, -0.375])  # bfloat16 holds no more than the codes
    return Inputs(kind, draft.choose([0.25, 2.0**-6]), zero, shift, between)


class Weight(NamedTuple):
    """A weight in signed bytes, and the numbers that it stands for."""

    stored: nn.Int8Weight
    numbers: Array
    text: str


def weight(draft: Drafting, rows: int, size: int, dtype: DType, activations: Inputs | None) -> Weight:
    """Scales are multiples of a power of two, so that every element type holds them, and float32 the numbers."""
    generator = np.random.default_rng(draft.number(0, 99))
    codes = generator.integers(-127, 128, (rows, size)).astype(np.int8)
    scales = (generator.integers(1, 17, rows) / 2.0**10).astype(np.float32)
    kind, grid = (None, None) if activations is None else (activations.kind, activations.grid())
    stored = nn.Int8Weight(Rows(codes, scales), dtype, kind, grid)
    return Weight(stored, codes * scales[:, None].astype(np.float64), f"{rows}x{size}, {activations or 'a table'}")


def _integers(draft: Drafting, size: int) -> int:
    shape: list[Size] = [*[dim("N"), dim("L")][: draft.number(0, 2)], size - 2]
    return draft.input(uint8, shape)


@among(INT8_WEIGHTS)
@among(INT8_WEIGHTS)
def multiplied(draft: Drafting) -> Step:
    dtype, size = draft.choose(FLOATS), draft.choose([3, 16, 17, 32, 40, 64])
    activations = inputs(draft, dtype)
    drawn, bias = weight(draft, draft.number(1, 40), size, dtype, activations), draft.flag()
    layer = filled(nn.Linear(size, len(drawn.numbers), bias), dtype)
    added = layer.bias
    layer.weight = drawn.stored
    module = nested(draft, layer)

    def defined(v: Tensor) -> Tensor:
        y = product(activations.rounded(v, dtype), drawn.numbers)
        return y if added is None else y + added

    text = f"Linear {dtype} {drawn.text}, bias={bias}"
    step = lambda v: module(activations.build(v, dtype))  # noqa: E731
    return Step(text, (_integers(draft, size),), step, layer=module, definition=defined)


@among(INT8_WEIGHTS)
def looked_up(draft: Drafting) -> Step:
    """Rows of a table by index or in order, which may also be multiplied."""
    i = draft.pick(lambda v: v.type.dtype in (lucid.int32, lucid.int64) and v.rank <= 3)
    if i is None:
        i = draft.input(lucid.int64, [dim("N"), dim("L")])
    dtype, rows = draft.choose(FLOATS), draft.number(5, 9)
    drawn = weight(draft, rows, draft.choose([4, 16, 33]), dtype, None)
    table = nn.Embedding(*drawn.numbers.shape)
    table.weight = drawn.stored  # type: ignore[assignment]
    tied, first = draft.flag(), draft.number(0, 3)

    def apply(v: Tensor) -> Tensor:
        x = table(v % rows) + table.weight[first : first + 1]
        return F.linear(x, table.weight) if tied else x

    def defined(v: Tensor) -> Tensor:
        numbers = Tensor(drawn.numbers.astype(dtype.numpy))
        x = ops.take(numbers, v % rows) + numbers[first : first + 1]
        return x @ numbers.mT if tied else x

    return Step(f"Embedding {drawn.text}, tied={tied}", (i,), apply, layer=table, definition=defined)


@among(INT8_WEIGHTS)
def attention(draft: Drafting) -> Step:
    """Multi-head attention, whose projections are parts of one weight."""
    dtype, width = draft.choose(FLOATS), draft.choose([4, 16, 20, 32])
    heads, causal = draft.choose([1, 2, 4]), draft.flag()
    kv_heads = draft.choose([h for h in (1, 2, 4) if heads % h == 0])
    activations = inputs(draft, dtype)
    small, whole = (filled(nn.MultiHeadAttention(width, heads, num_kv_heads=kv_heads), dtype) for _ in range(2))
    drawn = weight(draft, whole.in_proj_weight.shape[0], width, dtype, activations)
    small.in_proj_weight = drawn.stored
    numbers = np.split(drawn.numbers, [width, width + width // heads * kv_heads])

    def defined(v: Tensor) -> Tensor:
        x, biases = activations.rounded(v, dtype), whole.in_proj_bias.split([len(part) for part in numbers])
        q, k, y = (product(x, part) + bias for part, bias in zip(numbers, biases, strict=True))
        out = ops.attention(q, k, y, heads=heads, kv_heads=kv_heads, is_causal=causal)
        return F.linear(out, whole.out_proj.weight, whole.out_proj.bias)

    text = f"MultiHeadAttention {dtype} {heads} {kv_heads} {drawn.text}, causal={causal}"
    x = draft.input(uint8, [dim("N"), dim("L"), width - 2])
    return Step(
        text, (x,), lambda v: small(activations.build(v, dtype), is_causal=causal), layer=small, definition=defined
    )
