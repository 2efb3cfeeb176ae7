"""Logits of the token that follows a sequence, and the error for those that no token can be chosen from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lucid.generation.prompts import Ids

Logits: TypeAlias = npt.NDArray[np.float64]
"""(vocab,), or (N, vocab) where several are processed: computed in float64, whatever the model's element type."""
LogitsProcessor: TypeAlias = Callable[[Ids, Logits], npt.NDArray[np.floating[Any]]]
"""A function of the ids so far (1, total), without padding, and the logits (1, vocab), that returns new logits."""

ADVICE = "leave at least one token possible"
_OF_MODELS = "check the weights, and the element type, which may have overflowed"


class LogitsError(ValueError):
    """Logits that no token can be chosen from: NaN, infinite, or -inf for every token."""


def checked(logits: npt.NDArray[Any], row: int = 0, source: str = "the model", advice: str = _OF_MODELS) -> Logits:
    """Logits (vocab,), if there is a token to choose.

    Raises:
        LogitsError: naming the row and `source`, which computed them.
    """
    logits = logits.astype(np.float64, copy=False)
    best = logits.max()  # NaN where there is one
    if np.isfinite(best):
        return logits
    if np.isnan(best):
        found = f"NaN for {int(np.isnan(logits).sum())} of {logits.size} tokens"
    else:
        found = f"{best:+} as the largest of {logits.size} logits"
    raise LogitsError(f"generate: {source} gave {found} in row {row}, expected a finite one; {advice}")
