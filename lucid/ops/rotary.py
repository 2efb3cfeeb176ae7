"""Rotary position embedding: pairs of features rotated by an angle that grows with the position."""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import Array, same_shape, show_shape
from lucid.core.sizes.dims import Size, same
from lucid.ops.indexing import take
from lucid.ops.op import composite_with
from lucid.ops.shaping import concat, reshape, split, stack, unsqueeze
from lucid.ops.tensor.tensor import Tensor


def _kernel(
    x: Array, cos: Array, sin: Array, positions: Array | None, *, heads: int | None, interleaved: bool
) -> Array:
    if positions is not None:
        _check_positions("cos", positions, len(cos))
        _check_positions("sin", positions, len(sin))
        cos, sin = cos[positions], sin[positions]
    split_heads = x if heads is None else x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
    if cos.ndim == 3 or heads is not None:  # (L, r/2) fits the rows of heads that are apart
        axis = -2 if heads is not None else 1
        cos, sin = np.expand_dims(cos, axis), np.expand_dims(sin, axis)
    half = cos.shape[-1]
    width, rotated = split_heads.shape[-1], 2 * half
    if interleaved:
        a, b = split_heads[..., 0:rotated:2], split_heads[..., 1:rotated:2]
        result = np.empty(split_heads.shape, x.dtype)
        np.subtract(a * cos, b * sin, result[..., 0:rotated:2])
        np.add(a * sin, b * cos, result[..., 1:rotated:2])
        result[..., rotated:] = split_heads[..., rotated:]
    else:
        a, b = split_heads[..., :half], split_heads[..., half:rotated]
        turned = a * cos - b * sin, a * sin + b * cos
        result = np.concatenate(turned if rotated == width else (*turned, split_heads[..., rotated:]), -1)
    return result if heads is None else result.reshape(x.shape)


@composite_with(kernel=_kernel)
def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    heads: int | None = None,
    interleaved: bool = False,
) -> Tensor:
    """Rotate queries or keys by their positions (Su et al. 2021; ONNX RotaryEmbedding-23).

    A pair (a, b) of features becomes (a * cos - b * sin, a * sin + b * cos). Only the first r features of a head are
    rotated, where r / 2 is the last size of `cos`; the others are unchanged.

    Args:
        x: (N, H, L, d); with `heads`, the packed layout (N, L, H*d). Floating point.
        cos, sin: of x's element type. With `positions`, tables (P, r/2) by position; else (N, L, r/2), or (L, r/2) if
            the positions are the same for the whole batch.
        positions: (N, L) integers.
        heads: the number of heads of the packed layout.
        interleaved: pairs are adjacent features (0, 1), (2, 3), ... as in GPT-J; by default they come from the two
            halves, (0, r/2), (1, r/2 + 1), ... as in Llama.

    Returns:
        A tensor of x's shape and element type.

    Raises:
        ValueError, TypeError: for sizes or types that do not fit.
        IndexError: eagerly, for a position beyond the tables.
    """
    packed = heads is not None
    if x.ndim != (3 if packed else 4) or (heads is not None and not same(x.shape[-1] % heads, 0)):
        raise ValueError(
            f"rotary_embedding: got shape {show_shape(x.shape)}, expected "
            + (f"(N, L, {heads} * d)" if packed else "(N, H, L, d), or (N, L, H*d) with heads=H")
        )
    if not x.dtype == cos.dtype == sin.dtype or x.dtype.kind != "float":
        raise TypeError(
            f"rotary_embedding: input {x.dtype}, cos {cos.dtype}, sin {sin.dtype}: expected one floating-point "
            "type; use .astype(...)"
        )
    n, length = x.shape[0], x.shape[1] if packed else x.shape[2]
    if positions is not None:
        cos, sin = _rows_at("cos", cos, positions, n, length), _rows_at("sin", sin, positions, n, length)
    _check_angles(cos, sin, n, length)
    split_heads = x
    if heads is not None:
        split_heads = reshape(x, (n, length, heads, x.shape[-1] // heads))
        cos, sin = unsqueeze(cos, -2), unsqueeze(sin, -2)  # (N, L, 1, r/2): the same for all heads
    elif cos.ndim == 3:
        cos, sin = unsqueeze(cos, 1), unsqueeze(sin, 1)  # (N, 1, L, r/2)
    return reshape(_rotate(split_heads, cos, sin, interleaved), x.shape)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    half, width = cos.shape[-1], x.shape[-1]
    if not isinstance(half, int) or not isinstance(width, int) or not 0 < 2 * half <= width:
        raise ValueError(f"rotary_embedding: cos rotates 2 * {half} features, expected at most the heads' {width}")
    turned, rest = split(x, (2 * half, width - 2 * half), -1) if 2 * half < width else (x, None)
    if interleaved:
        pairs = reshape(turned, (*turned.shape[:-1], half, 2))
        a, b = pairs[..., 0], pairs[..., 1]
        turned = reshape(stack([a * cos - b * sin, a * sin + b * cos], -1), turned.shape)
    else:
        a, b = split(turned, half, -1)
        turned = concat([a * cos - b * sin, a * sin + b * cos], -1)
    return turned if rest is None else concat([turned, rest], -1)


def _rows_at(name: str, table: Tensor, positions: Tensor, n: Size, length: Size) -> Tensor:
    """The rows of a table (P, r/2) at positions (N, L)."""
    if table.ndim != 2 or positions.dtype.kind != "int" or not same_shape(positions.shape, (n, length)):
        raise ValueError(
            f"rotary_embedding: {name} {show_shape(table.shape)} with positions {positions.spec}: expected a table "
            f"(P, r/2) and integers {show_shape((n, length))}"
        )
    if not positions.is_traced:
        _check_positions(name, positions.numpy(), table.shape[0])
    return take(table, positions, 0)


def _check_positions(name: str, positions: Array, rows: Size) -> None:
    if not positions.size:
        return
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or high >= rows:
        raise IndexError(
            f"rotary_embedding: positions range from {low} to {high}, expected 0 or more; the {name} table has "
            f"{rows} rows"
        )


def _check_angles(cos: Tensor, sin: Tensor, n: Size, length: Size) -> None:
    fits = cos.ndim in (2, 3) and same_shape(cos.shape, sin.shape) and same(cos.shape[-2], length)
    if fits and cos.ndim == 3:
        fits = same(cos.shape[0], n) or same(cos.shape[0], 1)
    if not fits:
        raise ValueError(
            f"rotary_embedding: cos {show_shape(cos.shape)} and sin {show_shape(sin.shape)}: expected both "
            f"(N, L, r/2) or (L, r/2) with N = {n}, L = {length}; tables by position need `positions`"
        )
