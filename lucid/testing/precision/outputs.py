"""Sums over the outputs of two models, call by call: their differences, and how well they predict texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lucid.core.graph.types import Array
from lucid.ops.tensor.tensor import Tensor
from lucid.testing.precision.report import OutputError, TextError

_ROWS = 64  # of logits, whose probabilities are worked out together


def squares(array: Array, other: Array | None = None) -> float:
    """The sum of the squares of an array, or of its differences from another."""
    difference = array if other is None else array.astype(np.float64) - other
    return float(np.square(difference, dtype=np.float64).sum())


class OutputSums:
    """An output in both models, over all calls."""

    def __init__(self) -> None:
        self._signal, self._noise = 0.0, 0.0
        self._cosines: list[float] = []
        self._rows: list[tuple[int, int]] = []  # the call and the row of each

    def add(self, call: int, before: Array, after: Array) -> None:
        """The output of a call: rows of a batch; with fewer than two axes it is one row. Equal infinities, such as
        those of a mask, count as 0."""
        batch = len(before) if before.ndim > 1 else 1
        width = before.size // max(1, batch)
        x, y = (array.astype(np.float64).reshape(batch, width) for array in (before, after))
        equal = np.isinf(x) & (x == y)
        x[equal] = y[equal] = 0.0
        with np.errstate(invalid="ignore"):  # of infinities that are not equal, and NaN
            self._signal += squares(np.where(np.isinf(x), 0.0, x))
            self._noise += squares(y - x)
            norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
            products = (x * y).sum(axis=1)
        same = (x == y).all(axis=1)
        cosines = np.divide(products, norms, out=np.zeros(batch), where=norms > 0)
        self._cosines += np.where(same, 1.0, cosines).tolist()
        self._rows += [(call, row) for row in range(batch)]

    @property
    def relative(self) -> float:
        """The size of the differences relative to the output."""
        if not self._signal:
            return 0.0 if not self._noise else math.inf
        return math.sqrt(self._noise / self._signal)

    def error(self, name: str) -> OutputError:
        """The errors over all calls."""
        if not self._cosines:  # of empty batches
            return OutputError(name, self.relative, 1.0, 1.0, (0, 0))
        worst = int(np.argmin(self._cosines))
        return OutputError(name, self.relative, float(np.mean(self._cosines)), self._cosines[worst], self._rows[worst])


class TextSums:
    """The predictions of a decoder in both models: of each token from those before it."""

    def __init__(self) -> None:
        self._tokens, self._same = 0, 0
        self._before, self._after, self._divergence = 0.0, 0.0, 0.0

    def add(self, inputs: Mapping[str, Any], before: Array, after: Array) -> None:
        """The logits (N, L, vocabulary) of a call; tokens that `attention_mask` (N, L) hides are left out."""
        ids, mask = (_array(inputs.get(name)) for name in ("input_ids", "attention_mask"))
        if ids is None or before.ndim != 3 or ids.shape != before.shape[:2]:
            return
        counted = np.ones(ids.shape, bool) if mask is None or mask.shape != ids.shape else mask != 0
        rows, positions = np.nonzero(counted[:, :-1] & counted[:, 1:])
        for start in range(0, len(rows), _ROWS):
            at = rows[start : start + _ROWS], positions[start : start + _ROWS]
            following = ids[at[0], at[1] + 1]
            p, q = _log_softmax(before[at]), _log_softmax(after[at])
            each = np.arange(len(following))
            self._tokens += len(following)
            self._before -= float(p[each, following].sum())
            self._after -= float(q[each, following].sum())
            self._divergence += float((np.exp(p) * (p - q)).sum())
            self._same += int((p.argmax(axis=1) == q.argmax(axis=1)).sum())

    def error(self) -> TextError | None:
        """The figures over all calls; None if no token was predicted."""
        if not self._tokens:
            return None
        return TextError(
            self._tokens,
            _exp(self._before / self._tokens),
            _exp(self._after / self._tokens),
            self._divergence / self._tokens,
            self._same / self._tokens,
        )


def _array(value: Any) -> Array | None:
    if value is None:
        return None
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def _log_softmax(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True)))


def _exp(mean: float) -> float:
    return math.exp(mean) if mean < 700 else math.inf
