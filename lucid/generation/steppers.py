"""Decode steps over an eager model or a session, with one interface."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from lucid.generation.prompts import Ids, Prompt

StepLogits = npt.NDArray[np.floating[Any]]
C = TypeVar("C")


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
