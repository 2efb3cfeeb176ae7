"""The only definition of which keys are hidden from a query of attention, and of zero for a query that sees none.

The body, the NumPy kernel, buffers and the exporter's writers use it: what a mask excludes (`excluded`), what position
hides (`seen_by_position`), how several masks become one (`combined_mask`), and what follows for the scores, the weights
and the queries that see no key (`SeenKeys`).

Which keys a floating mask excludes depends on its own element type, so it is decided before any cast: the lowest number
of float16 is an ordinary one in float32, and an ordinary float32 may be out of range in float16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Self

import numpy as np

from lucid.core.graph.types import Array, DType, as_dtype, bool_, broadcast, float32, int64, same_shape, show_shape
from lucid.core.sizes.dims import Shape, Size
from lucid.ops.attention.call import AttentionCall
from lucid.ops.attention.mask_bounds import may_exclude, next_to_lowest
from lucid.ops.creation import arange_op, full
from lucid.ops.elementwise import logical_and, logical_not, logical_or, where
from lucid.ops.neural import softmax
from lucid.ops.reduction import cumsum
from lucid.ops.shaping import concat, expand, unsqueeze
from lucid.ops.tensor.tensor import Tensor


def excluded(mask: Tensor) -> Tensor:
    """The keys that a floating mask excludes, as booleans: at -inf and the lowest finite number of its type. NaN
    excludes nothing.
    """
    return mask <= mask.dtype.lowest


def excluded_in_array(mask: Array) -> Array | None:
    """Where a floating mask in NumPy excludes keys; None if it excludes no key, as its least number shows."""
    lowest = as_dtype(mask.dtype).lowest
    return None if mask.min() > lowest else mask <= lowest


def causal_mask(
    queries: Size, keys: Size, past: Size = 0, *, ahead: int | None = 0, window: int | None = None
) -> Tensor:
    """(L, S) booleans: which keys a query sees by position alone; the first query is at position `past`.

    It sees `ahead` keys after its own position, or all if that is None, and `window` keys up to it, or all.
    """
    row = unsqueeze(arange_op(start=past, stop=past + queries), 1)
    return seen_by_position(row, arange_op(start=0, stop=keys), ahead, window)


def seen_by_position(row: Tensor, column: Tensor, ahead: int | None, window: int | None = None) -> Tensor:
    """Where the query at position `row` sees the key at position `column`, which broadcast."""
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
    scores; a sum not above its lowest number excludes as well. `position` is the result of `position_mask`.
    """
    dtype = call.scores_type
    masks = [m for m in (*_score_masks(call), position) if m is not None]
    seen = [m for m in masks if m.dtype.kind == "bool"]
    floating = [m for m in masks if m.dtype.kind == "float"]
    visible = reduce(logical_and, seen) if seen else None
    if not floating:
        return visible
    if len(floating) == 1:
        added = floating[0] if _fits(floating[0], dtype) else cast_mask(floating[0], dtype)
    else:
        hidden = reduce(logical_or, map(excluded, floating))
        added = where(hidden, -np.inf, reduce(lambda x, y: x + y, (_cast_numbers(m, dtype) for m in floating)))
    return added if visible is None else where(visible, added, -np.inf)


@dataclass(frozen=True, eq=False)
class SeenKeys:
    """Which keys the queries of a call see by all its masks, and what follows from it.

    Attributes:
        joint: all masks as one, booleans or numbers that are added to the scores; None where nothing is hidden.
        by_position: whether position alone hides keys.
        every: whether each query certainly sees a key.
    """

    joint: Tensor | None
    by_position: bool
    every: bool

    @classmethod
    def of(cls, call: AttentionCall) -> Self:
        """The masks of a call to attention."""
        position = position_mask(call, is_causal=call.options.is_causal)
        joint = combined_mask(call, position)
        by_position = joint is position
        if joint is None or by_position:
            return cls(joint, by_position, joint is None or call.options.window is None)
        return cls(joint, by_position, joint.dtype.kind == "float" and not may_exclude(joint))

    def bias(self, dtype: DType) -> Tensor:
        """The numbers that the joint mask adds to scores of a type: the lowest number to hidden ones, so weights of a
        query that sees no key are numbers and not NaN, before they are set to 0.

        Added, not selected: NaN in a hidden key stays NaN, as in the kernels of onnxruntime and torch.
        """
        assert self.joint is not None
        if self.joint.dtype == bool_:
            # The zero has axes because OpenVINO does not compile a model in which it is the same constant as that of
            # the hidden weights.
            return where(self.joint, np.zeros((1, 1), dtype.numpy), dtype.lowest)
        return self.joint.astype(dtype) if self.every else where(self._excluded, dtype.lowest, self.joint.astype(dtype))

    def weights(self, scores: Tensor, sinks: Tensor | None = None) -> Tensor:
        """The weights of scores: 0 for hidden keys. `sinks` as for `softmax_with`."""
        if self.joint is None:
            return softmax_with(sinks, scores)
        if self.by_position:
            weights = softmax_with(sinks, where(self.joint, scores, -math.inf if self.every else scores.dtype.lowest))
            return weights if self.every else where(self.joint, weights, 0.0)
        if self.joint.dtype == bool_:
            return where(self.joint, softmax_with(sinks, scores + self.bias(scores.dtype)), 0.0)
        if self.every:
            return softmax_with(sinks, scores + self.bias(scores.dtype))
        return where(self._excluded, 0.0, softmax_with(sinks, scores + self.bias(scores.dtype)))

    def queries(self) -> Tensor | None:
        """1 for queries that see a key and 0 for others, as float32 (..., L, 1); None if all do."""
        if self.joint is None or self.every:
            return None
        visible = self.joint if self.joint.dtype == bool_ else logical_not(self._excluded)
        return visible.any(-1, keepdims=True).astype(float32)

    @cached_property
    def _excluded(self) -> Tensor:
        assert self.joint is not None
        return excluded(self.joint)


def softmax_with(sinks: Tensor | None, scores: Tensor) -> Tensor:
    """The softmax over scores and, if there are sinks (H, 1, 1), one more score in each head, which is cut off."""
    if sinks is None:
        return softmax(scores)
    *rows, keys = scores.shape
    return softmax(concat([scores, expand(sinks, (*rows, 1))], -1)).narrow(-1, 0, keys)


def queries_by_key_mask(call: AttentionCall) -> Tensor:
    """Which queries see a key where a boolean mask of keys and causality alone hide some: (N, 1, L or 1, 1) booleans,
    without all L x S."""
    kept = call.key_mask
    assert kept is not None
    seen = cumsum(kept.astype(int64), axis=1) > 0 if call.options.is_causal else kept.any(1, keepdims=True)
    return unsqueeze(seen, (1, 3))


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
        check_mask("attention", mask, scores, "S")


def check_mask(where: str, mask: Tensor, scores: Shape, keys: str, advice: str = "") -> None:
    """Check a mask for scores of this shape, whose last size is called `keys`; `advice` ends the error about shapes.

    Raises:
        TypeError: for an integer mask.
        ValueError: for a mask that does not broadcast to the scores.
    """
    if mask.dtype.kind == "int":
        raise TypeError(
            f"{where}: the mask is {mask.spec}, expected booleans or floats; a mask of 0 and 1 becomes "
            "boolean with mask.astype(lucid.bool_) or mask != 0"
        )
    try:
        fits = same_shape(broadcast(where, mask.shape, scores), scores)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{where}: the mask has shape {show_shape(mask.shape)}, which does not broadcast to the scores "
            f"(N, H, L, {keys}) = {show_shape(scores)}{advice}"
        )


def _score_masks(call: AttentionCall) -> list[Tensor]:
    """The masks of a call, with axes that broadcast to its scores; they have at least the axis of keys."""
    key_mask = None if call.key_mask is None else unsqueeze(call.key_mask, (1, 2))
    return [mask if mask.ndim else unsqueeze(mask, 0) for mask in (call.mask, key_mask) if mask is not None]


def _fits(mask: Tensor, dtype: DType) -> bool:
    """Whether no number of the mask is below the lowest of the type."""
    return mask.dtype.lowest >= dtype.lowest


def _cast_numbers(mask: Tensor, dtype: DType) -> Tensor:
    """Cast the numbers; one below the new type's lowest becomes the next one above that, so it is not excluded."""
    cast = mask.astype(dtype)
    if _fits(mask, dtype):
        return cast
    return where(excluded(cast), next_to_lowest(dtype), cast)
