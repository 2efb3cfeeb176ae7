"""The rules for Whisper's next token: functions of logits, for `logits_processors` of `lucid.generation`.

The rules for timestamps are those of openai/whisper (`ApplyTimestampRules`), which transformers has as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

import lucid
from lucid.models.checkpoints.config import Array
from lucid.models.speech.whisper_tokens import WhisperTokenizer

Ids = npt.NDArray[np.int64]


def writing_rules(
    tokenizer: WhisperTokenizer, prompt_length: int, timestamps: bool
) -> list[lucid.generation.LogitsProcessor]:
    """All rules for the text after a prompt of so many tokens."""
    rules = [suppress(tokenizer.suppressed_first, at=prompt_length), suppress(tokenizer.suppressed)]
    return [*rules, timestamp_rules(tokenizer, prompt_length)] if timestamps else rules


def suppress(tokens: Sequence[int], at: int | None = None) -> lucid.generation.LogitsProcessor:
    """The rule that some tokens are never written, or not at one position: after `at` tokens."""
    suppressed = list(tokens)

    def rule(ids: Ids, logits: Array) -> Array:
        _check_known(max(suppressed, default=0), logits)
        if at is not None and ids.shape[1] != at:
            return logits
        logits = logits.copy()
        logits[:, suppressed] = -np.inf
        return logits

    return rule


def only(tokens: Sequence[int]) -> lucid.generation.LogitsProcessor:
    """The rule that nothing but these tokens is written."""
    allowed = list(tokens)

    def rule(ids: Ids, logits: Array) -> Array:
        _check_known(max(allowed), logits)
        kept = np.full_like(logits, -np.inf)
        kept[:, allowed] = logits[:, allowed]
        return kept

    return rule


def timestamp_rules(tokenizer: WhisperTokenizer, prompt_length: int) -> lucid.generation.LogitsProcessor:
    """The rule for where timestamps are written, and which.

    - The text begins with a timestamp, no later than `max_first_timestamp`.
    - A segment ends with a timestamp, which is later than the one that it begins with. After it, another timestamp
      begins the next segment, no earlier, or the text ends.
    - If all timestamps together are more probable than the most probable other token, one of them is written.

    Args:
        tokenizer: tells which tokens are timestamps.
        prompt_length: how many tokens precede the text.
    """
    first, end_of_text = tokenizer.first_timestamp, tokenizer.end_of_text

    def rule(ids: Ids, logits: Array) -> Array:
        _check_known(first, logits)
        logits = logits.copy()
        logits[:, tokenizer.no_timestamps] = -np.inf
        for row, written in zip(logits, ids[:, prompt_length:], strict=True):
            if not written.size:
                row[:first] = -np.inf
                row[first + tokenizer.max_first_timestamp + 1 :] = -np.inf
                continue
            is_timestamp = written >= first
            begins = is_timestamp[-2:].all()  # a segment: the first token, or after the end of another
            ends = is_timestamp[-1] and not begins
            if begins:
                row[first:] = -np.inf
            if ends:
                row[:end_of_text] = -np.inf
            if is_timestamp.any():
                row[first : written[is_timestamp][-1] + (0 if ends else 1)] = -np.inf
            likely = lucid.generation.sampling.probabilities(row[None])[0]
            if likely[first:].sum() > likely[:first].max():
                row[:first] = -np.inf
        return logits

    return rule


def _check_known(token: int, logits: Array) -> None:
    if token >= logits.shape[1]:
        raise ValueError(
            f"transcribe: token {token} is a special one, the model has {logits.shape[1]} tokens; "
            "use the generation_config.json of the same checkpoint"
        )
