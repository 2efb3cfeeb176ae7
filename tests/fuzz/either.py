"""The results that attention may give for NaN and infinity where docs/attention.md allows two: the judge accepts both.

Some kernels skip the keys that causality and windows hide and the slots of a buffer that are not filled, others
multiply them by 0: the output is NaN, or what it would be without them. A query that sees no key gives 0, or NaN if
there is any NaN. And if the weights of a query are NaN, that of a hidden key is NaN or 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lucid import Tensor, ops
from lucid.core.graph.types import Array, DType, TensorType, float32
from lucid.core.graph.values import Attributes, Node, Result, Value

OPERANDS = {
    "attention": ("query", "key", "value", "mask", "key_mask", "past_key", "past_value", "sinks"),
    "buffered_attention": ("query", "key", "value", "key_buffer", "value_buffer", "starts", "mask", "sinks"),
}
_KEYS_AND_VALUES = ("key", "value", "past_key", "past_value", "key_buffer", "value_buffer")
_LARGEST = (np.inf, 1e200)  # of values and of keys
_READ = ("query", "key", "value", "mask", "key_mask", "past_key", "past_value", "starts")


def finite(op: str, inputs: Sequence[Value | None]) -> list[Tensor | None]:
    """The inputs of an attention with 0 in place of NaN and infinity in keys and values, and of numbers of keys in
    float64 whose scores are infinite even to the judge."""
    operands = zip(OPERANDS[op], (None if v is None else Tensor.from_value(v) for v in inputs), strict=True)
    return [
        t if t is None or name not in _KEYS_AND_VALUES else _up_to(t, _LARGEST["key" in name]) for name, t in operands
    ]


def _up_to(x: Tensor, largest: float) -> Tensor:
    return ops.where(ops.abs(x) <= min(x.dtype.largest, largest), x, 0.0)


def either(
    node: Node, results: Sequence[Value], without: Sequence[Value], inputs: Sequence[Value | None]
) -> list[Result]:
    """The results of an attention, and of the same on finite keys and values, as values that may be either."""
    named = dict(zip(OPERANDS[node.op.name], inputs, strict=True))
    if node.op.name == "buffered_attention":  # its keys and values are those of the buffers that it returns
        named["key"], named["value"] = results[1:3]
    types = [None if (v := named.get(name)) is None else v.type.dtype for name in ("mask", "key_mask")]
    dtype = node.types[0].dtype
    largest = float32.largest if dtype.itemsize == 2 else dtype.largest  # of the type of scores
    op = Either(node.attributes, len(results), types, largest)
    return list(Node(op, (*results, *without, *map(named.get, _READ)), {}, node.types, "").results)


class _Reach(NamedTuple):
    """Which results NaN, infinity and overflows reach: those of the output, (N, H, L, d_v), and of rows of weights.

    What is `dead` may be NaN, 0 or something else; what is not, NaN or the result without hidden keys. Rows that are
    `lost` may be NaN or 0.
    """

    cells: Array
    rows: Array
    dead: Array
    dead_rows: Array
    lost: Array
    visible: Array


@dataclass(frozen=True)
class Either:
    """An operation used only by the judge, whose result differs from run to run."""

    call: Attributes
    count: int
    mask_types: Sequence[DType | None]
    largest: float
    name: str = "either"
    defaults: Attributes = field(default_factory=dict)

    def evaluate(self, inputs: Sequence[Array | None], attributes: Attributes) -> tuple[Array, ...]:
        return self.run(0, inputs, inputs)

    def infer(self, inputs: Sequence[TensorType | None], attributes: Attributes) -> tuple[TensorType, ...]:
        return tuple(kind for kind in inputs[: self.count] if kind is not None)

    def run(self, run: int, arrays: Sequence[Array | None], exact: Sequence[Array | None]) -> tuple[Array, ...]:
        """Runs 4 and 6 have NaN wherever there may be NaN, all others the result without hidden keys.

        Runs 1 and 2 are those in which numbers overflow: NaN in the first leaves a result open, and also what is
        computed from it.
        """
        results = [a for a in arrays[: self.count] if a is not None]
        without = arrays[self.count : 2 * self.count]
        heads, reach = self.call["heads"], self._reach(arrays)
        first = self._reach(exact) if run == 1 else reach  # what is reached by an overflow is open

        def chosen(result: Array, other: Array | None, reached: Array, dead: Array) -> Array:
            if run in (4, 6):
                return np.where(dead | reached, np.nan, result)
            unlike = {0: result, 1: np.nan}.get(run, 0.0)
            return np.where(dead, unlike, np.where(reached, other, result))

        cells, dead = (_joined(t, heads) for t in (reach.cells, reach.dead | reach.cells & ~first.cells))
        results[0] = chosen(results[0], without[0], cells, dead)
        lost = reach.lost & first.lost
        if run and lost.any():
            lost = _joined(np.broadcast_to(lost, reach.cells.shape), heads) & ~dead
            results[0] = np.where(lost, np.nan if run in (4, 6) else 0.0, results[0])
        if self.call.get("need_weights"):
            weights = chosen(results[-1], without[-1], reach.rows, reach.dead_rows | reach.rows & ~first.rows)
            nan, seen = np.isnan(weights).any(-1, keepdims=True), reach.visible
            if run == 1:  # where a sum of masks may overflow, and hide a key that is seen
                weights = np.where(nan & seen, np.nan, weights)
            elif run:
                weights = np.where(nan & ~seen, np.nan if run in (4, 6) else 0.0, weights)
            results[-1] = weights
        return tuple(results)

    def _reach(self, arrays: Sequence[Array | None]) -> _Reach:
        """Of one run."""
        query, key, value, *masks, past_key, past_value, starts = arrays[2 * self.count :]
        assert query is not None and key is not None and value is not None
        query = _split(query, self.call["heads"])
        key, value = (
            np.repeat(t, query.shape[1] // t.shape[1], 1)
            for t in (self._with_past(key, past_key), self._with_past(value, past_value))
        )
        bad_query, bad_value = ~np.isfinite(query).all(-1, keepdims=True), ~np.isfinite(value)
        # Scores that overflow, if only before or after they are scaled.
        largest = self.largest / max(1.0, abs(self.call["scale"] or 0.0))
        over = np.abs(query) @ np.abs(key).swapaxes(-1, -2) >= largest
        bad_key = ~np.isfinite(key).all(-1)[:, :, None] | over
        hidden = self._hidden(query.shape[2], key.shape[2], past_key, starts)
        visible = self._visible(~hidden, masks, over.shape)
        rows = (hidden & bad_key).any(-1, keepdims=True)
        cells = rows | (hidden[..., None] & bad_value[:, :, None]).any(3)
        beside = (~hidden & (bad_key | bad_value.any(-1)[:, :, None])).any(-1, keepdims=True)
        # onnxruntime hides keys by the lowest number: a query that sees only scores of -inf gets hidden values. Over
        # buffers it may get 0.
        infinite = (visible & (np.isinf(key).any(-1)[:, :, None] | over)).any(-1, keepdims=True)
        infinite |= np.isinf(query).any(-1, keepdims=True)
        if starts is None:
            infinite &= ~visible.all(-1, keepdims=True)
        lost = np.zeros_like(infinite)
        if starts is not None and query.shape[2] > 1:  # GroupQueryAttention may give 0 there
            lost |= (visible & np.isnan(query @ key.swapaxes(-1, -2))).any(-1, keepdims=True)
        blind = ~visible.any(-1, keepdims=True)
        blind &= bad_query | bad_key.any(-1, keepdims=True) | bad_value.any((2, 3))[..., None, None]
        dead = np.broadcast_to(blind | cells & beside | infinite, cells.shape)
        return _Reach(cells, rows, dead, blind | rows & beside | infinite, lost, visible)

    def _with_past(self, x: Array, past: Array | None) -> Array:
        split = _split(x, self.call["heads"] and (self.call["kv_heads"] or self.call["heads"]))
        return split if past is None else np.concatenate([past, split], 2)

    def _hidden(self, queries: int, keys: int, past: Array | None, starts: Array | None) -> Array:
        """(L, S), or (N, 1, L, S) over a buffer: true where causality, the window or what is filled hide a key."""
        first: Any = 0 if past is None else past.shape[2]
        if starts is not None:
            first = starts[:, None, None, None]
        row, column = np.arange(queries)[:, None] + first, np.arange(keys)
        hidden = np.zeros((*row.shape[:-1], keys), bool)
        if self.call["is_causal"]:
            hidden |= column > row
        elif starts is not None:
            hidden |= column >= first + queries
        elif self.call.get("window_after") is not None:
            hidden |= column > row + self.call["window_after"]
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
    if heads is None or x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _joined(x: Array, heads: int | None) -> Array:
    n, count, length, width = x.shape
    return x if heads is None else x.transpose(0, 2, 1, 3).reshape(n, length, count * width)
