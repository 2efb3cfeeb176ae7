"""Logits before a token is chosen: checked, penalised, and changed by the user's functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lucid.generation.prompts import Ids

Logits: TypeAlias = npt.NDArray[np.float64]
"""(N, vocab): computed in float64, whatever the model's element type."""
Rows: TypeAlias = npt.NDArray[np.bool_]
"""(N,) booleans, one for each row."""
LogitsProcessor: TypeAlias = Callable[[Ids, Logits], npt.NDArray[np.floating[Any]]]
"""A function of the ids so far (N, total), padding included, and the logits (N, vocab), that returns new logits."""


_OF_MODELS = "check the weights, and the element type, which may have overflowed"


class LogitsError(ValueError):
    """Logits that no token can be chosen from: NaN, infinite, or -inf for every token."""


def checked(logits: npt.NDArray[Any], running: Rows, source: str = "the model", advice: str = _OF_MODELS) -> Logits:
    """The logits, if every running row has a token to choose; zeros for the others, whose tokens are not used.

    Raises:
        LogitsError: naming the row and `source`, which computed them.
    """
    logits = (logits if running.all() else np.where(running[:, None], logits, 0)).astype(np.float64)
    best = logits.max(axis=-1)  # NaN where a row has one
    if np.isfinite(best).all():
        return logits
    row = int(np.flatnonzero(~np.isfinite(best))[0])
    if np.isnan(best[row]):
        found = f"NaN for {int(np.isnan(logits[row]).sum())} of {logits.shape[1]} tokens"
    else:
        found = f"{best[row]:+} as the largest of {logits.shape[1]} logits"
    raise LogitsError(f"generate: {source} gave {found} in row {row}, expected a finite one; {advice}")


def likeliest(logits: npt.NDArray[np.floating[Any]], running: Rows) -> Ids:
    """The token with the largest logit in each row (N,), of the model's logits as they are.

    Raises:
        LogitsError: as `checked`.
    """
    tokens: Ids = logits.argmax(axis=-1)  # of NaN where a row has one
    if not all(math.isfinite(row[token]) for row, token in zip(logits, tokens, strict=True)):
        checked(logits, running)
    return tokens


def repetition_penalised(logits: Logits, ids: Ids, mask: Ids, penalty: float) -> Logits:
    """Divide the positive logits of tokens that a row already has by the penalty, and multiply the negative ones.

    Padding does not count, so a row's tokens do not depend on the length of the others.
    """
    seen = np.zeros(logits.shape, bool)
    rows = np.broadcast_to(np.arange(len(ids))[:, None], ids.shape)
    seen[rows[mask == 1], ids[mask == 1]] = True
    return np.where(seen, np.where(logits < 0, logits * penalty, logits / penalty), logits)


def suppressed(logits: Logits, tokens: Sequence[int]) -> Logits:
    """Logits without these tokens.

    Raises:
        ValueError: for a token that there is not.
        LogitsError: if no other token is possible.
    """
    _check_known("suppress_tokens has", max(tokens), logits)
    logits = logits.copy()
    logits[:, list(tokens)] = -np.inf
    return checked(logits, np.ones(len(logits), bool), "suppress_tokens", "leave at least one token possible")


def forced(logits: Logits, token: int) -> Logits:
    """Logits that allow only one token, as its log probability 0.

    Raises:
        ValueError: for a token that there is not.
    """
    _check_known("the forced token is", token, logits)
    only = np.full_like(logits, -np.inf)
    only[:, token] = 0
    return only


def _check_known(what: str, token: int, logits: Logits) -> None:
    if token >= logits.shape[1]:
        raise ValueError(f"generate: {what} {token}, but the model has {logits.shape[1]} tokens, from 0 on")


def processed(logits: Logits, ids: Ids, running: Rows, processors: Sequence[LogitsProcessor]) -> Logits:
    """The logits after the user's functions, in their order.

    Raises:
        LogitsError: for a result without a token to choose.
        TypeError, ValueError: for a result that is not an array of floating-point numbers, or has another shape.
    """
    for number, processor in enumerate(processors):
        result = processor(ids, logits)
        name = f"logits processor {number}"
        if not isinstance(result, np.ndarray) or result.dtype.kind != "f":
            shown = f"dtype {result.dtype}" if isinstance(result, np.ndarray) else f"type {type(result).__name__}"
            raise TypeError(f"generate: {name} returned {shown}, expected a NumPy array of floating-point numbers")
        if result.shape != logits.shape:
            raise ValueError(
                f"generate: {name} returned shape {list(result.shape)}, expected {list(logits.shape)} as it was given"
            )
        logits = checked(result, running, name, "leave at least one token possible")
    return logits
