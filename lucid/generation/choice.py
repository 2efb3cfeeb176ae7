"""The choice of a sequence's next token: a function of the options, the ids so far, and the model's logits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lucid.generation import sampling
from lucid.generation.logits import Logits, checked
from lucid.generation.options import Options
from lucid.generation.processors import processors
from lucid.generation.prompts import Ids


class TokenLogprob(NamedTuple):
    """A chosen token with its log probability, before options change it."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens with theirs, as many as the option `logprobs` says."""


class Chooser:
    """Chooses the tokens of one sequence.

    Args:
        options: of the request.
        start: how many tokens the prompt has.
        row: of the batch: its number in messages, and which random numbers of the seed it has.

    Attributes:
        logprobs: of the tokens chosen so far; None where the options do not ask for them.
    """

    def __init__(self, options: Options, start: int, row: int = 0) -> None:
        self._options, self._start, self._row = options, start, row
        self._processors = tuple(processors(options))
        self._random = options.random(row)
        self.logprobs: list[TokenLogprob] | None = None if options.logprobs is None else []

    def choose(self, ids: Ids, logits: npt.NDArray[np.floating[Any]]) -> int:
        """The token that follows.

        Args:
            ids: (total,), the prompt and the new tokens, without padding.
            logits: (vocab,), of the model.

        Raises:
            LogitsError: for logits that no token can be chosen from.
            TypeError, ValueError: for an option that does not fit the vocabulary, and what a processor returns.
        """
        if self._random is None and not self._processors:
            token = int(logits.argmax())  # of NaN where there is one
            if not math.isfinite(logits[token]):
                checked(logits, self._row)
        else:
            processed = self.process(ids, checked(logits, self._row))
            if self._random is None:
                token = int(processed.argmax())
            else:
                token = sampling.draw(sampling.filtered(processed, self._options), self._random)
        if self.logprobs is not None:
            self.logprobs.append(_logprob(token, logits.astype(np.float64), self._options.logprobs or 0))
        return token

    def process(self, ids: Ids, logits: Logits) -> Logits:
        """The logits (vocab,) after everything that the options do to them before a token is drawn.

        Raises:
            LogitsError: naming the option or processor that leaves no token to choose.
        """
        for name, process in self._processors:
            logits = checked(process(logits, ids, self._start), self._row, name)
        return logits


def _logprob(token: int, logits: Logits, top: int) -> TokenLogprob:
    values = sampling.log_probabilities(logits)
    likeliest = sampling.largest(values[None], top)[0].tolist() if top else []
    return TokenLogprob(token, float(values[token]), tuple((other, float(values[other])) for other in likeliest))
