"""Products with weights in few bits, and rows of tables in few bits (`lucid.quantization` says how they are stored).

A traced model keeps the bytes: these ops are never computed while tracing.
"""

from __future__ import annotations

from lucid.dims import Shape, same
from lucid.ops.indexing import take
from lucid.ops.linalg import matmul
from lucid.ops.neural import check_rows
from lucid.ops.op import composite_with, primitive
from lucid.ops.tensor import Tensor
from lucid.quantization.blocks import blocks_of, check_format, middle, unpack
from lucid.types import Array, TensorType, float32, show_shape, uint8


def _unpack_rule(packed: TensorType, *, bits: int) -> TensorType:
    if packed.dtype != uint8 or not packed.rank:
        raise TypeError(f"unpack_codes: got {packed}, expected uint8 of at least one axis")
    return packed.with_shape((*packed.shape[:-1], packed.shape[-1] * (8 // bits)))


def _unpack_kernel(packed: Array, *, bits: int) -> Array:
    return unpack(packed, bits)


@primitive(kernel=_unpack_kernel, rule=_unpack_rule)
def unpack_codes(packed: Tensor, *, bits: int) -> Tensor:  # type: ignore[empty-body]
    """Bytes (..., n) uint8 as the codes in them (..., n * 8 / bits) uint8, low bits first."""


@composite_with(folded=False)
def quantized_linear(
    x: Tensor, packed: Tensor, scales: Tensor, zero_points: Tensor | None = None, *, bits: int, block: int
) -> Tensor:
    """x @ weight.T with x (..., K) and a weight of N outputs and K inputs in few bits.

    Half precision is computed in float32.

    Args:
        x: (..., K).
        packed: (N, B, block * bits / 8) uint8, B = ceil(K / block).
        scales: (N, B).
        zero_points: (N, ceil(B * bits / 8)) uint8: the codes of 0, packed; None: 2^(bits-1) in all blocks.
        bits: 4 or 8.
        block: how many weights share a scale.

    Raises:
        TypeError: for an input or scales that are not floating-point, and codes that are not uint8.
        ValueError: for shapes that do not fit.
    """
    if not x.ndim or not isinstance(x.shape[-1], int):
        raise ValueError(f"quantized_linear: the input is {show_shape(x.shape)}, expected a last axis of a fixed size")
    if x.dtype.kind != "float":
        raise TypeError(f"quantized_linear: the input is {x.type}, expected floating-point numbers")
    weight = _dequantized("quantized_linear", packed, scales, zero_points, bits, block, x.shape[-1])
    return matmul(x.astype(weight.dtype), weight.mT).astype(x.dtype)


@composite_with(folded=False)
def quantized_embedding(
    indices: Tensor,
    packed: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    *,
    bits: int,
    block: int,
    width: int,
) -> Tensor:
    """Rows of a table (entries, width) in few bits by index: (...) integers to (..., width), in the type of `scales`.

    Args:
        indices: (...) integers.
        packed, scales, zero_points, bits, block: as for `quantized_linear`, N being the entries.
        width: of a row.

    Raises:
        IndexError: eagerly, for an index outside the table.
        TypeError: for scales that are not floating-point, and codes that are not uint8.
        ValueError: for shapes that do not fit.
    """
    _check("quantized_embedding", packed, scales, zero_points, bits, block, width)
    check_rows("quantized_embedding", indices, packed)
    shape, flat = indices.shape, indices.reshape(-1)
    zeros = None if zero_points is None else take(zero_points, flat)
    rows = _dequantized("quantized_embedding", take(packed, flat), take(scales, flat), zeros, bits, block, width)
    return rows.reshape(*shape, width).astype(scales.dtype)


def _dequantized(
    what: str, packed: Tensor, scales: Tensor, zero_points: Tensor | None, bits: int, block: int, size: int
) -> Tensor:
    """The weight (N, K), at least float32."""
    _check(what, packed, scales, zero_points, bits, block, size)
    wide = scales.astype(float32) if scales.dtype.itemsize == 2 else scales
    codes = _codes(packed, bits).astype(wide.dtype)
    if zero_points is None:
        shifted = codes - float(middle(bits))
    else:
        shifted = codes - _codes(zero_points, bits)[:, : scales.shape[1]].astype(wide.dtype).unsqueeze(-1)
    weight = shifted * wide.unsqueeze(-1)
    return weight.reshape(packed.shape[0], packed.shape[1] * block)[:, :size]


def _codes(packed: Tensor, bits: int) -> Tensor:
    return packed if bits == 8 else unpack_codes(packed, bits=bits)


def _check(
    what: str, packed: Tensor, scales: Tensor, zero_points: Tensor | None, bits: int, block: int, size: int
) -> None:
    check_format(what, bits, block)
    if scales.dtype.kind != "float":
        raise TypeError(f"{what}: the scales are {scales.type}, expected floating-point numbers")
    for name, codes in (("packed", packed), ("zero_points", zero_points)):
        if codes is not None and codes.dtype != uint8:
            raise TypeError(f"{what}: {name} is {codes.type}, expected uint8")
    count = blocks_of(size, block)
    rows = packed.shape[0] if packed.ndim else 0
    expected: dict[str, tuple[Tensor | None, Shape]] = {
        "packed": (packed, (rows, count, block * bits // 8)),
        "scales": (scales, (rows, count)),
        "zero_points": (zero_points, (rows, blocks_of(count * bits, 8))),
    }
    for name, (given, shape) in expected.items():
        if given is not None and not _fits(given, shape):
            raise ValueError(
                f"{what}: {name} is {show_shape(given.shape)}, expected {show_shape(shape)} for {size} inputs in "
                f"{bits} bits and blocks of {block}"
            )


def _fits(given: Tensor, shape: Shape) -> bool:
    return given.ndim == len(shape) and all(same(own, wanted) for own, wanted in zip(given.shape, shape, strict=True))
