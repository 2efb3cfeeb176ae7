"""Sequences that grow by one token per step, and their cache."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from lucid.generation.prompts import Ids, Prompt
from lucid.generation.steppers import StepLogits, Stepper

C = TypeVar("C")


class Sequences(Generic[C]):
    """A batch of sequences and their cache.

    Attributes:
        ids: (N, total), the prompts and the new tokens.
        mask: (N, total), 1 = a token, 0 = padding.
    """

    def __init__(self, stepper: Stepper[C], prompt: Prompt, most: int) -> None:
        """`most` is how many tokens may follow the prompts."""
        self.ids, self.mask = prompt
        self._prompt, self._most, self._stepper = prompt, most, stepper
        self._cache: C | None = None

    @property
    def new(self) -> Ids:
        """The new tokens (N, n)."""
        return self.ids[:, self._prompt.ids.shape[1] :]

    def step(self) -> StepLogits:
        """The logits of the token that follows each sequence (N, vocab); the cache then holds all tokens so far."""
        if self._cache is None:
            logits, self._cache = self._stepper.prefill(self._prompt, self._most)
        else:
            logits, self._cache = self._stepper.step(self.ids[:, -1], self._cache)
        return logits

    def append(self, tokens: Ids) -> None:
        """Add one token to each sequence, (N,)."""
        self.ids = np.concatenate([self.ids, tokens[:, None]], axis=1)
        self.mask = np.concatenate([self.mask, np.ones_like(tokens)[:, None]], axis=1)

    def select(self, rows: Ids) -> None:
        """Continue with these rows (M,), in this order; a row may be repeated."""
        if not np.array_equal(rows, np.arange(len(self.ids))):
            self.ids, self.mask = self.ids[rows], self.mask[rows]
            if self._cache is not None:
                self._cache = self._stepper.reordered(self._cache, rows)
