"""Products with quantized weights, and rows of quantized tables (`lucid.quantization` says how they are stored).

A traced model keeps the bytes: these ops are never computed while tracing.
"""

from __future__ import annotations

from typing import NamedTuple

from lucid.core.graph.types import TensorType, same_shape, show_shape, uint8
from lucid.core.sizes.dims import Shape
from lucid.ops.elementwise import at_least_float32
from lucid.ops.indexing import take
from lucid.ops.kernels import quantized as quantized_kernel
from lucid.ops.linalg import matmul
from lucid.ops.neural import check_rows
from lucid.ops.op import composite_with, primitive
from lucid.ops.tensor.tensor import Tensor
from lucid.quantization.blocks import blocks_of, check_format, middle, unpack


def _unpack_rule(packed: TensorType, *, bits: int) -> TensorType:
    if packed.dtype != uint8 or not packed.rank:
        raise TypeError(f"unpack_codes: got {packed}, expected uint8 of at least one axis")
    return packed.with_shape((*packed.shape[:-1], packed.shape[-1] * (8 // bits)))


@primitive(kernel=lambda packed, *, bits: unpack(packed, bits), rule=_unpack_rule)
def unpack_codes(packed: Tensor, *, bits: int) -> Tensor:  # type: ignore[empty-body]
    """Bytes (..., n) uint8 as the codes in them (..., n * 8 / bits) uint8, low bits first."""


class _BlockWeight(NamedTuple):
    """The operands and attributes that make up a quantized weight."""

    packed: Tensor
    scales: Tensor
    zero_points: Tensor | None
    minimums: Tensor | None
    bits: int
    block: int

    def check(self, what: str, size: int) -> None:
        """Refuse operands that do not make up a weight (N, size)."""
        check_format(what, self.bits, self.block)
        packed, scales, zero_points, minimums, bits, block = self
        if scales.dtype.kind != "float":
            raise TypeError(f"{what}: the scales are {scales.spec}, expected floating-point numbers")
        for name, codes in (("packed", packed), ("zero_points", zero_points)):
            if codes is not None and codes.dtype != uint8:
                raise TypeError(f"{what}: {name} is {codes.spec}, expected uint8")
        if minimums is not None and minimums.dtype != scales.dtype:
            raise TypeError(f"{what}: minimums is {minimums.spec}, expected {scales.dtype}, the type of the scales")
        if minimums is not None and zero_points is not None:
            raise ValueError(f"{what}: got zero_points and minimums, expected one of them")
        count = blocks_of(size, block)
        rows = packed.shape[0] if packed.ndim else 0
        expected: dict[str, tuple[Tensor | None, Shape]] = {
            "packed": (packed, (rows, count, block * bits // 8)),
            "scales": (scales, (rows, count)),
            "zero_points": (zero_points, (rows, blocks_of(count * bits, 8))),
            "minimums": (minimums, (rows, count)),
        }
        for name, (tensor, shape) in expected.items():
            if tensor is not None and not same_shape(tensor.shape, shape):
                raise ValueError(
                    f"{what}: {name} is {show_shape(tensor.shape)}, expected {show_shape(shape)} for {size} inputs in "
                    f"{bits} bits and blocks of {block}"
                )

    def rows(self, indices: Tensor) -> _BlockWeight:
        """The rows at a vector of indices."""

        def some(operand: Tensor | None) -> Tensor | None:
            return None if operand is None else take(operand, indices)

        packed, scales = take(self.packed, indices), take(self.scales, indices)
        return self._replace(
            packed=packed, scales=scales, zero_points=some(self.zero_points), minimums=some(self.minimums)
        )

    def dequantized(self, size: int) -> Tensor:
        """The weight (N, size), at least float32."""
        packed, scales, zero_points, minimums, bits, block = self
        wide = at_least_float32(scales)
        codes, factor = _codes(packed, bits).astype(wide.dtype), wide.unsqueeze(-1)
        if minimums is not None:
            weight = codes * factor + minimums.astype(wide.dtype).unsqueeze(-1)
        elif zero_points is not None:
            zeros = _codes(zero_points, bits)[:, : scales.shape[1]].astype(wide.dtype)
            weight = (codes - zeros.unsqueeze(-1)) * factor
        else:
            weight = (codes - float(middle(bits))) * factor
        return weight.reshape(packed.shape[0], packed.shape[1] * block)[:, :size]


@composite_with(kernel=quantized_kernel.quantized_linear, folded=False)
def quantized_linear(
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    minimums: Tensor | None = None,
    *,
    bits: int,
    block: int,
) -> Tensor:
    """x @ weight.T with x (..., K) and a quantized weight of N outputs and K inputs.

    Half precision is computed in float32.

    Args:
        x: (..., K).
        packed: (N, B, block * bits / 8) uint8, B = ceil(K / block).
        scales: (N, B).
        zero_points: (N, ceil(B * bits / 8)) uint8: the codes of 0, packed; None: 2^(bits-1) in all blocks.
        minimums: (N, B): the number of code 0, instead of zero points: a weight is scale * code + minimum.
        bits: 4 or 8.
        block: the number of weights that share a scale.

    Raises:
        TypeError: for an input or scales that are not floating-point, and codes that are not uint8.
        ValueError: for shapes that do not fit.
    """
    if not x.ndim or not isinstance(x.shape[-1], int):
        raise ValueError(f"quantized_linear: the input is {show_shape(x.shape)}, expected a last axis of a fixed size")
    if x.dtype.kind != "float":
        raise TypeError(f"quantized_linear: the input is {x.spec}, expected floating-point numbers")
    blocks = _BlockWeight(packed, scales, zero_points, minimums, bits, block)
    blocks.check("quantized_linear", x.shape[-1])
    weight = blocks.dequantized(x.shape[-1])
    return matmul(x.astype(weight.dtype), weight.mT).astype(x.dtype)


@composite_with(folded=False)
def quantized_embedding(
    indices: Tensor,
    packed: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    minimums: Tensor | None = None,
    *,
    bits: int,
    block: int,
    width: int,
) -> Tensor:
    """Rows of a quantized table (entries, width) by index: (...) integers to (..., width), in the type of `scales`.

    Args:
        indices: (...) integers.
        packed, scales, zero_points, minimums, bits, block: as for `quantized_linear`, N being the entries.
        width: of a row.

    Raises:
        IndexError: eagerly, for an index outside the table.
        TypeError: for scales that are not floating-point, and codes that are not uint8.
        ValueError: for shapes that do not fit.
    """
    blocks = _BlockWeight(packed, scales, zero_points, minimums, bits, block)
    blocks.check("quantized_embedding", width)
    check_rows("quantized_embedding", indices, packed)
    rows = blocks.rows(indices.reshape(-1)).dequantized(width)
    return rows.reshape(*indices.shape, width).astype(scales.dtype)


def _codes(packed: Tensor, bits: int) -> Tensor:
    return packed if bits == 8 else unpack_codes(packed, bits=bits)
