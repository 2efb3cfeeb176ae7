"""What causality and windows hide may be left out by a kernel, or multiplied by 0: where it holds NaN or an infinity,
the output is NaN or what it would be without it (docs/attention.md), and both are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lucid import Tensor, ops
from lucid.graph import Attributes, Node, Result, Value
from lucid.types import Array, TensorType


def hides_by_position(node: Node) -> bool:
    """Whether a node is an attention that leaves keys out by where they stand."""
    a = node.attributes
    return node.op.name == "attention" and (a["is_causal"] or a["window"] is not None)


def finite(inputs: Sequence[Value | None]) -> list[Tensor | None]:
    """The inputs of an attention with 0 for what is no number in keys and values."""
    given = [None if v is None else Tensor.from_value(v) for v in inputs]
    return [
        ops.where(ops.abs_(t) <= t.dtype.largest, t, 0.0) if t is not None and i in (1, 2, 5, 6) else t
        for i, t in enumerate(given)
    ]


def either(
    node: Node, results: Sequence[Value], without: Sequence[Value], inputs: Sequence[Value | None]
) -> list[Result]:
    """The results of an attention, and of the same on finite keys and values, as values that may be either."""
    op = Either(node.attributes, len(results))
    return list(Node(op, (*results, *without, *inputs), {}, node.types, "").results)


@dataclass(frozen=True)
class Either:
    """An operation of the judge alone, whose result differs from run to run."""

    call: Attributes
    count: int
    name: str = "either"
    defaults: Attributes = field(default_factory=dict)

    def evaluate(self, inputs: Sequence[Array | None], attributes: Attributes) -> tuple[Array, ...]:
        return self.run(0, inputs)

    def infer(self, inputs: Sequence[TensorType | None], attributes: Attributes) -> tuple[TensorType, ...]:
        return tuple(kind for kind in inputs[: self.count] if kind is not None)

    def run(self, run: int, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        """In odd runs what is hidden is left out, in even ones it is NaN where it can be; the first is as it is."""
        results = [a for a in arrays[: self.count] if a is not None]
        query, key, value, _, _, past_key, past_value = arrays[2 * self.count :]
        if run == 0 or query is None or key is None or value is None:
            return tuple(results)
        past = 0 if past_key is None else past_key.shape[2]
        rows, cells, seen = self._reached(
            query, self._with_past(key, past_key), self._with_past(value, past_value), past
        )
        touched = {0: self._as_output(cells)} | ({self.count - 1: rows} if self.call["need_weights"] else {})
        for at, reached in touched.items():
            other = arrays[self.count + at]
            beside = self._as_output(np.broadcast_to(seen, cells.shape)) if at == 0 else seen
            results[at] = np.where(reached, np.where(beside, np.inf, other) if run % 2 else np.nan, results[at])
        return tuple(results)

    def _with_past(self, x: Array, past: Array | None) -> Array:
        heads = self.call["kv_heads"] or self.call["heads"]
        split = x if heads is None else x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)
        return split if past is None else np.concatenate([past, split], 2)

    def _as_output(self, cells: Array) -> Array:
        n, heads, length, width = cells.shape
        return cells if self.call["heads"] is None else cells.transpose(0, 2, 1, 3).reshape(n, length, heads * width)

    def _reached(self, query: Array, key: Array, value: Array, past: int) -> tuple[Array, Array, Array]:
        """The rows of weights and the cells of the output that something hidden reaches, and the rows that something
        visible reaches as well."""
        heads, length = self.call["heads"] or query.shape[1], query.shape[-2]
        bad_keys = np.repeat(~np.isfinite(key).all(-1), heads // key.shape[1], 1)
        bad_values = np.repeat(~np.isfinite(value), heads // value.shape[1], 1)
        row, column = np.arange(length)[:, None] + past, np.arange(key.shape[2])
        hidden = np.zeros((length, key.shape[2]), bool)
        if self.call["is_causal"]:
            hidden |= column > row
        if self.call["window"] is not None:
            hidden |= column <= row - self.call["window"]
        rows = (hidden & bad_keys[:, :, None]).any(-1, keepdims=True)
        cells = rows | (hidden[..., None] & bad_values[:, :, None]).any(3)
        seen = (~hidden & (bad_keys | bad_values.any(-1))[:, :, None]).any(-1, keepdims=True)
        return rows, cells, seen
