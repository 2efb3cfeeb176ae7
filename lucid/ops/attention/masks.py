"""Masks of attention: which keys they exclude, what they add, and how several become one. All paths use this module.

Which keys a floating mask excludes depends on its own element type, so it is decided before any cast: the lowest number
of float16 is an ordinary one in float32, and an ordinary float32 may be out of range in float16.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from lucid.core.graph.types import DType, broadcast, same_shape, show_shape
from lucid.core.sizes.dims import Shape, Size
from lucid.ops.attention.call import AttentionCall
from lucid.ops.creation import arange_op, full
from lucid.ops.elementwise import logical_and, logical_or, where
from lucid.ops.shaping import concat, expand, unsqueeze
from lucid.ops.tensor.tensor import Tensor


def excluded(mask: Tensor) -> Tensor:
    """Where a floating mask excludes keys: at -inf and the lowest finite number of its type. NaN excludes nothing."""
    return mask <= mask.dtype.lowest


def causal_mask(
    queries: Size, keys: Size, past: Size = 0, *, ahead: int | None = 0, window: int | None = None
) -> Tensor:
    """(L, S) booleans: which keys a query sees by position alone; the first query is at position `past`.

    It sees `ahead` keys after its own position, or all if that is None, and `window` keys up to it, or all.
    """
    row = unsqueeze(arange_op(start=past, stop=past + queries), 1)
    column = arange_op(start=0, stop=keys)
    seen = []
    if ahead is not None:
        seen.append(column <= (row + ahead if ahead else row))
    if window is not None:
        seen.append(column > row - window)
    return reduce(logical_and, seen)


def position_mask(call: AttentionCall, *, is_causal: bool) -> Tensor | None:
    """The mask of a call's windows and, if `is_causal`, of causality: (L, P + S) booleans, or None without any."""
    window, ahead = call.options.window, 0 if is_causal else call.options.window_after
    if ahead is None and window is None:
        return None
    return causal_mask(call.queries, call.keys, call.past, ahead=ahead, window=window)


def combined_mask(call: AttentionCall, position: Tensor | None) -> Tensor | None:
    """Combine all masks of a call into one: boolean if all are, else floating, of no wider type than the scores.

    A key that any of them excludes is excluded, whatever the others hold. Floating masks are added in the type of the
    scores; a sum not above its lowest number excludes, too. `position` is the result of `position_mask`.
    """
    dtype = call.scores_type
    given = [m for m in (*_score_masks(call), position) if m is not None]
    seen = [m for m in given if m.dtype.kind == "bool"]
    floating = [m for m in given if m.dtype.kind == "float"]
    visible = reduce(logical_and, seen) if seen else None
    if not floating:
        return visible
    if len(floating) == 1:
        added = floating[0] if _fits(floating[0], dtype) else cast_mask(floating[0], dtype)
    else:
        hidden = reduce(logical_or, map(excluded, floating))
        added = where(hidden, -np.inf, reduce(lambda x, y: x + y, (_cast_numbers(m, dtype) for m in floating)))
    return added if visible is None else where(visible, added, -np.inf)


def cast_mask(mask: Tensor, dtype: DType) -> Tensor:
    """A floating mask in another type, in which it excludes the same keys."""
    return mask if mask.dtype == dtype else where(excluded(mask), -np.inf, _cast_numbers(mask, dtype))


def extended_mask(mask: Tensor, keys: Size, extra: int) -> Tensor:
    """A mask over `keys` keys, broadcasting or not, extended by `extra` keys that every query sees."""
    mask = expand(mask, (*mask.shape[:-1], keys))
    visible = full((*mask.shape[:-1], extra), mask.dtype.kind == "bool", mask.dtype)
    return concat([mask, visible], -1)


def check_masks(call: AttentionCall, scores: Shape) -> None:
    """Check the masks of a call whose scores have this shape.

    Raises:
        TypeError: for an integer mask.
        ValueError: for a mask that does not broadcast to the scores.
    """
    for mask in _score_masks(call):
        if mask.dtype.kind == "int":
            raise TypeError(
                f"attention: the mask is {mask.type}, expected booleans or floats; a mask of 0 and 1 becomes "
                "boolean with mask.astype(lucid.bool_) or mask != 0"
            )
        try:
            fits = same_shape(broadcast("attention", mask.shape, scores), scores)
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"attention: the mask has shape {show_shape(mask.shape)}, which does not broadcast to the scores "
                f"(N, H, L, S) = {show_shape(scores)}"
            )


def _score_masks(call: AttentionCall) -> list[Tensor]:
    """The masks given to a call, with the axes that broadcast to its scores."""
    key_mask = None if call.key_mask is None else unsqueeze(call.key_mask, (1, 2))
    return [mask for mask in (call.mask, key_mask) if mask is not None]


def _fits(mask: Tensor, dtype: DType) -> bool:
    """Whether no number of the mask is below the lowest of the type."""
    return mask.dtype.lowest >= dtype.lowest


def _cast_numbers(mask: Tensor, dtype: DType) -> Tensor:
    """Cast the numbers; one below the new type's lowest becomes the next one above that, so it is not excluded."""
    cast = mask.astype(dtype)
    if _fits(mask, dtype):
        return cast
    least = float(np.nextafter(dtype.numpy.type(dtype.lowest), dtype.numpy.type(0)))
    return where(excluded(cast), least, cast)
