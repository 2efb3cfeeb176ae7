"""Sequences that grow by one token per step, and the interface of the decoders that continue them."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from lucid.generation.prompts import Ids, Prompt

C = TypeVar("C")


class Sequences(Generic[C]):
    """A batch of sequences and their cache."""

    def __init__(self, stepper: Stepper[C], prompt: Prompt, most: int) -> None:
        """`most` is how many tokens may follow the prompts."""
        self._prompt, self._most, self._stepper = prompt, most, stepper
        padding_first = np.argsort(prompt.mask, axis=1, kind="stable")
        self._tokens = np.take_along_axis(prompt.ids, padding_first, axis=1)  # later with room for more, at the end
        self._firsts = (prompt.mask == 0).sum(axis=1)
        self._total = self._start = prompt.ids.shape[1]
        self._cache: C | None = None

    def row(self, row: int) -> Ids:
        """The prompt and the new tokens of a sequence (total,), without padding."""
        return self._tokens[row, self._firsts[row] : self._total]

    @property
    def new(self) -> Ids:
        """The new tokens (N, n)."""
        return self._tokens[:, self._start : self._total]

    def step(self) -> StepLogits:
        """The logits of the token that follows each sequence (N, vocab); the cache then holds all tokens so far."""
        if self._cache is None:
            logits, self._cache = self._stepper.prefill(self._prompt, self._most)
        else:
            logits, self._cache = self._stepper.step(self._tokens[:, self._total - 1], self._cache)
        return logits

    def append(self, tokens: Ids) -> None:
        """Add one token to each sequence, (N,)."""
        if self._total == self._tokens.shape[1]:
            self._tokens = np.concatenate([self._tokens, np.empty_like(self._tokens)], axis=1)
        self._tokens[:, self._total] = tokens
        self._total += 1

    def select(self, rows: Ids) -> None:
        """Continue with these rows (M,), in this order; a row may be repeated."""
        if not np.array_equal(rows, np.arange(len(self._tokens))):
            self._tokens, self._firsts = self._tokens[rows, : self._total], self._firsts[rows]
            if self._cache is not None:
                self._cache = self._stepper.reordered(self._cache, rows)


StepLogits = npt.NDArray[np.floating[Any]]


@runtime_checkable
class Stepper(Protocol[C]):
    """A decoder that continues sequences, and the cache of what it has read."""

    def prefill(self, prompt: Prompt, most: int) -> tuple[StepLogits, C]:
        """Read the prompts; up to `most` tokens may follow.

        Returns:
            The logits after the last token of each prompt (N, vocab), and the cache.
        """
        ...

    def step(self, tokens: Ids, cache: C) -> tuple[StepLogits, C]:
        """Read one more token of each sequence, (N,).

        Returns:
            The logits after it (N, vocab), and the cache that includes it. The one given may have become that.

        Raises:
            ValueError: for a cache of another model or batch.
        """
        ...

    def reordered(self, cache: C, rows: Ids) -> C:
        """The cache whose row i is row rows[i] of this one."""
        ...
