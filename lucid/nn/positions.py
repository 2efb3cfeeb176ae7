"""Positions of tokens: sinusoidal, learned and rotary encodings, and the biases of ALiBi and T5."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from lucid import ops
from lucid.core.graph.types import Array, DTypeLike, TensorType, as_dtype, float32, int64, spec
from lucid.core.number_ranges import POSITIVE, check
from lucid.core.sizes.dims import Size
from lucid.nn import init
from lucid.nn._checks import check_positive
from lucid.nn.init import new_parameter
from lucid.nn.module import Module
from lucid.nn.quantized import embedding
from lucid.nn.rope_scaling import RopeScaling, inverse_frequencies
from lucid.ops.tensor.tensor import Tensor


class SinusoidalPositionalEncoding(Module):
    """Adds sines and cosines of the position (Vaswani et al. 2017, section 3.5): (N, L, dim) to (N, L, dim).

    Feature 2i is sin(position / 10000^(2i / dim)), feature 2i + 1 the cosine of the same. The table is computed, so it
    is not part of the state.

    Args:
        dim: the width, an even number.
        max_length: the number of positions.
        batch_first: batch before length, else (L, N, dim).

    Raises:
        ValueError: for sizes that are not positive, or an odd width.
    """

    def __init__(self, dim: int, max_length: int = 5000, batch_first: bool = True) -> None:
        check_positive("SinusoidalPositionalEncoding", dim=dim, max_length=max_length)
        if dim % 2:
            raise ValueError(f"SinusoidalPositionalEncoding: dim is {dim}, expected an even number")
        self.dim, self.max_length, self.batch_first = dim, max_length, batch_first
        angles = np.arange(max_length)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
        table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(max_length, dim)
        self._table = Tensor(table.astype(np.float32))

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Add the rows of positions, integers (L,) or (N, L); by default of 0 to L - 1.

        Raises:
            ValueError, IndexError: for more positions than the table has, or positions outside it (eagerly).
        """
        if positions is None:
            length = x.shape[1 if self.batch_first else 0]
            rows = _first_rows("SinusoidalPositionalEncoding", self._table, length)
        else:
            rows = ops.embedding(positions, self._table)
        rows = rows.astype(x.dtype)
        if self.batch_first:
            return x + rows
        return x + (ops.unsqueeze(rows, 1) if rows.ndim == 2 else ops.transpose(rows, 0, 1))

    def input_specs(self) -> Mapping[str, TensorType]:
        shape = ("N", "L", self.dim) if self.batch_first else ("L", "N", self.dim)
        return {"x": spec(*shape)}

    def extra_repr(self) -> str:
        return f"{self.dim}, max_length={self.max_length}"


class LearnedPositions(Module):
    """A table of position vectors: a length L to the rows (L, dim) of positions 0 to L - 1, or integers (..., L) to the
    rows (..., L, dim) of these positions.

    State: ``weight`` (max_length + offset, dim). The first `offset` rows are skipped (OPT, BART: 2).
    """

    quantizable: ClassVar = {"weight": "table"}

    def __init__(self, max_length: int, dim: int, offset: int = 0, dtype: DTypeLike | None = None) -> None:
        check_positive("LearnedPositions", max_length=max_length, dim=dim)
        self.offset = offset
        self.weight = init.normal_(new_parameter(max_length + offset, dim, dtype=dtype))

    def forward(self, positions: Size | Tensor) -> Tensor:
        if isinstance(positions, Tensor):
            return embedding(positions + self.offset if self.offset else positions, self.weight)
        return _first_rows("LearnedPositions", self.weight, positions, self.offset)

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.weight.shape)) + (f", offset={self.offset}" if self.offset else "")


def _first_rows(where: str, table: Tensor, length: Size, offset: int = 0) -> Tensor:
    held = table.shape[0] - offset
    if isinstance(length, int) and length > held:
        raise ValueError(f"{where}: the input has {length} positions, the table {held}; shorten the input")
    return table[offset : length + offset]


class RotaryEmbedding(Module):
    """Rotary positions (Su et al. 2021): cosines and sines for positions, and the rotation of queries and keys.

    ::

        cos, sin = rope(positions)                     # once per model: (N, L) integers to (N, L, rotary_dim / 2) each
        q, k = rope.rotate(q, cos, sin, heads=H), rope.rotate(k, cos, sin, heads=H_kv)

    There is no table, so positions have no upper limit. Angles are computed in float32.

    Args:
        head_dim: d, the width of a head.
        base: the wavelengths go from 2 pi to 2 pi * base.
        rotary_dim: how many features of a head to rotate, an even number; by default all.
        interleaved: pairs are adjacent features (GPT-J) instead of features of the two halves (Llama).
        scaling: how to extend to texts longer than in training: see `nn.rope_scaling`.

    Raises:
        ValueError: for sizes or a base that are not positive, or a `rotary_dim` that is odd or larger than `head_dim`.
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        *,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        scaling: RopeScaling | None = None,
        dtype: DTypeLike = float32,
    ) -> None:
        rotary_dim = head_dim if rotary_dim is None else rotary_dim
        check_positive("RotaryEmbedding", head_dim=head_dim, rotary_dim=rotary_dim)
        if rotary_dim % 2 or rotary_dim > head_dim:
            raise ValueError(
                f"RotaryEmbedding: rotary_dim is {rotary_dim}, expected an even number up to head_dim {head_dim}"
            )
        check("RotaryEmbedding: base", base, POSITIVE)
        self.head_dim, self.rotary_dim, self.base = head_dim, rotary_dim, float(base)
        self.interleaved, self.scaling, self.dtype = interleaved, scaling, as_dtype(dtype)
        frequencies = inverse_frequencies(rotary_dim, self.base)
        self._frequencies = Tensor(scaling.scale(frequencies, self.base) if scaling else frequencies)
        self._magnitude = scaling.magnitude if scaling else 1.0

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(..., L) integers to the cosines and sines (..., L, rotary_dim / 2), the same for all layers."""
        frequencies = self._frequencies
        if self.scaling is not None:
            frequencies = self.scaling.at_length(frequencies, self.base, positions)
        angles = ops.unsqueeze(positions, -1).astype(float32) * frequencies
        cos, sin = ops.cos(angles), ops.sin(angles)
        if self._magnitude != 1.0:
            cos, sin = cos * self._magnitude, sin * self._magnitude
        return cos.astype(self.dtype), sin.astype(self.dtype)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor, *, heads: int | None = None) -> Tensor:
        """Rotate (N, H, L, d) or, with `heads`, packed (N, L, H*d): see `ops.rotary_embedding`."""
        return ops.rotary_embedding(x, cos, sin, heads=heads, interleaved=self.interleaved)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"positions": spec("N", "L", dtype=int64)}

    def extra_repr(self) -> str:
        partial = f", rotary_dim={self.rotary_dim}" if self.rotary_dim != self.head_dim else ""
        scaling = f", scaling={self.scaling}" if self.scaling else ""
        return f"{self.head_dim}, base={self.base:g}{partial}{', interleaved' * self.interleaved}{scaling}"


class ALiBi(Module):
    """Attention with linear biases (Press et al. 2022): a mask to add to the scores, (1, H, L, S).

    It subtracts slope * distance from a score. The slopes are 2^(-8 h / H) for head h = 1 ... H if H is a power of two;
    else those of the next smaller power of two, then every other one of twice as many.

    Args:
        num_heads: H.
        symmetric: also subtract for keys after the query (for encoders). By default slope * distance is added for
            these, and causal attention hides them.
    """

    def __init__(self, num_heads: int, symmetric: bool = False) -> None:
        check_positive("ALiBi", num_heads=num_heads)
        self.num_heads, self.symmetric = num_heads, symmetric
        self._slopes = Tensor(alibi_slopes(num_heads).reshape(1, num_heads, 1, 1))

    def forward(self, queries: Size, keys: Size, past: Size | Tensor = 0) -> Tensor:
        """The mask for queries at positions from `past` on, and keys at positions from 0 on; where `past` is integers
        (N,), each row of the batch has its own and the mask is (N, H, L, S).
        """
        distance = _relative(queries, keys, past)
        if isinstance(past, Tensor):
            distance = ops.unsqueeze(distance, 1)
        return (-abs(distance) if self.symmetric else distance).astype(float32) * self._slopes

    def extra_repr(self) -> str:
        return f"{self.num_heads}{', symmetric=True' if self.symmetric else ''}"


def alibi_slopes(heads: int) -> Array:
    """The slope of each head, (H) float32."""
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / whole) for head in range(whole)]
    slopes += [2 ** (-8 * (head + 1) / (2 * whole)) for head in range(0, 2 * (heads - whole), 2)]
    return np.asarray(slopes, np.float32)


class RelativePositionBias(Module):
    """A learned bias for each bucket of distances and each head (T5: Raffel et al. 2020): a mask (1, H, L, S) to add.

    The first half of the buckets hold one distance each; the others grow logarithmically up to `max_distance`, and
    larger distances share the last one. State: ``weight`` (num_buckets, num_heads).

    Args:
        num_heads: H.
        num_buckets, max_distance: the number of buckets, and the distance from which all share the last one.
        bidirectional: use half of the buckets for keys after the query; else these all count as distance 0.

    Raises:
        ValueError: for sizes that are not positive, too few buckets, or a `max_distance` within the first buckets.
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        name = "RelativePositionBias"
        check_positive(name, num_heads=num_heads, num_buckets=num_buckets, max_distance=max_distance)
        one_way = num_buckets // 2 if bidirectional else num_buckets
        if one_way < 2 or max_distance <= one_way // 2:
            raise ValueError(
                f"{name}: got {num_buckets} buckets up to distance {max_distance}, expected at least "
                f"{4 if bidirectional else 2} buckets and a distance above {max(1, one_way // 2)}"
            )
        self.bidirectional, self.max_distance = bidirectional, max_distance
        self.weight = init.normal_(new_parameter(num_buckets, num_heads, dtype=dtype))
        self._buckets = Tensor(_bucket_table(one_way, max_distance, bidirectional))

    def forward(self, queries: Size, keys: Size, past: Size | Tensor = 0) -> Tensor:
        """The mask for queries at positions from `past` on, and keys at positions from 0 on; where `past` is integers
        (N,), each row of the batch has its own and the mask is (N, H, L, S).
        """
        reach = self.max_distance
        distance = ops.minimum(ops.maximum(_relative(queries, keys, past), -reach), reach)
        buckets = ops.take(self._buckets, distance + reach)
        bias = ops.take(self.weight.mT, buckets, 1)
        return ops.transpose(bias, 0, 1) if isinstance(past, Tensor) else ops.unsqueeze(bias, 0)

    def extra_repr(self) -> str:
        buckets, heads = self.weight.shape
        return f"{heads}, num_buckets={buckets}, max_distance={self.max_distance}, bidirectional={self.bidirectional}"


def _relative(queries: Size, keys: Size, past: Size | Tensor) -> Tensor:
    """(L, S) integers, or (N, L, S) for a `past` (N,): the position of the key minus that of the query."""
    if isinstance(past, Tensor):
        query = ops.unsqueeze(past, (1, 2)) + ops.unsqueeze(ops.arange_op(start=0, stop=queries), 1)
    else:
        query = ops.unsqueeze(ops.arange_op(start=past, stop=past + queries), 1)
    return ops.arange_op(start=0, stop=keys) - query


def _bucket_table(one_way: int, reach: int, bidirectional: bool) -> Array:
    """The bucket of each relative position from -reach to reach; larger distances are in the buckets of these two."""
    near = one_way // 2
    far = np.arange(near, reach + 1, dtype=np.float32)
    # In float32 and in this order, as the published models were trained: at a boundary the rounding matters.
    share = np.log(far / np.float32(near)) / np.float32(math.log(reach / near)) * np.float32(one_way - near)
    buckets = np.concatenate([np.arange(near), np.minimum(near + share.astype(np.int64), one_way - 1)])
    behind = buckets[::-1]  # of the positions -reach ... 0
    ahead = buckets[1:] + one_way if bidirectional else np.zeros(reach, np.int64)
    return np.concatenate([behind, ahead])
