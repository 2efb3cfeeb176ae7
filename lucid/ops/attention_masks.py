"""Masks of attention: which keys they exclude, what they add, and how several become one. Every path asks here.

A floating mask excludes by the numbers of its own type, so that is decided before any cast: the lowest number of
float16 is an ordinary one in float32, and an ordinary float32 may be past the end of float16.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from lucid.ops.elementwise import logical_and, logical_or, where
from lucid.ops.shaping import unsqueeze
from lucid.ops.tensor import Tensor
from lucid.types import DType, float32


def scores_type(dtype: DType) -> DType:
    """The element type in which scores are computed: half precision in float32."""
    return float32 if dtype.itemsize == 2 else dtype


def excluded(mask: Tensor) -> Tensor:
    """Where a floating mask excludes its key: -inf and the lowest finite number of its type. NaN excludes nothing."""
    return mask <= mask.dtype.lowest


def joined(mask: Tensor | None, key_mask: Tensor | None, position: Tensor | None, dtype: DType) -> Tensor | None:
    """All masks as one for scores in `dtype`: boolean where all are, else floating, of no wider type than that.

    A key that any of them excludes is excluded, whatever the others hold. Floating ones are added in the type of the
    scores; what is not above its lowest number then excludes, too. `position` is what causality and windows let be
    seen.
    """
    given = [m for m in (mask, None if key_mask is None else unsqueeze(key_mask, (1, 2)), position) if m is not None]
    seen = [m for m in given if m.dtype.kind == "bool"]
    floating = [m for m in given if m.dtype.kind == "float"]
    visible = reduce(logical_and, seen) if seen else None
    if not floating:
        return visible
    if len(floating) == 1:
        added = floating[0] if _fits(floating[0], dtype) else in_type(floating[0], dtype)
    else:
        hidden = reduce(logical_or, map(excluded, floating))
        added = where(hidden, -np.inf, reduce(lambda x, y: x + y, (_cast(m, dtype) for m in floating)))
    return added if visible is None else where(visible, added, -np.inf)


def in_type(mask: Tensor, dtype: DType) -> Tensor:
    """A floating mask in another type, where it excludes what it excluded in its own, and nothing else."""
    return mask if mask.dtype == dtype else where(excluded(mask), -np.inf, _cast(mask, dtype))


def _fits(mask: Tensor, dtype: DType) -> bool:
    """Whether no number of the mask lies below the lowest of the type."""
    return mask.dtype.lowest >= dtype.lowest


def _cast(mask: Tensor, dtype: DType) -> Tensor:
    """The numbers in another type; what lies below the lowest there becomes the one above it, which is not excluded."""
    cast = mask.astype(dtype)
    if _fits(mask, dtype):
        return cast
    least = float(np.nextafter(dtype.numpy.type(dtype.lowest), dtype.numpy.type(0)))
    return where(excluded(cast), least, cast)
