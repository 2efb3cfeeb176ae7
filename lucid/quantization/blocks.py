"""Quantized weights: unsigned codes, and a scale and a zero or a minimum for each block of them along the input axis.

    weight[n, k] = scales[n, k // block] * (codes[n, k] - zeros[n, k // block])     or
    weight[n, k] = scales[n, k // block] * codes[n, k] + minimums[n, k // block]

The packed layout is that of com.microsoft MatMulNBits (onnxruntime, ContribOperators.md): the codes of a block are
next to each other, low bits first, and the last block is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.number_ranges import is_whole

BITS = (4, 8)
BLOCKS = tuple(2**power for power in range(4, 12))  # the sizes of blocks that onnxruntime's kernels take


@dataclass(frozen=True, eq=False)
class Blocks:
    """A quantized weight of N outputs and K inputs, B blocks a row.

    Args:
        codes: (N, K) uint8, below 2^bits.
        scales: (N, B) float32.
        zeros: (N, B) uint8: the code of 0 in each block; None if it is the middle one, 2^(bits-1), in all.
        bits: 4 or 8.
        block: how many codes share a scale.
        minimums: (N, B) float32: the number of code 0 in each block, in place of zeros.

    Raises:
        ValueError: for bits and blocks that do not exist, codes of more bits, arrays that do not fit, scales and
            minimums with NaN or infinity.
    """

    codes: Array
    scales: Array
    zeros: Array | None
    bits: int
    block: int
    minimums: Array | None = None

    def __post_init__(self) -> None:
        check_format("Blocks", self.bits, self.block)
        if self.codes.ndim != 2 or self.codes.dtype != np.uint8:
            raise ValueError(f"Blocks: codes are {_kind(self.codes)}, expected uint8 (outputs, inputs)")
        if self.codes.max(initial=0) >> self.bits:
            raise ValueError(f"Blocks: a code is {self.codes.max()}, expected less than 2^{self.bits}")
        if self.zeros is not None and self.minimums is not None:
            raise ValueError("Blocks: got zeros and minimums, expected one of them")
        shape = len(self.codes), blocks_of(self.codes.shape[1], self.block)
        for name, array, dtype in (
            ("scales", self.scales, np.float32),
            ("zeros", self.zeros, np.uint8),
            ("minimums", self.minimums, np.float32),
        ):
            if array is None:
                continue
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(
                    f"Blocks: {name} are {_kind(array)}, expected {np.dtype(dtype).name} {list(shape)} for "
                    f"{self.shape[1]} inputs in blocks of {self.block}"
                )
            if wrong := first_wrong(array, np.isfinite(array)):
                raise ValueError(f"Blocks: {name} are {wrong}, expected finite numbers")

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.codes.shape[0], self.codes.shape[1]

    def rows(self, order: Array) -> Blocks:
        """The rows of these indices, in their order."""
        zeros, minimums = (None if part is None else part[order] for part in (self.zeros, self.minimums))
        return replace(self, codes=self.codes[order], scales=self.scales[order], zeros=zeros, minimums=minimums)

    def columns(self, order: Array) -> Blocks:
        """The columns of these indices, in their order: whole blocks, each as it is."""
        blocks = order[:: self.block] // self.block
        zeros, minimums = (None if part is None else part[:, blocks] for part in (self.zeros, self.minimums))
        codes, scales = self.codes[:, order], self.scales[:, blocks]
        return replace(self, codes=codes, scales=scales, zeros=zeros, minimums=minimums)

    def dequantized(self) -> Array:
        """The weight that the codes stand for, (N, K) float32."""
        wide = in_blocks(self.codes, self.block).astype(np.float32)
        if self.minimums is None:
            wide -= np.float32(middle(self.bits)) if self.zeros is None else self.zeros[:, :, None]
        wide *= self.scales[:, :, None]
        if self.minimums is not None:
            wide += self.minimums[:, :, None]
        return wide.reshape(len(wide), wide.shape[1] * self.block)[:, : self.codes.shape[1]]

    def packed(self) -> Array:
        """The codes as bytes, (N, B, block * bits / 8) uint8."""
        return pack(in_blocks(self.codes, self.block), self.bits)

    def packed_zeros(self) -> Array | None:
        """The zeros as bytes, (N, ceil(B * bits / 8)) uint8."""
        return None if self.zeros is None else pack(self.zeros, self.bits)


def joined(parts: Sequence[Blocks]) -> Blocks:
    """The rows of several weights as one weight. All have the same bits and blocks; all have zeros, or none does."""
    zeros = [part.zeros for part in parts if part.zeros is not None]
    codes, scales = (np.concatenate(arrays) for arrays in ([p.codes for p in parts], [p.scales for p in parts]))
    return replace(parts[0], codes=codes, scales=scales, zeros=np.concatenate(zeros) if zeros else None)


def _kind(array: Array) -> str:
    return f"{array.dtype} {list(array.shape)}"


def first_wrong(array: Array, right: Array) -> str:
    """The first number of an array that is not right, and its place; empty if all are."""
    if right.all():
        return ""
    at = [int(i) for i in np.argwhere(~right)[0]]
    return f"{float(array[tuple(at)])} at {at}"


def check_format(what: str, bits: int, block: int) -> None:
    """Refuse bits and blocks that do not exist.

    Raises:
        ValueError: naming those that do.
    """
    if not is_whole(bits) or bits not in BITS:
        raise ValueError(f"{what}: bits is {bits!r}, expected one of {', '.join(map(str, BITS))}")
    if not is_whole(block) or block not in BLOCKS:
        raise ValueError(f"{what}: block is {block!r}, expected a power of two from {BLOCKS[0]} to {BLOCKS[-1]}")


def middle(bits: int) -> int:
    """The code of the number 0 if there are no zeros."""
    return 1 << (bits - 1)


def blocks_of(size: int, block: int) -> int:
    """How many blocks hold so many codes; the last may be padded."""
    return -(-size // block)


def in_blocks(values: Array, block: int) -> Array:
    """(N, K) as (N, B, block), zeros after the end."""
    rows, size = values.shape
    count = blocks_of(size, block)
    if size < count * block:
        values = np.pad(values, ((0, 0), (0, count * block - size)))
    return values.reshape(rows, count, block)


def pack(codes: Array, bits: int) -> Array:
    """Codes (..., n) as bytes (..., ceil(n * bits / 8)), low bits first."""
    if bits == 8:
        return np.ascontiguousarray(codes)
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], 1), np.uint8)], axis=-1)
    return np.asarray(codes[..., ::2] | (codes[..., 1::2] << 4))


def unpack(packed: Array, bits: int) -> Array:
    """Bytes (..., n) as codes (..., n * 8 / bits)."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], 2 * packed.shape[-1])
