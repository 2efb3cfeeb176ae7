"""Rounding to the nearest code, with a search for the range of each block that loses least.

For a block of numbers from a to b, the range is tried at 26 sizes from all of it to half: a smaller one clips the
largest numbers and is finer for all others. The one with the least squared error is taken.
"""

from __future__ import annotations

import numpy as np

from lucid.quantization.blocks import Blocks, check_format, in_blocks, middle
from lucid.types import Array

SHRINKS = np.linspace(1.0, 0.5, 26, dtype=np.float32)
_PIECE = 1 << 20  # numbers that are looked at together: they stay in the processor's cache


def rtn(weight: Array, bits: int, block: int, symmetric: bool = False) -> Blocks:
    """Round a weight (N, K) to codes.

    Symmetric: no zeros are stored; the code of 0 is the middle one. A block of zeros is exact, and so is a block of one
    number where zeros are stored.

    Raises:
        ValueError: for bits or a block that do not exist, NaN or infinity.
    """
    check_format("rtn", bits, block)
    check_weight("rtn", weight)
    parts = in_blocks(np.asarray(weight, np.float32), block)
    used = in_blocks(np.ones((1, weight.shape[1]), np.float32), block)  # padding does not count
    rows, count, _ = parts.shape
    scales, zeros = np.empty((rows, count), np.float32), np.empty((rows, count), np.uint8)
    codes = np.empty(parts.shape, np.uint8)
    step = max(1, _PIECE // (count * block))
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        scales[piece], zeros[piece] = (_symmetric if symmetric else _asymmetric)(parts[piece], used, bits)
        codes[piece] = rounded(parts[piece], scales[piece], zeros[piece], bits)
    codes = codes.reshape(rows, -1)[:, : weight.shape[1]]
    return Blocks(np.ascontiguousarray(codes), scales, None if symmetric else zeros, bits, block)


def check_weight(what: str, weight: Array) -> None:
    """Refuse what cannot be rounded.

    Raises:
        ValueError: for another rank than 2, NaN or infinity.
    """
    if weight.ndim != 2:
        raise ValueError(f"{what}: the weight has shape {list(weight.shape)}, expected (outputs, inputs)")
    finite = np.isfinite(weight)
    if not finite.all():
        at = [int(i) for i in np.argwhere(~finite)[0]]
        raise ValueError(f"{what}: the weight is {float(weight[tuple(at)])} at {at}; few bits hold finite numbers only")


def rounded(parts: Array, scales: Array, zeros: Array, bits: int) -> Array:
    """The nearest codes of numbers (N, B, block)."""
    found = parts / np.where(scales == 0, np.float32(1), scales)[:, :, None]
    found += zeros[:, :, None]
    np.rint(found, out=found)
    np.clip(found, 0, 2**bits - 1, out=found)
    return found.astype(np.uint8)


def _error(parts: Array, used: Array, scales: Array, zeros: Array, bits: int) -> Array:
    """The squared error of each block (N, B)."""
    found = parts / np.where(scales == 0, np.float32(1), scales)[:, :, None]
    found += zeros[:, :, None]
    np.rint(found, out=found)
    np.clip(found, 0, 2**bits - 1, out=found)
    found -= zeros[:, :, None]
    found *= scales[:, :, None]
    found -= parts
    found *= used
    return np.asarray(np.einsum("nbk,nbk->nb", found, found))


def _symmetric(parts: Array, used: Array, bits: int) -> tuple[Array, Array]:
    """The codes reach one further below the middle than above, so both signs of the scale are tried."""
    zeros = np.full(parts.shape[:2], middle(bits), np.uint8)
    low, high = parts.min(axis=2), parts.max(axis=2)
    largest = np.where(-low >= high, low, high)  # is given the code 0, the farthest from the middle
    whole = -largest / np.float32(middle(bits))
    candidates = [whole * shrink for shrink in SHRINKS]
    candidates += [np.maximum(-low, high) / np.float32(middle(bits) - 1) * sign for sign in (1, -1)]
    return _best(parts, used, [(scales.astype(np.float32), zeros) for scales in candidates], bits)


def _asymmetric(parts: Array, used: Array, bits: int) -> tuple[Array, Array]:
    """The range includes 0, which has a code of its own."""
    low, high = np.minimum(parts.min(axis=2), 0), np.maximum(parts.max(axis=2), 0)
    candidates = []
    for shrink in SHRINKS:
        for bottom, top in ((low * shrink, high * shrink), (low, high * shrink), (low * shrink, high)):
            scales = ((top - bottom) / np.float32(2**bits - 1)).astype(np.float32)
            zeros = np.rint(-bottom / np.where(scales == 0, np.float32(1), scales))
            candidates.append((scales, np.clip(zeros, 0, 2**bits - 1).astype(np.uint8)))
    return _best(parts, used, candidates, bits)


def _best(parts: Array, used: Array, candidates: list[tuple[Array, Array]], bits: int) -> tuple[Array, Array]:
    """The candidate with the least error in each block; of equal ones the first."""
    (scales, zeros), *others = candidates
    scales, zeros = scales.copy(), zeros.copy()
    least = _error(parts, used, scales, zeros, bits)
    for other_scales, other_zeros in others:
        error = _error(parts, used, other_scales, other_zeros, bits)
        better = error < least
        least[better], scales[better], zeros[better] = error[better], other_scales[better], other_zeros[better]
    return scales, zeros
