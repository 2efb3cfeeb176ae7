"""Logits of the token that follows a sequence, and the error for those that no token can be chosen from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lucid.generation.prompts import Ids

Logits: TypeAlias = npt.NDArray[np.float64]
"""(vocab,), or (N, vocab) where several are processed: computed in float64, whatever the model's element type."""
StepLogits: TypeAlias = npt.NDArray[np.floating[Any]]
"""The logits that a model gives after some tokens, in its element type."""
LogitsProcessor: TypeAlias = Callable[[Ids, Logits], npt.NDArray[np.floating[Any]]]
"""A function of the ids so far (1, total), without padding, and the logits (1, vocab), that returns new logits."""


class LogitsError(ValueError):
    """Logits that no token can be chosen from: NaN, infinite, or -inf for every token.

    Attributes:
        option: the option or processor that gave them; None where the model did.
    """

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


def checked(logits: npt.NDArray[Any], row: int = 0, option: str | None = None) -> Logits:
    """Logits (vocab,), if there is a token to choose.

    Raises:
        LogitsError: naming the row and what gave them: the model, or an option.
    """
    logits = logits.astype(np.float64, copy=False)
    best = logits.max()  # NaN where there is one
    if np.isfinite(best):
        return logits
    if np.isnan(best):
        what = f"NaN for {int(np.isnan(logits).sum())} of {logits.size} tokens"
    else:
        what = f"{best:+} as the largest of {logits.size} logits"
    advice = "check the weights, and the element type, which may have overflowed"
    if option is not None:
        advice = "leave at least one token possible"
    raise LogitsError(
        f"generate: {option or 'the model'} gave {what} in row {row}, expected a finite one; {advice}", option
    )
