"""Changes of logits before a token is drawn: biases, penalties, tokens that are forbidden or forced.

Each takes the logits (vocab,), the ids so far (total,) without padding, and how many of them are the prompt's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from lucid.generation.constraints import Matcher
from lucid.generation.logits import Logits, LogitsProcessor
from lucid.generation.options import Options
from lucid.generation.prompts import Ids

Processor: TypeAlias = Callable[[Logits, Ids, int], Logits]


def processors(options: Options) -> Iterator[tuple[str, Processor]]:
    """The processors that options ask for, with their names, in the order of transformers; of one sequence."""
    o = options
    if o.logit_bias:
        biases = np.array(list(o.logit_bias.values()), np.float64)
        yield "logit_bias", partial(biased, tokens=np.array(list(o.logit_bias), np.int64), biases=biases)
    if o.repetition_penalty != 1:
        yield "repetition_penalty", partial(repetition_penalised, penalty=o.repetition_penalty)
    if o.frequency_penalty or o.presence_penalty:
        yield (
            "the penalties",
            partial(penalised, frequency=float(o.frequency_penalty), presence=float(o.presence_penalty)),
        )
    if o.no_repeat_ngram_size:
        yield "no_repeat_ngram_size", partial(without_repeated_ngrams, size=o.no_repeat_ngram_size)
    words = [list(word) for word in o.bad_words_ids if len(word) > 1 or word[0] not in o.eos_tokens]
    if words:
        most = max(token for word in words for token in word)
        yield "bad_words_ids", partial(without_words, endings=_endings(words), most=most)
    if o.min_new_tokens and o.eos_tokens:
        yield "min_new_tokens", partial(continued, least=o.min_new_tokens, ends=o.eos_tokens)
    if o.constraint is not None:
        yield "constraint", partial(matching, matcher=o.constraint.matcher())
    if o.forced_bos_token_id is not None:
        yield "forced_bos_token_id", partial(forced, token=o.forced_bos_token_id, total=1)
    if o.forced_eos_token_id is not None:
        yield "forced_eos_token_id", partial(forced, token=o.forced_eos_token_id, new=o.max_new_tokens - 1)
    if o.suppress_tokens:
        yield "suppress_tokens", partial(suppressed, tokens=np.unique(o.suppress_tokens))
    for number, function in enumerate(o.logits_processors):
        name = f"logits processor {number}"
        yield name, partial(processed, function=function, name=name)


def biased(logits: Logits, ids: Ids, start: int, tokens: Ids, biases: Logits) -> Logits:
    """Add biases to the logits of some tokens, each once (OpenAI's `logit_bias`)."""
    _check_known("logit_bias has", tokens.max(), logits)
    logits = logits.copy()
    logits[tokens] += biases
    return logits


def repetition_penalised(logits: Logits, ids: Ids, start: int, penalty: float) -> Logits:
    """Divide the positive logits of tokens that are in the prompt or new by the penalty, multiply the negative ones."""
    seen = np.unique(ids[ids < logits.size])
    logits = logits.copy()
    with np.errstate(over="ignore"):  # of a penalty whose product no number holds
        logits[seen] = np.where(logits[seen] < 0, logits[seen] * penalty, logits[seen] / penalty)
    return logits


def penalised(logits: Logits, ids: Ids, start: int, frequency: float, presence: float) -> Logits:
    """Subtract `frequency` for each time that a token is among the new ones, and `presence` once (OpenAI's)."""
    count = np.bincount(ids[start:], minlength=logits.size)
    with np.errstate(over="ignore"):
        return np.asarray(logits - frequency * count - presence * (count > 0))


def without_repeated_ngrams(logits: Logits, ids: Ids, start: int, size: int) -> Logits:
    """Logits without the tokens that would complete an n-gram of the prompt and the new tokens once more."""
    if len(ids) < size:
        return logits
    windows = np.lib.stride_tricks.sliding_window_view(ids, size)
    repeats = (windows[:, :-1] == ids[len(ids) + 1 - size :]).all(axis=1)
    return _without(logits, [token for token in windows[repeats, -1].tolist() if token < logits.size])


_Endings: TypeAlias = Mapping[int, Mapping[tuple[int, ...], set[int]]]
"""The last tokens of words, by how many tokens come before and which."""


def without_words(logits: Logits, ids: Ids, start: int, endings: _Endings, most: int) -> Logits:
    """Logits without the tokens that would complete one of the words; `most` is the last token of all."""
    _check_known("bad_words_ids has", most, logits)
    lasts = [
        words[before]
        for count, words in endings.items()
        if count <= len(ids) and (before := tuple(ids[len(ids) - count :].tolist())) in words
    ]
    return _without(logits, list(set[int]().union(*lasts)))


def _endings(words: Sequence[list[int]]) -> _Endings:
    endings: dict[int, dict[tuple[int, ...], set[int]]] = {}
    for *before, last in words:
        endings.setdefault(len(before), {}).setdefault(tuple(before), set()).add(last)
    return endings


def continued(logits: Logits, ids: Ids, start: int, least: int, ends: Sequence[int]) -> Logits:
    """Logits without the tokens that end a sequence, as long as it has fewer new ones than `least`."""
    return logits if len(ids) - start >= least else _without(logits, [token for token in ends if token < logits.size])


def matching(logits: Logits, ids: Ids, start: int, matcher: Matcher) -> Logits:
    """Logits of the tokens that a constraint allows after the new ones."""
    allowed = matcher.allowed(ids[start:].tolist())[: logits.size]
    return np.where(np.pad(allowed, (0, logits.size - allowed.size)), logits, -np.inf)


def forced(
    logits: Logits, ids: Ids, start: int, token: int, total: int | None = None, new: int | None = None
) -> Logits:
    """Logits that allow one token alone, as its log probability 0, after so many tokens, or so many new ones.

    Raises:
        ValueError: for a token that there is not.
    """
    if len(ids) != total and len(ids) - start != new:
        return logits
    _check_known("the forced token is", token, logits)
    only = np.full_like(logits, -np.inf)
    only[token] = 0
    return only


def suppressed(logits: Logits, ids: Ids, start: int, tokens: Ids) -> Logits:
    """Logits without these tokens.

    Raises:
        ValueError: for a token that there is not.
    """
    _check_known("suppress_tokens has", tokens.max(), logits)
    return _without(logits, tokens)


def processed(logits: Logits, ids: Ids, start: int, function: LogitsProcessor, name: str) -> Logits:
    """The logits after a function of the user's.

    Raises:
        TypeError, ValueError: for a result that is not an array of floating-point numbers, or has another shape.
    """
    result = function(ids[None], logits[None])
    if not isinstance(result, np.ndarray) or result.dtype.kind != "f":
        shown = f"dtype {result.dtype}" if isinstance(result, np.ndarray) else f"type {type(result).__name__}"
        raise TypeError(f"generate: {name} returned {shown}, expected a NumPy array of floating-point numbers")
    if result.shape != (1, logits.size):
        raise ValueError(
            f"generate: {name} returned shape {list(result.shape)}, expected {[1, logits.size]} as it was given"
        )
    return np.asarray(result[0], np.float64)


def _without(logits: Logits, tokens: Sequence[int] | Ids) -> Logits:
    logits = logits.copy()
    logits[np.asarray(tokens, np.int64)] = -np.inf
    return logits


def _check_known(what: str, most: int, logits: Logits) -> None:
    if most >= logits.size:
        raise ValueError(f"generate: {what} {most}, but the model has {logits.size} tokens, from 0 on")
