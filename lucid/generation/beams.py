"""Beam search for the sequence of the highest mean log probability, with the rules of transformers.

A sequence's score is the sum of its tokens' log probabilities, divided by its length to the power of `length_penalty`.
A search goes on until no running beam can beat the worst of `num_beams` finished sequences at its present length; with
`early_stopping=True` until there are so many, with "never" until none can at any length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lucid.generation import sampling
from lucid.generation.choice import Chooser
from lucid.generation.logits import Logits, checked
from lucid.generation.options import Options
from lucid.generation.prompts import Ids
from lucid.generation.slots import Slots
from lucid.generation.stops import Stops


def search(slots: Slots, prompts: Sequence[Ids], options: Options, stops: Stops) -> Ids:
    """The best sequences for prompts (L,), each in a slot: (N, new), those of a prompt one after the other."""
    count, random = options.num_beams, options.random()
    beams = BeamSearch(len(prompts), options, stops)
    of = np.repeat(np.arange(len(prompts)), count)
    choosers = [Chooser(options, len(prompts[prompt]), row) for row, prompt in enumerate(of.tolist())]
    logits = slots.read(range(len(prompts)), prompts)[of, -1]
    slots.select(of.tolist())  # the beams of a prompt are equal so far
    new = np.zeros((len(of), 0), np.int64)
    # Each beam keeps a token to go on with, even if all that end it are likelier.
    keep = max(2, 1 + len(stops.tokens))
    while True:
        scores = np.zeros(logits.shape)
        for row in beams.running.nonzero()[0].tolist():
            scores[row] = sampling.log_probabilities(checked(logits[row], row))
            scores[row] = choosers[row].process(np.concatenate([prompts[of[row]], new[row]]), scores[row])
            if random is not None:
                scores[row] = sampling.filtered(scores[row], options, keep)
        rows, tokens = beams.advance(scores, new, random)
        if not beams.open:
            return beams.best(options.num_return_sequences)
        slots.select(rows.tolist())
        new = np.concatenate([new[rows], tokens[:, None]], axis=1)
        logits = slots.read(range(len(of)), list(tokens[:, None]))[:, -1]


class BeamSearch:
    """The running beams of a batch, and the best sequences that have ended.

    Args:
        batch: N prompts, each with B beams.
        options: of the search.
        stops: what ends a sequence before `max_new_tokens`.
    """

    def __init__(self, batch: int, options: Options, stops: Stops) -> None:
        self._stops, self._options, num_beams = stops, options, options.num_beams
        # Enough for num_beams to run on even if the likeliest tokens of each beam all end it.
        self._candidates = max(2, 1 + len(stops.tokens)) * num_beams
        # All beams of a prompt start as the same sequence, so only the first counts.
        self._running_scores = np.full((batch, num_beams), -np.inf)
        self._running_scores[:, 0] = 0
        self._finished = np.full((batch, num_beams, options.max_new_tokens), options.padding, np.int64)
        self._lengths = np.zeros((batch, num_beams), np.int64)
        self._finished_scores = np.full((batch, num_beams), -np.inf)
        self._open = np.ones(batch, bool)  # whether a running beam can still beat a finished sequence

    @property
    def open(self) -> bool:
        """Whether the search goes on."""
        return bool(self._open.any())

    @property
    def running(self) -> npt.NDArray[np.bool_]:
        """Which of the beams (N * B,) can be continued."""
        running: npt.NDArray[np.bool_] = np.isfinite(self._running_scores).reshape(-1)
        return running

    def advance(self, log_probabilities: Logits, new: Ids, random: np.random.Generator | None) -> tuple[Ids, Ids]:
        """Add one token to every beam.

        Args:
            log_probabilities: (N * B, vocab), of the token that follows each running beam.
            new: (N * B, n), the new tokens of each beam.
            random: draws the candidates by their probabilities; without it the likeliest are taken.

        Returns:
            The rows (N * B,) that the next beams continue, and the tokens (N * B,) that they add.
        """
        (batch, beams), vocabulary = self._running_scores.shape, log_probabilities.shape[-1]
        length = new.shape[1]
        scores = self._running_scores[:, :, None] + log_probabilities.reshape(batch, beams, vocabulary)
        scores = scores.reshape(batch, beams * vocabulary)
        if random is None:
            chosen = sampling.largest(scores, self._candidates)
        else:
            chosen = sampling.draw_distinct(scores, self._candidates, random)
        scores = np.take_along_axis(scores, chosen, axis=1)
        parents, tokens = chosen // vocabulary, chosen % vocabulary
        before = _beams_at(new.reshape(batch, beams, length), parents)
        candidates = np.concatenate([before, tokens[:, :, None]], axis=2)
        ends = [self._stops.end(new) for new in candidates.reshape(-1, length + 1).tolist()]
        ended = np.array(ends).reshape(chosen.shape)
        ended |= length + 1 == self._options.max_new_tokens

        self._finish(candidates, np.where(ended, scores, -np.inf) / (length + 1) ** self._options.length_penalty)
        running_scores = np.where(ended, -np.inf, scores)
        kept = sampling.largest(running_scores, beams)
        self._running_scores = np.take_along_axis(running_scores, kept, axis=1)
        reached = self._options.early_stopping == "never" and self._options.length_penalty > 0
        best_length = self._options.max_new_tokens if reached else length + 1
        best_possible = self._running_scores[:, 0] / best_length**self._options.length_penalty
        self._open &= best_possible > self._finished_scores.min(axis=1)
        if self._options.early_stopping is True:
            self._open &= ~np.isfinite(self._finished_scores).all(axis=1)
        rows = np.take_along_axis(parents, kept, axis=1) + np.arange(batch)[:, None] * beams
        return rows.reshape(-1), np.take_along_axis(tokens, kept, axis=1).reshape(-1)

    def best(self, count: int = 1) -> Ids:
        """The best sequences for each prompt, best first (N * count, new), padded to the length of the longest."""
        longest = self._lengths[:, :count].max()
        return self._finished[:, :count, :longest].reshape(-1, longest)

    def _finish(self, candidates: Ids, scores: Logits) -> None:
        """Keep the best of the finished sequences and of the candidates, whose score is -inf if they go on.

        Only the first `num_beams` candidates can finish; the others are there to run on.
        """
        batch, beams, _ = self._finished.shape
        length = candidates.shape[2]
        fresh = np.full_like(self._finished, self._options.padding)
        fresh[:, :, :length] = candidates[:, :beams]
        fresh_scores = np.where(self._open[:, None], scores[:, :beams], -np.inf)
        merged = np.concatenate([self._finished_scores, fresh_scores], axis=1)
        kept = sampling.largest(merged, beams)
        self._finished_scores = np.take_along_axis(merged, kept, axis=1)
        self._finished = _beams_at(np.concatenate([self._finished, fresh], axis=1), kept)
        lengths = np.concatenate([self._lengths, np.full((batch, beams), length)], axis=1)
        self._lengths = np.take_along_axis(lengths, kept, axis=1)


def _beams_at(values: npt.NDArray[np.int64], beams: Ids) -> Ids:
    """Beams (N, M, n) of (N, B, n) by their numbers (N, M)."""
    return np.take_along_axis(values, beams[:, :, None], axis=1)
