"""The results that attention may give for NaN and infinity where docs/attention.md allows two: the judge accepts both.

Some kernels skip the keys that causality and windows hide, others multiply them by 0: the output is NaN, or what it
would be without them. A query that sees no key gives 0, or NaN if there is any NaN. And if the weights of a query are
NaN, that of a hidden key is NaN or 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lucid import Tensor, ops
from lucid.types import Array, DType, TensorType
from lucid.values import Attributes, Node, Result, Value

_KEYS_AND_VALUES = (1, 2, 5, 6)  # among the inputs of an attention
_MASKS = (3, 4)


def finite(inputs: Sequence[Value | None]) -> list[Tensor | None]:
    """The inputs of an attention with 0 in place of NaN and infinity in keys and values."""
    given = [None if v is None else Tensor.from_value(v) for v in inputs]
    return [
        ops.where(ops.abs(t) <= t.dtype.largest, t, 0.0) if t is not None and i in _KEYS_AND_VALUES else t
        for i, t in enumerate(given)
    ]


def either(
    node: Node, results: Sequence[Value], without: Sequence[Value], inputs: Sequence[Value | None]
) -> list[Result]:
    """The results of an attention, and of the same on finite keys and values, as values that may be either."""
    types = [None if (v := inputs[i]) is None else v.type.dtype for i in _MASKS]
    op = Either(node.attributes, len(results), types)
    return list(Node(op, (*results, *without, *inputs), {}, node.types, "").results)


@dataclass(frozen=True)
class Either:
    """An operation used only by the judge, whose result differs from run to run."""

    call: Attributes
    count: int
    mask_types: Sequence[DType | None]
    name: str = "either"
    defaults: Attributes = field(default_factory=dict)

    def evaluate(self, inputs: Sequence[Array | None], attributes: Attributes) -> tuple[Array, ...]:
        return self.run(0, inputs)

    def infer(self, inputs: Sequence[TensorType | None], attributes: Attributes) -> tuple[TensorType, ...]:
        return tuple(kind for kind in inputs[: self.count] if kind is not None)

    def run(self, run: int, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        """Odd runs leave hidden keys out, even ones make them NaN where they can be NaN; the first is unchanged."""
        results = [a for a in arrays[: self.count] if a is not None]
        without = arrays[self.count : 2 * self.count]
        query, key, value, *masks, past_key, past_value = arrays[2 * self.count :]
        if run == 0 or query is None or key is None or value is None:
            return tuple(results)
        heads, past = self.call["heads"], 0 if past_key is None else past_key.shape[2]
        query = _split(query, heads)
        bad_query = ~np.isfinite(query).all(-1, keepdims=True)
        key, value = (
            np.repeat(t, query.shape[1] // t.shape[1], 1)
            for t in (self._with_past(key, past_key), self._with_past(value, past_value))
        )
        bad_value = ~np.isfinite(value)
        bad_key = ~np.isfinite(key).all(-1)[:, :, None]  # (N, H, 1, S)
        infinite_key = np.isinf(key).any(-1)[:, :, None]
        hidden = self._hidden(query.shape[2], bad_key.shape[-1], past)
        visible = self._visible(~hidden, masks, (*query.shape[:3], bad_key.shape[-1]))
        rows = (hidden & bad_key).any(-1, keepdims=True)
        cells = rows | (hidden[..., None] & bad_value[:, :, None]).any(3)
        beside = (~hidden & (bad_key | bad_value.any(-1)[:, :, None])).any(-1, keepdims=True)
        # onnxruntime hides keys by the lowest number: a query that sees only scores of -inf gets hidden values.
        infinite = (visible & infinite_key).any(-1, keepdims=True) | np.isinf(query).any(-1, keepdims=True)
        infinite &= ~visible.all(-1, keepdims=True)
        blind = ~visible.any(-1, keepdims=True)
        blind &= bad_query | bad_key.any(-1, keepdims=True) | bad_value.any((2, 3))[..., None, None]

        def chosen(result: Array, other: Array | None, reached: Array, dead: Array, both: Array) -> Array:
            if run % 2:  # in the first run NaN may come from an overflow, and stays
                return np.where(
                    dead, np.nan if run == 1 else 0.0, np.where(both, np.inf, np.where(reached, other, result))
                )
            return np.where(dead | reached | both, np.nan, result)

        wide = (np.broadcast_to(t, cells.shape) for t in (cells, blind, cells & beside | infinite))
        results[0] = chosen(results[0], without[0], *(_joined(t, heads) for t in wide))
        if self.call["need_weights"]:
            weights = chosen(results[-1], without[-1], rows, blind, rows & beside | infinite)
            spoiled = np.isnan(weights).any(-1, keepdims=True) & ~visible
            results[-1] = weights if run == 1 else np.where(spoiled, 0.0 if run % 2 else np.nan, weights)
        return tuple(results)

    def _with_past(self, x: Array, past: Array | None) -> Array:
        split = _split(x, self.call["heads"] and (self.call["kv_heads"] or self.call["heads"]))
        return split if past is None else np.concatenate([past, split], 2)

    def _hidden(self, queries: int, keys: int, past: int) -> Array:
        """(L, S): true where causality or the window hide a key."""
        row, column = np.arange(queries)[:, None] + past, np.arange(keys)
        hidden = np.zeros((queries, keys), bool)
        if self.call["is_causal"]:
            hidden |= column > row
        if self.call["window"] is not None:
            hidden |= column <= row - self.call["window"]
        return hidden

    def _visible(self, visible: Array, masks: Sequence[Array | None], shape: tuple[int, ...]) -> Array:
        """(N, H, L, S): what the masks leave of it."""
        visible = np.broadcast_to(visible, shape)
        for index, (mask, kind) in enumerate(zip(masks, self.mask_types, strict=True)):
            if mask is not None and kind is not None:
                shown = mask if kind.kind == "bool" else ~(mask <= kind.lowest)
                visible = visible & (shown[:, None, None] if index else shown)
        return visible


def _split(x: Array, heads: int | None) -> Array:
    return x if heads is None else x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _joined(x: Array, heads: int | None) -> Array:
    n, count, length, width = x.shape
    return x if heads is None else x.transpose(0, 2, 1, 3).reshape(n, length, count * width)
