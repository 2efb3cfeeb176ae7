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

    def __init__(self, stepper: Stepper[C], prompt: Prompt) -> None:
        self.ids, self.mask = prompt
        self._prompt_length = self.ids.shape[1]
        self._stepper = stepper
        self._cache = stepper.empty_cache(len(self.ids))
        self._cached = 0  # how many columns are in the cache

    @property
    def new(self) -> Ids:
        """The new tokens (N, n)."""
        return self.ids[:, self._prompt_length :]

    def step(self) -> StepLogits:
        """The logits of the token that follows each sequence (N, vocab); the cache then holds all tokens so far."""
        positions = np.maximum(np.cumsum(self.mask, axis=1) - 1, 0)  # padding on the left does not count
        fresh = slice(self._cached, None)
        logits, self._cache = self._stepper.step(self.ids[:, fresh], self.mask, positions[:, fresh], self._cache)
        self._cached = self.ids.shape[1]
        return logits

    def append(self, tokens: Ids) -> None:
        """Add one token to each sequence, (N,)."""
        self.ids = np.concatenate([self.ids, tokens[:, None]], axis=1)
        self.mask = np.concatenate([self.mask, np.ones_like(tokens)[:, None]], axis=1)

    def select(self, rows: Ids) -> None:
        """Continue with these rows (M,), in this order; a row may be repeated."""
        if not np.array_equal(rows, np.arange(len(self.ids))):
            self.ids, self.mask = self.ids[rows], self.mask[rows]
            self._cache = self._stepper.reordered(self._cache, rows)
